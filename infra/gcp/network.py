"""A VPC for one private GKE cluster: one subnet with ranges for pods and services, and NAT as the only
way out.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from constructs import Construct

from infra.builder import data, resource

PODS = "pods"
SERVICES = "services"


@dataclass(frozen=True)
class NetworkPlan:
    """Settings of a network. ``cidr`` is a /16 from which all ranges are cut."""

    name: str
    region: str
    cidr: str
    egress: str
    flow_logs: bool


@dataclass(frozen=True)
class Ranges:
    """Half for pods, the rest for nodes, services and the control plane; nothing overlaps."""

    pods: str
    nodes: str
    services: str
    control_plane: str

    @classmethod
    def cut(cls, cidr: str) -> Ranges:
        low, high = ipaddress.IPv4Network(cidr).subnets(prefixlen_diff=1)
        blocks = list(low.subnets(new_prefix=20))
        control = next(iter(blocks[2].subnets(new_prefix=28)))
        return cls(
            pods=str(high),
            nodes=str(blocks[0]),
            services=str(blocks[1]),
            control_plane=str(control),
        )


class ExistingNetwork(Construct):
    """A subnetwork that somebody else made; the same face as :class:`Network`. *ranges*: names of the secondary ranges
    of pods and services, and the control plane's block.
    """

    def __init__(
        self,
        scope: Construct,
        region: str,
        network: str,
        subnetwork: str,
        ranges: tuple[str, str, str],
    ) -> None:
        super().__init__(scope, "network")
        self.network = data(self, "google_compute_network", "main", name=network)
        self.subnet = data(
            self, "google_compute_subnetwork", "nodes", name=subnetwork, region=region
        )
        self.pods, self.services, self.control_plane = ranges


class Network(Construct):
    """``network`` and ``subnet`` are what the cluster is placed in; ``pods`` and ``services`` name its ranges."""

    def __init__(self, scope: Construct, plan: NetworkPlan) -> None:
        super().__init__(scope, "network")
        self.ranges = Ranges.cut(plan.cidr)
        self.pods, self.services, self.control_plane = PODS, SERVICES, self.ranges.control_plane
        self.network = resource(
            self, "google_compute_network", "main", name=plan.name, auto_create_subnetworks=False
        )
        log = {
            "aggregation_interval": "INTERVAL_10_MIN",
            "flow_sampling": 0.5,
            "metadata": "INCLUDE_ALL_METADATA",
        }
        self.subnet = resource(
            self,
            "google_compute_subnetwork",
            "nodes",
            name=f"{plan.name}-nodes",
            region=plan.region,
            network=self.network["id"],
            ip_cidr_range=self.ranges.nodes,
            # Google's registries and APIs are reached over this, not over NAT.
            private_ip_google_access=True,
            secondary_ip_range=[
                {"range_name": PODS, "ip_cidr_range": self.ranges.pods},
                {"range_name": SERVICES, "ip_cidr_range": self.ranges.services},
            ],
            log_config=log if plan.flow_logs else None,
        )
        if plan.egress == "nat":
            router = resource(
                self,
                "google_compute_router",
                "main",
                name=plan.name,
                region=plan.region,
                network=self.network["id"],
            )
            resource(
                self,
                "google_compute_router_nat",
                "main",
                name=plan.name,
                region=plan.region,
                router=router["name"],
                nat_ip_allocate_option="AUTO_ONLY",
                source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
                log_config={"enable": True, "filter": "ERRORS_ONLY"},
            )
