"""One environment as typed values: where state lives, which clusters exist in what shape, who pays, what
they serve.

Read from ``environments/<name>.yaml`` before any construct is made; every complaint names file, line and
field.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from mpctl.yaml_lines import FilePosition, Node, documents
from stacks.isolation import PLATFORM
from stacks.services import Service, read_service
from stacks.settings.existing import Existing, read_existing
from stacks.settings.gateway import Gateway, read_gateway
from stacks.settings.maintenance import Maintenance, read_maintenance
from stacks.settings.mirror import Mirror, read_mirror
from stacks.settings.monitoring import Monitoring, read_monitoring

LAYERS = ("cluster", "platform", "serving")
Layer = Literal["cluster", "platform", "serving"]
CIDR = r"\d+(\.\d+){3}/\d+"
# RFC 5737: blocks that belong to examples and to nobody's network.
DOCUMENTATION = tuple(
    ipaddress.ip_network(block) for block in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")
)
# Placeholders of the shipped files and the clouds' own documentation for a real name; deployed as they are,
# they fail late or let a stranger in.
PLACEHOLDERS = (
    (
        re.compile(r"example-terraform-state|my-terraform-state"),
        "the bucket that you made for the state",
    ),
    (
        re.compile(r"arn:aws[a-z-]*:iam::(111122223333|444455556666|123456789012):.*"),
        "a role of your own account",
    ),
    (
        re.compile(r"example-inference-prod|my-gcp-project"),
        "your Google project, or MPCTL_GCP_PROJECT alone",
    ),
    (re.compile(r".*@example\.(com|org|net)"), "an address that somebody reads"),
)
# Of KServe's storage initializer. 14 GB of weights took 2 GiB, 72B in 4 bits 16 GiB (kserve #5162).
DOWNLOADER_MEMORY = "6Gi"
# Retention periods that CloudWatch accepts (PutRetentionPolicy, retentionInDays).
LOG_DAYS = (
    1,
    3,
    5,
    7,
    14,
    30,
    60,
    90,
    120,
    150,
    180,
    365,
    400,
    545,
    731,
    1096,
    1827,
    2192,
    2557,
    2922,
    3288,
    3653,
)
# Namespaces of the platform layer: isolation of the serving namespace would cut their components off.
PLATFORM_NAMESPACES = {"default", "kube-system", "kube-public", "kube-node-lease", *PLATFORM}
RELEASE = r"\d+\.\d+\.\d+-\d{8}"  # of an EKS node image (EKS user guide, "AMI release versions")
VARIABLE = re.compile(r"\$\{([A-Z_]+)\}")
# Absolute, because an alert is read in a chat, and nobody's: the name says which setting is missing.
RUNBOOKS = "https://set-monitoring-runbooks.invalid"


@dataclass(frozen=True)
class Backend:
    """The backend of every stack's state. S3 locks with a lock file of its own (Terraform 1.10 and
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
    mirrored into ECR. ``blocks``: places of zones among the blocks of an EKS network where they do not follow the
    letter.
    """

    cidr: str
    egress: str
    zones: tuple[str, ...]
    blocks: Mapping[str, int]
    flow_logs: bool
    place: FilePosition


@dataclass(frozen=True)
class Access:
    """Access to the Kubernetes API. Without ``public_cidrs`` only the network itself does, and
    ``private_cidrs``: addresses that come in over a VPN, a peering or a bastion. ``dns_endpoint``: on GKE also whom IAM
    lets in, from anywhere.
    """

    public_cidrs: tuple[str, ...]
    private_cidrs: tuple[str, ...]
    dns_endpoint: bool
    admins: tuple[str, ...]
    viewers: tuple[str, ...]


@dataclass(frozen=True)
class Budget:
    """A monthly limit with its recipients: US dollars on AWS, the billing account's currency on Google Cloud."""

    monthly: int
    emails: tuple[str, ...]
    billing_account: str | None
    place: FilePosition


@dataclass(frozen=True)
class DiskKeys:
    """Keys for disks of nodes and volumes; None: the cloud's own. ``eks_models``: of buckets that models come from."""

    eks: str | None = None
    gke: str | None = None
    eks_models: tuple[str, ...] = ()


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
    surge: bool
    reservations: Mapping[str, str]
    flex_start: tuple[str, ...]
    maintenance: Maintenance
    location_policy: str
    shared_models: bool
    deletion_protection: bool
    log_days: int
    namespace: str
    pod_security: str
    secure_boot: bool
    gpu_driver: str | None
    eks_image: str | None
    spare_nodes: int
    image_streaming: bool
    downloader_memory: str
    services: tuple[Service, ...]
    credentials: str
    gateway: Gateway
    disk_keys: DiskKeys
    mirror: Mirror
    runbooks: str
    monitoring: Monitoring
    existing: Mapping[str, Existing]


def read_settings(text: str, file: str, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings in *text*; *environ* fills what the file leaves to a variable."""
    nodes = list(documents(text, file))
    root = nodes[0] if nodes else next(documents("{}", file))
    for node, name, value in leaves(root):
        for pattern, instead in PLACEHOLDERS:
            if pattern.fullmatch(value):
                raise node.error(name, f"{value} is an example", f"set {instead}")
    kubernetes = root.node("kubernetes")
    gpu = root.node("gpu")
    serving = root.node("serving")
    gcp = root.node("gcp")
    monitoring = root.node("monitoring")
    settings = Settings(
        name=root.text("name", pattern=r"[a-z][a-z0-9-]{0,19}", what="a short lower-case name"),
        layers=layers(root),
        backend=backend(root.node("backend")),
        tags=root.mapping("tags", lambda inner, key: inner.text(key)),
        network=network(root.node("network")),
        access=access(root.node("access"), environ),
        budget=budget(root.node("budget")) if root.has("budget") else None,
        system=system(root.node("system_pool")),
        versions=kubernetes.node("versions").mapping_of(("EKS", "GKE")),
        extended_support=kubernetes.value("extended_support", bool, False),
        providers=root.node("providers").mapping_of(("aws", "google", "helm", "kubernetes")),
        gcp_project=gcp.maybe("project"),
        capacity_type=gpu.choice("capacity_type", ("ON_DEMAND", "SPOT"), "ON_DEMAND"),
        surge=gpu.value("surge", bool, True),
        reservations=gpu.mapping(
            "reservations",
            lambda inner, key: inner.text(key, pattern=r"[a-z][a-z0-9-]{1,62}", what="a name"),
        ),
        flex_start=gpu.texts("flex_start"),
        maintenance=read_maintenance(root.node("maintenance")),
        location_policy=gpu.choice("location_policy", ("BALANCED", "ANY"), "ANY"),
        shared_models=serving.value("shared_models", bool, True),
        deletion_protection=root.value("deletion_protection", bool, True),
        log_days=root.number("log_days", 365, low=1, high=3653),
        namespace=serving.text(
            "namespace", "inference", pattern=r"[a-z][a-z0-9-]{0,62}", what="a namespace"
        ),
        pod_security=serving.choice("pod_security", ("restricted", "baseline"), "restricted"),
        secure_boot=gpu.value("secure_boot", bool, True),
        gpu_driver=gpu.maybe("gke_driver"),
        spare_nodes=gpu.number("spare_nodes", 0, low=0, high=100),
        image_streaming=gpu.value("image_streaming", bool, False),
        eks_image=gpu.maybe(
            "eks_image", pattern=RELEASE, what="an image release such as 1.36.2-20261023"
        ),
        downloader_memory=serving.text(
            "downloader_memory",
            DOWNLOADER_MEMORY,
            pattern=r"[1-9]\d*(Mi|Gi)",
            what="an amount of memory such as 6Gi",
        ),
        services=tuple(read_service(node) for node in serving.nodes("services")),
        gateway=read_gateway(
            serving.node("gateway"), public=serving.value("public_gateway", bool, False)
        ),
        disk_keys=disk_keys(root.node("encryption")),
        mirror=read_mirror(root.node("mirror")),
        credentials=kubernetes.choice("credentials", ("token", "mpctl"), "mpctl"),
        runbooks=monitoring.text(
            "runbooks",
            RUNBOOKS,
            pattern=r"https?://\S+[^/\s]",
            what="an address without / at its end",
        ),
        monitoring=read_monitoring(monitoring),
        existing=root.mapping(
            "existing", lambda inner, cluster: read_existing(inner.node(cluster))
        ),
    )
    if settings.namespace in PLATFORM_NAMESPACES:
        raise serving.error(
            "namespace",
            f"{settings.namespace} belongs to the platform; services there would be cut off together with it",
            "set a namespace of its own, such as inference",
        )
    if settings.log_days not in LOG_DAYS:
        nearest = min(LOG_DAYS, key=lambda days: abs(days - settings.log_days))
        raise root.error(
            "log_days",
            f"CloudWatch keeps logs for certain numbers of days, {settings.log_days} is none",
            f"set log_days: {nearest}",
        )
    if settings.pod_security == "restricted":
        for node in serving.nodes("services"):
            refuse_modelcar(node)
    for node in (kubernetes, gpu, serving, gcp, monitoring, root):
        node.done()
    return settings


def disk_keys(node: Node) -> DiskKeys:
    """``encryption``: keys that exist already."""
    eks = r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/\S+"
    gke = r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+"
    keys = DiskKeys(
        node.maybe("eks_disk_key", pattern=eks, what="the ARN of a KMS key"),
        node.maybe("gke_disk_key", pattern=gke, what="projects/.../cryptoKeys/NAME"),
        node.texts("eks_model_keys"),
    )
    for key in keys.eks_models:
        if not re.fullmatch(eks, key):
            raise node.error("eks_model_keys", f"{key} is not the ARN of a KMS key")
    node.done()
    return keys


def refuse_modelcar(service: Node) -> None:
    """KServe gives Modelcar containers no security context but a user (0.20, pkg/utils/storage.go), and nothing of ours
    can add one; the restricted standard then refuses the pod, long after the service was accepted.
    """
    for role in ("target", "draft"):
        if service.has(role) and service.node(role).text("uri").startswith("oci://"):
            raise service.node(role).error(
                "uri",
                "KServe's Modelcar containers (oci://) do not fit serving.pod_security: restricted",
                "use oci+native://, which adds no container, or set serving.pod_security: baseline",
            )


def leaves(node: Node) -> Iterator[tuple[Node, str, str]]:
    """Every text in *node* and below, with the mapping and the name it stands under."""
    for key, value in node.body.items():
        name = str(key)
        if isinstance(value, str):
            yield node, name, value
        elif isinstance(value, Mapping):
            yield from leaves(Node(node.body[key], node.file, node.line_of(name), node.field(name)))
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, str):
                    yield node, name, item


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
    if any(network_.version == 4 and network_.overlaps(block) for block in DOCUMENTATION):
        raise node.error(
            name,
            f"{value} is a block for documentation (RFC 5737), nobody's address",
            "set the addresses you deploy from, as CIDR blocks",
        )
    return value


def filled(node: Node, name: str, environ: Mapping[str, str]) -> Iterator[str]:
    """The texts under *name*; one that is ``${VARIABLE}`` stands for the variable's own list, with commas."""
    for text in node.texts(name):
        if not (match := VARIABLE.fullmatch(text)):
            yield text
            continue
        given = [part.strip() for part in environ.get(match[1], "").split(",") if part.strip()]
        if not given:
            raise node.error(
                name,
                f"{match[1]} is not set",
                f"export {match[1]}=<the addresses you deploy from, as CIDR blocks with commas>, or write them here",
            )
        yield from given


def network(node: Node) -> Network:
    block = cidr(node, "cidr", node.text("cidr", "10.64.0.0/16"), 8)
    if ipaddress.ip_network(block).prefixlen != 16:
        raise node.error(
            "cidr", f"{block} is not a /16: subnets, pods and services are cut from it"
        )
    result = Network(
        cidr=block,
        egress=node.choice("egress", ("nat", "endpoints"), "nat"),
        zones=node.texts("zones"),
        blocks=node.mapping("blocks", lambda inner, zone: inner.number(zone, low=0, high=6)),
        flow_logs=node.value("flow_logs", bool, True),
        place=FilePosition(node.file, node.line_of("egress")),
    )
    node.done()
    return result


def access(node: Node, environ: Mapping[str, str]) -> Access:
    public, private = (
        tuple(cidr(node, name, block, 8) for block in filled(node, name, environ))
        for name in ("public_cidrs", "private_cidrs")
    )
    for block in private:
        if ipaddress.ip_network(block).version != 4:
            raise node.error(
                "private_cidrs", f"{block} is not IPv4, which the private endpoint listens on"
            )
        if ipaddress.ip_network(block).is_global:
            raise node.error(
                "private_cidrs", f"{block} is a public block; it belongs to public_cidrs"
            )
    by_name = node.value("dns_endpoint", bool, False)
    result = Access(public, private, by_name, node.texts("admins"), node.texts("viewers"))
    for principal in set(result.admins) & set(result.viewers):
        raise node.error(
            "viewers", f"{principal} is among the admins: EKS takes one entry for a principal"
        )
    node.done()
    return result


def budget(node: Node) -> Budget:
    result = Budget(
        node.number("monthly", low=1),
        node.texts("emails"),
        node.maybe("billing_account"),
        node.place,
    )
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
        node.text("eks_machine", "m7i.xlarge"),
        node.text("gke_machine", "e2-standard-4"),
        minimum,
        maximum,
    )
    node.done()
    return result
