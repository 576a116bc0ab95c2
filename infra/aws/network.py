"""A VPC for one cluster: private subnets for nodes, one way out.

Nodes never have public addresses. With ``nat`` one gateway serves all zones (a zone's failure costs
downloads, not serving); with ``endpoints`` there is no internet, AWS services are reached inside the VPC
and images come from ECR.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from constructs import Construct

from infra.aws import policies
from infra.builder import Element, data, resource

# Services that nodes, add-ons and the autoscaler call. `eks-auth` is Pod Identity's; without `ec2` the VPC CNI
# cannot attach addresses.
ENDPOINTS = (
    "ec2",
    "ecr.api",
    "ecr.dkr",
    "sts",
    "eks",
    "eks-auth",
    "logs",
    "autoscaling",
    "elasticloadbalancing",
    "elasticfilesystem",
    "kms",
)


@dataclass(frozen=True)
class NetworkPlan:
    """Settings of a network. ``zones``: each zone's place among the blocks that the network is cut into, 0 to 6.
    ``fixed``: two of them, for what cannot move to another zone: the control plane, the NAT gateway, system nodes.
    """

    name: str
    account: str
    region: str
    cidr: str
    zones: Mapping[str, int]
    fixed: Sequence[str]
    egress: str
    flow_logs: bool
    log_days: int


class Network(Construct):
    """``subnets`` maps a zone to its private subnet. Nodes wait for ``ready``: one that boots before its way out is
    there joins no cluster, and on destroy the way out must outlive it. ``fixed``: the subnets that never change.
    """

    def __init__(self, scope: Construct, plan: NetworkPlan, key: Element) -> None:
        super().__init__(scope, "network")
        self.plan = plan
        self.ready: list[Element] = []
        self.vpc = resource(
            self,
            "aws_vpc",
            "main",
            cidr_block=plan.cidr,
            enable_dns_hostnames=True,
            enable_dns_support=True,
            tags=self.tag("vpc"),
        )
        # The default group allows everything among its members; emptied, nothing can lean on it by accident.
        resource(
            self,
            "aws_default_security_group",
            "default",
            vpc_id=self.vpc["id"],
            tags=self.tag("unused"),
        )
        blocks = list(ipaddress.IPv4Network(plan.cidr).subnets(new_prefix=19))
        self.subnets = {
            zone: self.subnet(
                f"private_{zone[-1]}",
                zone,
                str(blocks[place]),
                {"kubernetes.io/role/internal-elb": "1"},
            )
            for zone, place in plan.zones.items()
        }
        self.fixed = [self.subnets[zone] for zone in plan.fixed]
        # Public subnets are cut from the last /19, which the at most seven zones before it never reach.
        self.public_blocks = [str(block) for block in blocks[-1].subnets(new_prefix=24)]
        self.routes = resource(
            self, "aws_route_table", "private", vpc_id=self.vpc["id"], tags=self.tag("private")
        )
        for subnet in self.subnets.values():
            self.associate(subnet, self.routes)
        self.gateway_endpoint()
        if plan.egress == "nat":
            self.nat()
        else:
            self.interface_endpoints()
        if plan.flow_logs:
            self.flow_logs(key)

    def tag(self, what: str) -> dict[str, str]:
        return {"Name": f"{self.plan.name}-{what}"}

    def subnet(self, name: str, zone: str, block: str, tags: dict[str, str]) -> Element:
        return resource(
            self,
            "aws_subnet",
            name,
            vpc_id=self.vpc["id"],
            availability_zone=zone,
            cidr_block=block,
            map_public_ip_on_launch=False,
            tags={**self.tag(name.replace("_", "-")), **tags},
        )

    def associate(self, subnet: Element, table: Element) -> None:
        made = resource(
            self,
            "aws_route_table_association",
            subnet.name,
            subnet_id=subnet["id"],
            route_table_id=table["id"],
        )
        self.ready.append(made)

    def nat(self) -> None:
        internet = resource(
            self, "aws_internet_gateway", "main", vpc_id=self.vpc["id"], tags=self.tag("internet")
        )
        table = resource(
            self, "aws_route_table", "public", vpc_id=self.vpc["id"], tags=self.tag("public")
        )
        route = resource(
            self,
            "aws_route",
            "internet",
            route_table_id=table["id"],
            destination_cidr_block="0.0.0.0/0",
            gateway_id=internet["id"],
        )
        self.ready.append(route)
        public = {}
        for zone, place in self.plan.zones.items():
            # Load balancers of services that face the internet need one public subnet a zone; one has the NAT.
            public[zone] = self.subnet(
                f"public_{zone[-1]}",
                zone,
                self.public_blocks[place],
                {"kubernetes.io/role/elb": "1"},
            )
            self.associate(public[zone], table)
        address = resource(self, "aws_eip", "nat", domain="vpc", tags=self.tag("nat"))
        gateway = resource(
            self,
            "aws_nat_gateway",
            "main",
            allocation_id=address["id"],
            subnet_id=public[self.plan.fixed[0]]["id"],
            tags=self.tag("nat"),
            depends_on=[internet],
        )
        route = resource(
            self,
            "aws_route",
            "nat",
            route_table_id=self.routes["id"],
            destination_cidr_block="0.0.0.0/0",
            nat_gateway_id=gateway["id"],
        )
        self.ready.append(route)

    def gateway_endpoint(self) -> None:
        """Image layers come from S3; this path costs nothing and does not cross the NAT."""
        service = f"com.amazonaws.{self.plan.region}.s3"
        made = resource(
            self,
            "aws_vpc_endpoint",
            "s3",
            vpc_id=self.vpc["id"],
            service_name=service,
            vpc_endpoint_type="Gateway",
            route_table_ids=[self.routes["id"]],
            tags=self.tag("s3"),
        )
        self.ready.append(made)

    def interface_endpoints(self) -> None:
        group = resource(
            self,
            "aws_security_group",
            "endpoints",
            name=f"{self.plan.name}-endpoints",
            description="AWS APIs from inside the VPC",
            vpc_id=self.vpc["id"],
            tags=self.tag("endpoints"),
        )
        rule = resource(
            self,
            "aws_vpc_security_group_ingress_rule",
            "endpoints",
            security_group_id=group["id"],
            description="HTTPS from the VPC",
            cidr_ipv4=self.plan.cidr,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
        )
        self.ready.append(rule)
        for service in ENDPOINTS:
            made = resource(
                self,
                "aws_vpc_endpoint",
                service.replace(".", "_").replace("-", "_"),
                vpc_id=self.vpc["id"],
                service_name=f"com.amazonaws.{self.plan.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=[subnet["id"] for subnet in self.subnets.values()],
                security_group_ids=[group["id"]],
                tags=self.tag(service.replace(".", "-")),
            )
            self.ready.append(made)

    def flow_logs(self, key: Element) -> None:
        group = resource(
            self,
            "aws_cloudwatch_log_group",
            "flow",
            name=flow_log_group(self.plan.name),
            retention_in_days=self.plan.log_days,
            kms_key_id=key["arn"],
            tags=self.tag("flow"),
        )
        role = resource(
            self,
            "aws_iam_role",
            "flow_logs",
            name=f"{self.plan.name}-flow-logs",
            assume_role_policy=policies.trust(
                "vpc-flow-logs.amazonaws.com", account=self.plan.account
            ),
            tags=self.tag("flow"),
        )
        resource(
            self,
            "aws_iam_role_policy",
            "flow_logs",
            name="write",
            role=role["id"],
            policy=policies.written("write_logs", group=group["arn"]),
        )
        resource(
            self,
            "aws_flow_log",
            "main",
            vpc_id=self.vpc["id"],
            traffic_type="ALL",
            log_destination=group["arn"],
            iam_role_arn=role["arn"],
            tags=self.tag("flow"),
        )


class ExistingNetwork(Construct):
    """A network that somebody else made, whose private subnets have a way out; the same face as :class:`Network`."""

    def __init__(self, scope: Construct, vpc: str, subnets: Mapping[str, str]) -> None:
        super().__init__(scope, "network")
        self.ready: list[Element] = []
        self.vpc = data(self, "aws_vpc", "main", filter=by("vpc-id", vpc))
        self.subnets = {
            zone: data(self, "aws_subnet", f"private_{zone[-1]}", filter=by("subnet-id", id_))
            for zone, id_ in subnets.items()
        }
        self.fixed = list(self.subnets.values())[:2]


def by(name: str, value: str) -> list[dict[str, object]]:
    """A filter of a data source."""
    return [{"name": name, "values": [value]}]


def flow_log_group(cluster: str) -> str:
    return f"/aws/vpc/{cluster}"
