"""Read an AWS account through boto3. A look-up that is not permitted is an unknown fact, never a pass."""

from __future__ import annotations

from typing import Any

from infra.aws.policies import PROBES
from infra.aws.pools import RELEASES, release_parameter
from mpctl.errors import MpctlError, NotPermitted
from stacks.base import Plan
from stacks.preflight.facts import AccountFacts, Quota

# Service Quotas codes (AWS General Reference). G and VT in vCPUs on demand and spot; P likewise.
GPU_CODES = {
    ("g", False): ("L-DB2E81BA", "EC2 on-demand G and VT instances"),
    ("g", True): ("L-3819A6DF", "EC2 spot G and VT instances"),
    ("p", False): ("L-417A185B", "EC2 on-demand P instances"),
    ("p", True): ("L-7212CCBC", "EC2 spot P instances"),
}
VPCS, ADDRESSES = "L-F678F1CE", "L-0263D0A3"
DEFAULTS = {VPCS: 5.0, ADDRESSES: 5.0}


def read_aws(plan: Plan) -> AccountFacts:
    """Facts about the account of the default credentials in the cluster's region.

    Raises:
        NotPermitted: there are no credentials, or they are not valid.
    """
    return Reader(plan).facts()


class Reader:
    """The calls, each at most once."""

    def __init__(self, plan: Plan) -> None:
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            raise MpctlError("EKS needs boto3", hint="pip install -e '.[stacks,cloud]'") from None
        self.plan = plan
        self.session: Any = boto3.Session(region_name=plan.cluster.region)
        self.config = Config(connect_timeout=5, read_timeout=20)

    def facts(self) -> AccountFacts:
        identity = self.identity()
        machines = sorted({pool.hardware.machine for pool in self.plan.cluster.pools})
        offered = {machine: self.offering(machine) for machine in machines}
        return AccountFacts(
            identity=identity,
            zones=self.zones(),
            offered={machine: zones for machine, zones in offered.items() if zones is not None},
            quotas={**self.gpu_quotas(machines), **self.network_quotas()},
            taken=self.taken(),
            denied=self.denied(),
            image_moves=self.image_moves(),
        )

    def ask(self, service: str, call: str, **arguments: Any) -> Any:
        """The whole answer, or None where it is refused or does not come."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            client = self.session.client(service, config=self.config)
            if client.can_paginate(call):
                return client.get_paginator(call).paginate(**arguments).build_full_result()
            return getattr(client, call)(**arguments)
        except (ClientError, BotoCoreError, ResponseParserError):
            return None

    def identity(self) -> str:
        identity = self.ask("sts", "get_caller_identity")
        if identity is None:
            raise NotPermitted(
                f"AWS did not accept the credentials for {self.plan.cluster.region}",
                hint="aws sso login, or set AWS_PROFILE; 'aws sts get-caller-identity' shows who you are",
            )
        return f"{identity['Arn']} in account {identity['Account']}"

    def denied(self) -> tuple[str, ...] | None:
        """Rights of a deploy that the identity lacks, by the account's own evaluation of its policies."""
        who = self.ask("sts", "get_caller_identity")["Arn"]
        if ":assumed-role/" in who:
            # The role's path, which Identity Center's roles have, is in no ARN of its sessions.
            role = self.ask("iam", "get_role", RoleName=who.split("/")[1])
            if role is None:
                return None
            who = role["Role"]["Arn"]
        response = self.ask(
            "iam", "simulate_principal_policy", PolicySourceArn=who, ActionNames=list(PROBES)
        )
        if response is None:
            return None
        results = response["EvaluationResults"]
        return tuple(one["EvalActionName"] for one in results if one["EvalDecision"] != "allowed")

    def image_moves(self) -> dict[str, tuple[str, str]]:
        """Node groups of the existing cluster whose image release is not the one that a deploy gives them."""
        listed = self.ask("eks", "list_nodegroups", clusterName=self.plan.name)
        moves = {}
        for name in (listed or {}).get("nodegroups", ()):
            response = self.ask(
                "eks", "describe_nodegroup", clusterName=self.plan.name, nodegroupName=name
            )
            group = (response or {}).get("nodegroup", {})
            release = self.release(group.get("amiType", ""))
            if release and group.get("releaseVersion") not in (None, release):
                moves[name] = (group["releaseVersion"], release)
        return moves

    def release(self, image: str) -> str | None:
        """The pinned release of the nodes' image, or the newest one; None where it could not be read."""
        if self.plan.settings.eks_image or image not in RELEASES:
            return self.plan.settings.eks_image
        response = self.ask("ssm", "get_parameter", Name=release_parameter(self.plan.minor, image))
        return response and str(response["Parameter"]["Value"])

    def zones(self) -> tuple[str, ...] | None:
        response = self.ask("ec2", "describe_availability_zones")
        return response and tuple(
            sorted(zone["ZoneName"] for zone in response["AvailabilityZones"])
        )

    def offering(self, machine: str) -> tuple[str, ...] | None:
        response = self.ask(
            "ec2",
            "describe_instance_type_offerings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": [machine]}],
        )
        return (
            None
            if response is None
            else tuple(
                sorted(offering["Location"] for offering in response["InstanceTypeOfferings"])
            )
        )

    def gpu_quotas(self, machines: list[str]) -> dict[str, Quota]:
        spot = self.plan.settings.capacity_type == "SPOT"
        families = sorted({"p" if machine.startswith("p") else "g" for machine in machines})
        made = {}
        for family in families:
            code, name = GPU_CODES[family, spot]
            made[f"gpu-{family}"] = self.quota(
                "ec2", code, name, "vCPUs", self.used_vcpus(family, spot)
            )
        return made

    def quota(self, service: str, code: str, name: str, unit: str, used: float | None) -> Quota:
        response = self.ask(
            "service-quotas", "get_service_quota", ServiceCode=service, QuotaCode=code
        )
        limit = response["Quota"]["Value"] if response else DEFAULTS.get(code)
        region = self.plan.cluster.region
        console = f"https://{region}.console.aws.amazon.com/servicequotas/home/services/{service}/quotas/{code}"
        return Quota(f"{name} in {region}", unit, limit, used, console)

    def used_vcpus(self, family: str, spot: bool) -> float | None:
        kinds = ["g*", "vt*"] if family == "g" else ["p*"]
        response = self.ask(
            "ec2",
            "describe_instances",
            Filters=[
                {"Name": "instance-type", "Values": kinds},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ],
        )
        if response is None:
            return None
        running = [
            instance for group in response["Reservations"] for instance in group["Instances"]
        ]
        mine = [
            instance.get("CpuOptions") or {}
            for instance in running
            if (instance.get("InstanceLifecycle") == "spot") == spot
        ]
        return float(sum(cpu.get("CoreCount", 0) * cpu.get("ThreadsPerCore", 1) for cpu in mine))

    def network_quotas(self) -> dict[str, Quota]:
        vpcs = self.ask("ec2", "describe_vpcs")
        made = {"network": self.quota("vpc", VPCS, "VPCs", "", vpcs and float(len(vpcs["Vpcs"])))}
        if self.plan.settings.network.egress == "nat":
            response = self.ask("ec2", "describe_addresses")
            used = None if response is None else float(len(response["Addresses"]))
            made["address"] = self.quota("ec2", ADDRESSES, "Elastic IP addresses", "", used)
        return made

    def taken(self) -> tuple[str, ...]:
        cluster = self.ask("eks", "describe_cluster", name=self.plan.name)
        return (f"EKS cluster {self.plan.name}",) if cluster else ()
