"""Requirements of a fleet on machines, checked against the machines' properties before anything is created.

A machine's name, its GPUs and their type, and the disk are only compared by the cloud half an hour into a deploy, or
never: a claim for eight GPUs on nodes with one stays pending for ever.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from infra.templates import entries
from mpctl.errors import InputError
from stacks.fleet import InferenceCluster, NodePool
from stacks.services.values import Service, end_s
from stacks.settings import Settings

FILE = Path(__file__).with_suffix(".yaml")
# Image of the engine (10 GB, twice while it is unpacked), the system's own and logs.
RESERVED_DISK_GB = 40
SMALLEST_GPU_DISK_GB = 60
DRIVER = "gpu.nvidia.com"
# Published by NVIDIA's DRA driver for a GPU (dra-driver-nvidia-gpu 0.4, cmd/gpu-kubelet-plugin/deviceinfo.go).
ATTRIBUTES = frozenset(
    {
        *(
            "type",
            "uuid",
            "productName",
            "brand",
            "architecture",
            "cudaComputeCapability",
            "driverVersion",
        ),
        *("cudaDriverVersion", "addressingMode"),
    }
)
CAPACITIES = frozenset({"memory"})
_RESERVATION = re.compile(r"cr-[0-9a-f]{8,17}")
_REFERENCE = re.compile(r"""device\.(attributes|capacity)\[(["'])([^"']+)\2\]\.(\w+)""")


@dataclass(frozen=True)
class Machine:
    """One machine type: ``vcpus`` count against the cloud's GPU quota on AWS, ``gpus`` of ``type`` are on each node.
    ``memory`` in GiB; ``disk``: the type of boot disk that the machine takes on Google Cloud.
    """

    name: str
    vcpus: int
    gpus: int
    type: str
    memory: int
    arch: str = "amd64"
    disk: str = "pd-balanced"


@cache
def machines() -> dict[str, dict[str, Machine]]:
    """Cloud -> machine type -> what it has."""
    rows = entries(FILE)
    return {
        cloud: {name: Machine(name, **row) for name, row in types.items()}
        for cloud, types in rows.items()
    }


def require_machines(cluster: InferenceCluster) -> None:
    """Refuse a pool whose machine does not exist, or has other GPUs than its class says.

    Raises:
        InputError: names file, line and field of the InferenceClass.
    """
    for pool in cluster.pools:
        require_machine(pool, cluster.provider)


def require_machine(pool: NodePool, provider: str) -> None:
    """The same for one pool."""
    hardware, field = pool.hardware, "instanceType" if provider == "EKS" else "machineType"
    known = machines()[provider]
    if hardware.machine not in known:
        near = difflib.get_close_matches(hardware.machine, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"add its row to stacks/{FILE.name}"
        raise hardware.place.error(f"{hardware.machine} is not a known GPU machine", field, hint)
    machine = known[hardware.machine]
    if machine.arch != "amd64":
        raise hardware.place.error(
            f"{machine.name} has {machine.arch} processors; node image and charts here are for amd64",
            field,
        )
    if same_type(hardware.accelerator) != same_type(machine.type):
        raise hardware.place.error(
            f"{machine.name} has {machine.type}, not {hardware.accelerator}",
            "accelerator.type",
            f"set {machine.type}",
        )
    if hardware.accelerator_count != machine.gpus:
        raise hardware.place.error(
            f"{machine.name} has {machine.gpus} GPUs, not {hardware.accelerator_count}",
            "accelerator.count",
            f"set count: {machine.gpus}, or another machine type",
        )
    if hardware.disk_gb < SMALLEST_GPU_DISK_GB:
        raise hardware.place.error(
            f"{hardware.disk_gb} GB do not hold the system and an engine's image",
            "diskSizeGb",
            f"set at least {SMALLEST_GPU_DISK_GB}",
        )


def same_type(name: str) -> str:
    """An accelerator's name as both clouds' names compare: ``nvidia-tesla-a100`` is ``nvidia-a100``."""
    return name.lower().replace("tesla-", "").removesuffix("-80gb").removesuffix("-141gb")


def require_capacity(settings: Settings, cluster: InferenceCluster) -> None:
    """Refuse reservations and flex-start that the cloud would refuse for a pool.

    Raises:
        InputError: names file, line and field of the pool.
    """
    for pool in cluster.pools:
        reservation, flex = settings.reservations.get(pool.name), pool.name in settings.flex_start
        if reservation and settings.capacity_type == "SPOT":
            raise pool.place.error(
                f"pool {pool.name} is spot, which uses no reservation", "gpu.reservations"
            )
        if reservation and pool.capacity_block:
            raise pool.place.error(
                f"pool {pool.name} has a Capacity Block already", "gpu.reservations"
            )
        if reservation and cluster.provider == "EKS" and not _RESERVATION.fullmatch(reservation):
            raise pool.place.error(
                f"{reservation} is no capacity reservation",
                "gpu.reservations",
                "such as cr-0a1b2c3d",
            )
        if flex and cluster.provider == "EKS":
            raise pool.place.error(
                "flex-start exists on GKE", "gpu.flex_start", "use a Capacity Block on EKS"
            )
        if flex and (reservation or settings.capacity_type == "SPOT"):
            raise pool.place.error(
                "flex-start goes with neither spot nor a reservation", "gpu.flex_start"
            )
        if flex and pool.minimum > 0:
            raise pool.place.error(
                f"pool {pool.name} keeps {pool.minimum} nodes, and flex-start nodes live seven days at most",
                "minNodeCount",
                "set minNodeCount: 0",
            )


def longest_drain_s(settings: Settings) -> int:
    """How long the slowest pod takes to end."""
    return max((end_s(service) for service in settings.services), default=0)


def limited_services(settings: Settings, cluster: InferenceCluster) -> tuple[Service, ...]:
    """The services with all limits that their environment leaves open, see :func:`limited`.

    Raises:
        InputError: names file, line and field of a service that no node can run, or whose ``min`` pods find no GPU
            beside those of the services before it and the spare nodes.
    """
    gpus = gpus_of(cluster)
    made = []
    taken = settings.spare_nodes * min(p.hardware.accelerator_count for p in cluster.pools)
    for service in settings.services:
        require_selectors(service)
        require_fits(service, cluster)
        made.append(limited(service, cluster, len(settings.services)))
        taken += service.autoscaling.minimum * service.gpus
        if taken > gpus:
            raise service.place.error(
                f"the services up to {service.name} and {settings.spare_nodes} spare nodes keep {taken} GPUs at least, "
                f"and the pools of {cluster.name} have {gpus}",
                "autoscaling.min",
                "lower min or gpu.spare_nodes, or raise maxNodeCount in the fleet manifest",
            )
    return tuple(made)


def gpus_of(cluster: InferenceCluster) -> int:
    """GPUs of a cluster at full size."""
    return sum(pool.maximum * pool.hardware.accelerator_count for pool in cluster.pools)


def require_fits(service: Service, cluster: InferenceCluster) -> None:
    """GPUs of one node and, where models are downloaded onto it, its disk."""
    most = max(pool.hardware.accelerator_count for pool in cluster.pools)
    if service.gpus > most:
        raise service.place.error(
            f"{service.name} asks for {service.gpus} GPUs, and nodes of {cluster.name} have at most {most}",
            "gpus",
        )
    if service.staging != "storageUris":
        return
    wanted = sum(artifact.size_gib for artifact in service.artifacts) + RESERVED_DISK_GB
    disk = max(
        pool.hardware.disk_gb
        for pool in cluster.pools
        if pool.hardware.accelerator_count >= service.gpus
    )
    if wanted > disk:
        raise service.place.error(
            f"{service.name} downloads {wanted - RESERVED_DISK_GB} GiB onto nodes with a disk of {disk} GB, of which "
            f"{RESERVED_DISK_GB} GB are for the system and the engine's image",
            "size_gib",
            f"set diskSizeGb to at least {wanted} in the fleet manifest, or staging: pvc",
        )


def limited(service: Service, cluster: InferenceCluster, services: int) -> Service:
    """The service with the most pods that its autoscaler may order and the limits of its engine: as set, else its share
    of the pods that the pools have GPUs for, all *services* alike, and three quarters of its GPUs' share of the
    smallest node that may run it; the rest is the node's own and of what else runs there.

    Raises:
        InputError: a limit is more than the pools have GPUs for.
    """
    room = sum(
        pool.maximum * (pool.hardware.accelerator_count // service.gpus) for pool in cluster.pools
    )
    scaling = service.autoscaling
    for name, wanted in (("max", scaling.maximum), ("min", scaling.minimum)):
        if wanted is not None and wanted > room:
            raise service.place.error(
                f"{service.name} may have {wanted} pods, and the pools of {cluster.name} have GPUs for {room}",
                f"autoscaling.{name}",
                f"set at most {room}, or raise maxNodeCount in the fleet manifest",
            )
    shares = [
        (node.vcpus * service.gpus // node.gpus, node.memory * service.gpus // node.gpus)
        for node in (machines()[cluster.provider][pool.hardware.machine] for pool in cluster.pools)
        if node.gpus >= service.gpus
    ]
    share = max(scaling.minimum, room // services)
    return replace(
        service,
        autoscaling=replace(scaling, maximum=scaling.maximum or share),
        cpus=service.cpus or max(1, min(cpus for cpus, _ in shares) * 3 // 4),
        memory_gib=service.memory_gib or max(1, min(memory for _, memory in shares) * 3 // 4),
    )


def require_selectors(service: Service) -> None:
    """The names in CEL selectors; the API server compiles them only when a pod's claim is made.

    Raises:
        InputError: a selector reads a driver, attribute or capacity that no GPU publishes.
    """
    for selector in service.selectors:
        references = list(_REFERENCE.finditer(selector))
        if not references and "device.driver" not in selector:
            raise unusable(service, selector, "it reads nothing of a device")
        for kind, _, driver, name in (match.groups() for match in references):
            known = ATTRIBUTES if kind == "attributes" else CAPACITIES
            if driver == DRIVER and name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise unusable(
                    service,
                    selector,
                    f"{DRIVER} publishes no {kind} {name}"
                    + (f", did you mean {near[0]}?" if near else ""),
                )
        if selector.count("(") != selector.count(")") or selector.count("[") != selector.count("]"):
            raise unusable(service, selector, "its brackets do not match")


def unusable(service: Service, selector: str, why: str) -> InputError:
    """An error about one selector of a service."""
    return service.place.error(f"the selector {selector} cannot match: {why}", "selectors")
