"""What exists already and is used as it is: a network, or a whole cluster that gets the platform and serving layers."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from mpctl.yaml_lines import FilePosition, Node

CIDR_WORDS = "an address block such as 10.0.0.0/16"


@dataclass(frozen=True)
class AwsNetwork:
    """A VPC with its private subnets by zone; the first two are those of the control plane and the system nodes."""

    vpc: str
    subnets: Mapping[str, str]


@dataclass(frozen=True)
class GoogleNetwork:
    """A subnetwork with its secondary ranges, and a free block (/28) for the control plane."""

    network: str
    subnetwork: str
    pods: str
    services: str
    control_plane: str


@dataclass(frozen=True)
class Existing:
    """``cluster``: the name of a cluster, else its network is used. ``cidr``: addresses of the network, from which
    control plane and nodes call. ``model_volume``: an EFS file system (EKS) or the network (GKE) for shared models.
    """

    place: FilePosition
    cidr: str
    cluster: str | None = None
    model_volume: str | None = None
    aws: AwsNetwork | None = None
    google: GoogleNetwork | None = None


def read_existing(node: Node) -> Existing:
    """One entry of ``existing``.

    Raises:
        InputError: names file, line and field; it is neither a cluster nor a network.
    """
    kinds = [name for name in ("cluster", "vpc", "network") if node.has(name)]
    if len(kinds) != 1:
        raise node.error(
            "cluster", "exactly one of cluster, vpc (EKS) and network (GKE) must be set"
        )
    place, cidr = node.place, block(node, "cidr")
    if kinds == ["cluster"]:
        made = Existing(
            place, cidr, cluster=node.text("cluster"), model_volume=node.maybe("model_volume")
        )
    elif kinds == ["vpc"]:
        subnet = r"subnet-[0-9a-f]{8,17}"
        subnets = node.mapping(
            "subnets", lambda inner, zone: inner.text(zone, pattern=subnet, what="a subnet's id")
        )
        if len(subnets) < 2:
            raise node.error(
                "subnets",
                "EKS needs private subnets in two zones",
                "set subnets: {ZONE: subnet-...}",
            )
        vpc = node.text("vpc", pattern=r"vpc-[0-9a-f]{8,17}", what="a VPC's id")
        made = Existing(place, cidr, aws=AwsNetwork(vpc, subnets))
    else:
        network, subnetwork, pods, services = (
            node.text(n) for n in ("network", "subnetwork", "pods", "services")
        )
        google = GoogleNetwork(network, subnetwork, pods, services, block(node, "control_plane"))
        if not google.control_plane.endswith("/28"):
            raise node.error("control_plane", f"{google.control_plane} is not a /28")
        made = Existing(place, cidr, google=google)
    node.done()
    return made


def block(node: Node, name: str) -> str:
    """An IPv4 block."""
    text = node.text(name, pattern=r"\d+(\.\d+){3}/\d+", what=CIDR_WORDS)
    try:
        return str(ipaddress.IPv4Network(text))
    except ValueError as error:
        raise node.error(name, f"{text!r} is not {CIDR_WORDS}: {error}") from error
