"""Amazon EKS through boto3: the endpoint, a signed token, managed node groups and what EC2 would still give.

The token is what EKS' authenticator expects: a presigned STS GetCallerIdentity URL that carries the cluster's name in
a signed header, valid for a minute at STS and accepted by the cluster for fifteen (EKS user guide, cluster access).

A message about a failure names the call and the cluster; never a key, a token or a signed URL.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from mpctl.cloud.managed_cluster import Cluster, ClusterEndpoint, Token
from mpctl.errors import InputError, MpctlError, NotPermitted
from mpctl.estimate.capacity import Pool, PoolLimits

THROTTLED = {
    "Throttling",
    "ThrottlingException",
    "ThrottledException",
    "RequestLimitExceeded",
    "TooManyRequestsException",
}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
UNKNOWN = {"UnrecognizedClientException", "InvalidClientTokenId", "AuthFailure", "InvalidAccessKeyId",
           "SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature"}  # fmt: skip
DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedException"}
ABSENT = {"ResourceNotFoundException", "ResourceNotFound"}

LOGIN = "Log in again (aws sso login), or set AWS_PROFILE or --profile; `aws sts get-caller-identity` shows who you are"

_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{8,}\b|(?:X-Amz-[\w-]+|Signature|Credential)=[^\s&]+")


def redacted(text: str) -> str:
    return _KEY.sub("[redacted]", text)[:300]


@contextmanager
def aws_errors(action: str, cluster: Cluster) -> Iterator[None]:
    """``action`` in IAM's spelling, for example ``eks:DescribeCluster``."""
    from botocore import exceptions as aws

    try:
        yield
    except aws.ClientError as error:
        raise _from_code(error.response, action, cluster) from None
    except (aws.NoCredentialsError, aws.PartialCredentialsError):
        raise NotPermitted(f"No AWS credentials for {cluster.short}", hint=LOGIN) from None
    except (aws.TokenRetrievalError, aws.SSOError, aws.CredentialRetrievalError) as error:
        raise NotPermitted(f"The AWS login for {cluster.short} is over: {type(error).__name__}", hint=LOGIN) from None
    except aws.ProfileNotFound as error:
        raise InputError(redacted(str(error)), field="--profile") from None
    except (aws.HTTPClientError, aws.ConnectionError) as error:
        hint = f"Is the region {cluster.location} right, and is there a proxy or a private endpoint between?"
        raise MpctlError(f"{action} for {cluster.short} got no answer: {type(error).__name__}", hint=hint) from None
    except aws.BotoCoreError as error:
        raise MpctlError(f"{action} for {cluster.short} failed: {redacted(str(error))}") from None


def _from_code(response: Any, action: str, cluster: Cluster) -> MpctlError:
    code = str(response.get("Error", {}).get("Code", "?"))
    message = redacted(str(response.get("Error", {}).get("Message", "")))
    if code in THROTTLED:
        return MpctlError(f"AWS throttles {action} for {cluster.short}", hint="Wait a minute and try again")
    if code in EXPIRED:
        return NotPermitted(f"The AWS credentials for {cluster.short} have expired", hint=LOGIN)
    if code in UNKNOWN:
        return NotPermitted(f"AWS does not know the credentials used for {cluster.short} ({code})", hint=LOGIN)
    if code in DENIED:
        hint = f"Ask for {action} on this cluster in your IAM policy"
        return NotPermitted(f"{action} is not allowed for {cluster.short}: {message}", hint=hint)
    if code in ABSENT:
        return InputError(f"{cluster.short} does not exist: {message}", field="CLUSTER")
    return MpctlError(f"{action} for {cluster.short} failed: {code}: {message}")


TOKEN_PREFIX = "k8s-aws-v1."
TOKEN_LIFE = timedelta(minutes=14)  # one less than the cluster grants, for clocks that differ
URL_LIFE_S = 60

# Service Quotas, service ec2, counted in vCPUs: running on-demand, and all spot, G and VT instances.
QUOTA_CODES = {False: "L-DB2E81BA", True: "L-3819A6DF"}


def _now() -> datetime:
    return datetime.now(UTC)


class Eks:
    """One EKS cluster, with the credentials of the default chain or of ``profile``."""

    def __init__(self, cluster: Cluster, *, profile: str | None = None, now: Callable[[], datetime] = _now) -> None:
        self.cluster, self.now = cluster, now
        try:
            import boto3
        except ImportError:
            raise MpctlError("EKS needs boto3", hint="pip install '.[cloud]' in the checkout of mpctl") from None
        with aws_errors("sts:GetCallerIdentity", cluster):
            self.session: Any = boto3.Session(profile_name=profile, region_name=cluster.location)

    def _client(self, service: str) -> Any:
        from botocore.config import Config

        config = Config(connect_timeout=5, read_timeout=20)
        return self.session.client(service, region_name=self.cluster.location, config=config)

    def endpoint(self) -> ClusterEndpoint:
        with aws_errors("eks:DescribeCluster", self.cluster):
            client = self._client("eks")
            try:
                description = client.describe_cluster(name=self.cluster.name)["cluster"]
            except client.exceptions.ResourceNotFoundException:
                raise self._absent(client) from None
        if description.get("status") not in {"ACTIVE", "UPDATING"} or not description.get("endpoint"):
            hint = "Wait until it is ACTIVE and try again"
            raise MpctlError(
                f"{self.cluster.short} is {description.get('status')} and cannot be reached yet", hint=hint
            )
        return ClusterEndpoint(description["endpoint"], description["certificateAuthority"]["data"])

    def _absent(self, client: Any) -> InputError:
        hint = f"Is {self.cluster.location} the right region, and the account the right one?"
        try:
            names = client.list_clusters()["clusters"]
        except Exception:  # noqa: BLE001  only for the hint; the absence is the error
            names = []
        if names:
            hint = f"In {self.cluster.location} there are: {', '.join(sorted(names)[:10])}"
        return InputError(f"{self.cluster.short} does not exist", field="CLUSTER", hint=hint)

    def token(self) -> Token:
        from botocore.signers import RequestSigner

        with aws_errors("sts:GetCallerIdentity", self.cluster):
            sts = self._client("sts")
            credentials = self.session.get_credentials()
            if credentials is None:
                raise NotPermitted(f"No AWS credentials for {self.cluster.short}", hint="Set AWS_PROFILE or --profile")
            service = sts.meta.service_model.service_id
            signer = RequestSigner(service, self.cluster.location, "sts", "v4", credentials, self.session.events)
            request = {
                "method": "GET",
                "url": f"{sts.meta.endpoint_url.rstrip('/')}/?Action=GetCallerIdentity&Version=2011-06-15",
                "body": {},
                "headers": {"x-k8s-aws-id": self.cluster.name},
                "context": {},
            }
            url = signer.generate_presigned_url(request, operation_name="", expires_in=URL_LIFE_S)
        encoded = base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")
        return Token(TOKEN_PREFIX + encoded, self.now() + TOKEN_LIFE)

    def pools(self) -> tuple[Pool, ...]:
        """The managed node groups that have GPUs."""
        name = self.cluster.name
        with aws_errors("eks:ListNodegroups", self.cluster):
            pages = self._client("eks").get_paginator("list_nodegroups").paginate(clusterName=name)
            names = [group for page in pages for group in page["nodegroups"]]
        with aws_errors("eks:DescribeNodegroup", self.cluster):
            client = self._client("eks")
            groups = [client.describe_nodegroup(clusterName=name, nodegroupName=n)["nodegroup"] for n in names]
        machines = [(group, self._machine_of(group)) for group in groups]
        pools = [self._pool(group, machine) for group, machine in machines if machine]
        return tuple(pool for pool in pools if pool.gpus)

    def _machine_of(self, group: Any) -> str | None:
        """The instance type; a group on a Capacity Block has it in its launch template alone."""
        if group.get("instanceTypes"):
            return str(group["instanceTypes"][0])
        if not (template := group.get("launchTemplate")):
            return None
        with aws_errors("ec2:DescribeLaunchTemplateVersions", self.cluster):
            response = self._client("ec2").describe_launch_template_versions(
                LaunchTemplateId=template["id"], Versions=[template["version"]]
            )
        machine = response["LaunchTemplateVersions"][0]["LaunchTemplateData"].get("InstanceType")
        return str(machine) if machine else None

    def _pool(self, group: Any, machine: str) -> Pool:
        scaling = group["scalingConfig"]
        gpus = sum(gpu["Count"] for gpu in self._machine(machine).get("GpuInfo", {}).get("Gpus", []))
        return Pool(
            name=group["nodegroupName"],
            machine=machine,
            gpus=gpus,
            size=scaling["desiredSize"],
            minimum=scaling["minSize"],
            maximum=scaling["maxSize"],
            zones=self._zones(group.get("subnets") or []),
            spot=group.get("capacityType") == "SPOT",
        )

    def _machine(self, name: str) -> Any:
        with aws_errors("ec2:DescribeInstanceTypes", self.cluster):
            return self._client("ec2").describe_instance_types(InstanceTypes=[name])["InstanceTypes"][0]

    def _zones(self, subnets: list[str]) -> tuple[str, ...]:
        """Of the pool's subnets; none when they may not be read, which then shows as unchecked."""
        response = self._optional("ec2", "describe_subnets", SubnetIds=subnets) if subnets else None
        return tuple(sorted({net["AvailabilityZone"] for net in response["Subnets"]})) if response else ()

    def _optional(self, service: str, call: str, **arguments: Any) -> Any:
        """A look-up whose failure is an unchecked fact, not an error: many accounts do not grant these calls."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return getattr(self._client(service), call)(**arguments)
        except (ClientError, BotoCoreError):
            return None

    def limits(self, pool: Pool) -> PoolLimits:
        offers = self._optional(
            "ec2",
            "describe_instance_type_offerings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": [pool.machine]}],
        )
        offering = {offer["Location"] for offer in offers["InstanceTypeOfferings"]} if offers and pool.zones else None
        kind = "spot" if pool.spot else "on-demand"
        quota = used = None
        family = pool.machine.split(".")[0]
        if family.startswith(("g", "vt")):
            code = QUOTA_CODES[pool.spot]
            answer = self._optional("service-quotas", "get_service_quota", ServiceCode="ec2", QuotaCode=code)
            quota = answer["Quota"]["Value"] if answer else None
            used = self._used_vcpus(pool.spot)
        return PoolLimits(
            zones_offering=tuple(zone for zone in pool.zones if zone in offering) if offering is not None else None,
            quota_name=f"EC2 {kind} G and VT vCPU quota in {self.cluster.location}",
            quota_limit=quota,
            quota_used=used,
            quota_per_node=self._machine(pool.machine)["VCpuInfo"]["DefaultVCpus"],
        )

    def _used_vcpus(self, spot: bool) -> float | None:
        filters = [
            {"Name": "instance-type", "Values": ["g*", "vt*"]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            pages = list(self._client("ec2").get_paginator("describe_instances").paginate(Filters=filters))
        except (ClientError, BotoCoreError):
            return None
        instances = (i for page in pages for reservation in page["Reservations"] for i in reservation["Instances"])
        cpus = [i.get("CpuOptions") or {} for i in instances if (i.get("InstanceLifecycle") == "spot") == spot]
        return float(sum(cpu.get("CoreCount", 0) * cpu.get("ThreadsPerCore", 1) for cpu in cpus))
