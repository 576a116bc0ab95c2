"""One environment as typed values: where state lives, which clusters exist in what shape, who pays, what
they serve.

Read from ``environments/<name>.yaml`` before any construct is made; every complaint names file, line and
field.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

from mpctl.artifacts import Service, read_service
from mpctl.fleet.node import Node, documents

LAYERS = ("cluster", "platform", "serving")
Layer = Literal["cluster", "platform", "serving"]
CIDR = r"\d+(\.\d+){3}/\d+"


@dataclass(frozen=True)
class Backend:
    """Where the state of every stack lives. S3 locks with a lock file of its own (Terraform 1.10 and
    later).
    """

    type: str
    bucket: str | None
    region: str | None
    prefix: str
    kms_key: str | None
    path: str


@dataclass(frozen=True)
class Network:
    """Addresses and the way out. ``endpoints`` gives EKS nodes no internet at all: images must be
    mirrored into ECR.
    """

    cidr: str
    egress: str
    zones: tuple[str, ...]
    flow_logs: bool


@dataclass(frozen=True)
class Access:
    """Who reaches the Kubernetes API. Without ``public_cidrs`` only the network itself does."""

    public_cidrs: tuple[str, ...]
    admins: tuple[str, ...]


@dataclass(frozen=True)
class Budget:
    """A monthly limit in US dollars and who hears of it."""

    monthly_usd: int
    emails: tuple[str, ...]
    billing_account: str | None


@dataclass(frozen=True)
class SystemPool:
    """Nodes for everything that needs no GPU."""

    eks_machine: str
    gke_machine: str
    minimum: int
    maximum: int


@dataclass(frozen=True)
class Settings:
    """Everything an environment decides."""

    name: str
    layers: tuple[Layer, ...]
    backend: Backend
    tags: Mapping[str, str]
    network: Network
    access: Access
    budget: Budget | None
    system: SystemPool
    versions: Mapping[str, str]
    extended_support: bool
    providers: Mapping[str, str]
    gcp_project: str | None
    capacity_type: str
    location_policy: str
    shared_models: bool
    autoscaler: str
    deletion_protection: bool
    log_days: int
    namespace: str
    pod_security: str
    secure_boot: bool
    services: tuple[Service, ...]
    credentials: str
    public_gateway: bool


def read_settings(text: str, file: str) -> Settings:
    """The settings in *text*."""
    found = list(documents(text, file))
    root = found[0] if found else next(documents("{}", file))
    kubernetes = root.node("kubernetes")
    gpu = root.node("gpu")
    serving = root.node("serving")
    gcp = root.node("gcp")
    settings = Settings(
        name=root.text("name", pattern=r"[a-z][a-z0-9-]{0,19}", what="a short lower-case name"),
        layers=layers(root),
        backend=backend(root.node("backend")),
        tags=root.mapping("tags", lambda inner, key: inner.text(key)),
        network=network(root.node("network")),
        access=access(root.node("access")),
        budget=budget(root.node("budget")) if root.has("budget") else None,
        system=system(root.node("system_pool")),
        versions=kubernetes.node("versions").mapping_of(("EKS", "GKE")),
        extended_support=kubernetes.value("extended_support", bool, False),
        providers=root.node("providers").mapping_of(("aws", "google", "helm", "kubernetes")),
        gcp_project=gcp.maybe("project"),
        capacity_type=gpu.choice("capacity_type", ("ON_DEMAND", "SPOT"), "ON_DEMAND"),
        location_policy=gpu.choice("location_policy", ("BALANCED", "ANY"), "ANY"),
        shared_models=serving.value("shared_models", bool, True),
        autoscaler=serving.choice("autoscaler", ("prometheus-adapter", "keda"), "prometheus-adapter"),
        deletion_protection=root.value("deletion_protection", bool, True),
        log_days=root.number("log_days", 365, low=1, high=3653),
        namespace=serving.text("namespace", "inference", pattern=r"[a-z][a-z0-9-]{0,62}", what="a namespace"),
        pod_security=serving.choice("pod_security", ("restricted", "baseline"), "restricted"),
        secure_boot=gpu.value("secure_boot", bool, True),
        services=tuple(read_service(node) for node in serving.nodes("services")),
        public_gateway=serving.value("public_gateway", bool, False),
        credentials=kubernetes.choice("credentials", ("token", "mpctl"), "token"),
    )
    for node in (kubernetes, gpu, serving, gcp, root):
        node.done()
    return settings


def layers(root: Node) -> tuple[Layer, ...]:
    wanted = root.texts("layers", ("cluster",))
    for layer in wanted:
        if layer not in LAYERS:
            raise root.error("layers", f"{layer!r} is not one of {', '.join(LAYERS)}")
    return cast(tuple[Layer, ...], wanted)


def backend(node: Node) -> Backend:
    kind = node.choice("type", ("local", "s3", "gcs"), "local")
    if kind != "local" and not node.has("bucket"):
        raise node.error("bucket", f"required for the {kind} backend")
    if kind == "s3" and not node.has("region"):
        raise node.error("region", "required for the s3 backend")
    result = Backend(
        type=kind,
        bucket=node.maybe("bucket"),
        region=node.maybe("region"),
        prefix=node.text("prefix", "mpctl"),
        kms_key=node.maybe("kms_key"),
        path=node.text("path", ".state"),
    )
    node.done()
    return result


def cidr(node: Node, name: str, value: str, widest: int) -> str:
    try:
        network_ = ipaddress.ip_network(value)
    except ValueError as error:
        raise node.error(name, f"{value!r} is not an address block: {error}") from error
    if network_.prefixlen < widest:
        raise node.error(name, f"{value} is wider than /{widest}")
    return value


def network(node: Node) -> Network:
    block = cidr(node, "cidr", node.text("cidr", "10.64.0.0/16"), 8)
    if ipaddress.ip_network(block).prefixlen != 16:
        raise node.error("cidr", f"{block} is not a /16: subnets, pods and services are cut from it")
    result = Network(
        cidr=block,
        egress=node.choice("egress", ("nat", "endpoints"), "nat"),
        zones=node.texts("zones"),
        flow_logs=node.value("flow_logs", bool, True),
    )
    node.done()
    return result


def access(node: Node) -> Access:
    blocks = tuple(cidr(node, "public_cidrs", block, 8) for block in node.texts("public_cidrs"))
    result = Access(blocks, node.texts("admins"))
    node.done()
    return result


def budget(node: Node) -> Budget:
    result = Budget(node.number("monthly_usd", low=1), node.texts("emails"), node.maybe("billing_account"))
    if not result.emails:
        raise node.error("emails", "a budget without an address tells nobody")
    node.done()
    return result


def system(node: Node) -> SystemPool:
    minimum = node.number("min", 2, low=1, high=100)
    maximum = node.number("max", 4, low=1, high=100)
    if maximum < minimum:
        raise node.error("max", f"{maximum} is below min {minimum}")
    result = SystemPool(
        node.text("eks_machine", "m7i.xlarge"), node.text("gke_machine", "e2-standard-4"), minimum, maximum
    )
    node.done()
    return result
