"""Free GPUs of nodes, and whether more pods fit on them. Kubernetes objects come as plain dicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mpctl.json_fields import labels_of, list_at, mapping_at, name_of, value_at
from mpctl.json_types import JsonView

DRIVER = "gpu.nvidia.com"
GPU_LABEL = "nvidia.com/gpu.present"
EXTENDED = "nvidia.com/gpu"


@dataclass(frozen=True)
class Need:
    """``replicas`` more pods, each with ``gpus`` devices of one node. ``waiting``: as many that others want first."""

    replicas: int
    gpus: int = 1
    waiting: int = 0


@dataclass(frozen=True)
class GpuNode:
    """``excluded``: why no pod is scheduled there now; empty for a node that takes pods."""

    name: str
    excluded: str
    published: bool  # has a ResourceSlice of the GPU driver
    devices: int
    taken: int

    @property
    def free(self) -> int:
        return 0 if self.excluded else max(0, self.devices - self.taken)


def objects(document: JsonView) -> Iterator[JsonView]:
    """The objects of a document: a List's items, or itself."""
    items = document.get("items")
    yield from items if isinstance(items, list) else [document]


def gpu_nodes(documents: Iterable[JsonView]) -> tuple[GpuNode, ...]:
    """The GPU nodes among ``documents``, with devices from ResourceSlices and allocations from ResourceClaims."""
    cluster_objects = [item for document in documents for item in objects(document)]
    slices = [
        item
        for item in cluster_objects
        if item.get("kind") == "ResourceSlice" and value_at(item, "spec", "driver") == DRIVER
    ]
    pools = {
        value_at(item, "spec", "pool", "name"): value_at(item, "spec", "nodeName")
        for item in slices
        if value_at(item, "spec", "pool")
    }
    devices: dict[str, set[str]] = {}
    for item in slices:
        names = {device["name"] for device in list_at(item, "spec", "devices")}
        devices.setdefault(str(value_at(item, "spec", "nodeName")), set()).update(names)
    taken: dict[str, set[str]] = {}
    for claim in (item for item in cluster_objects if item.get("kind") == "ResourceClaim"):
        for result in _taken(claim):
            taken.setdefault(str(pools.get(result.get("pool"))), set()).add(result["device"])
    nodes = []
    for item in (item for item in cluster_objects if item.get("kind") == "Node"):
        name, labels = name_of(item), labels_of(item)
        if labels.get(GPU_LABEL) != "true" and name not in devices:
            continue
        published = len(devices.get(name, ()))
        nodes.append(
            GpuNode(name, excluded(item), name in devices, published, len(taken.get(name, ())))
        )
    return tuple(sorted(nodes, key=lambda node: node.name))


def excluded(node: JsonView) -> str:
    """Why no pod is scheduled on a node, whatever the pod; empty where pods are."""
    conditions = list_at(node, "status", "conditions")
    if not any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
        return "not ready"
    return "cordoned" if value_at(node, "spec", "unschedulable") else ""


def assess_fit(need: Need, nodes: Sequence[GpuNode]) -> tuple[bool, tuple[str, ...]]:
    """Return whether ``need`` fits on the nodes now, and the reasons."""
    slots = sum(node.free // need.gpus for node in nodes)
    total, free = sum(node.devices for node in nodes), sum(node.free for node in nodes)
    reasons = [f"{free} of {total} GPUs on {len(nodes)} nodes are free"]
    reasons += [
        f"{node.name} is {node.excluded}: it takes no pod" for node in nodes if node.excluded
    ]
    silent = [node.name for node in nodes if not node.published]
    if silent:
        reasons.append(
            f"{', '.join(silent)} publish no ResourceSlice: up to ten minutes after a node is ready that is normal"
            " (kubernetes/autoscaler#7530), later the DRA driver is not running there"
        )
    fits = slots >= need.replicas + need.waiting
    able = "can" if fits else "cannot"
    return fits, (*reasons, f"{need.replicas} x {need.gpus} GPU {able} be placed now")


def gpus_of(pod_spec: JsonView) -> int:
    """Number of GPUs that a pod requests: by its limits, else its claims, each of which is taken for one."""
    return _limited(pod_spec) or len(list_at(pod_spec, "resourceClaims"))


def _limited(pod_spec: JsonView) -> int:
    """GPUs of the device plugin. A pod with them may have claims besides, of a network card or of a channel."""
    limits = (mapping_at(c, "resources", "limits") for c in list_at(pod_spec, "containers"))
    return sum(int(limit.get(EXTENDED) or 0) for limit in limits)


def allocated_gpus(claims: Iterable[JsonView], pod: JsonView) -> int:
    """Number of GPUs that the DRA driver gave a pod; a claim may be for several."""
    uid = str(value_at(pod, "metadata", "uid"))
    return sum(
        len(_taken(claim))
        for claim in claims
        if any(user.get("uid") == uid for user in list_at(claim, "status", "reservedFor"))
    )


def _taken(claim: JsonView) -> list[JsonView]:
    """The GPUs that a claim keeps from others; one of an administrator's, such as a monitor's, keeps none."""
    return [
        result
        for result in list_at(claim, "status", "allocation", "devices", "results")
        if result.get("driver") == DRIVER and not result.get("adminAccess")
    ]


def exclusion_reason(pod_spec: JsonView, node: JsonView) -> str:
    """Reason why node selector or taints exclude a node for a pod; empty when they do not."""
    labels = labels_of(node)
    for key, value in mapping_at(pod_spec, "nodeSelector").items():
        if labels.get(key) != value:
            return f"{name_of(node)} has no label {key}={value}"
    for taint in list_at(node, "spec", "taints"):
        hard = taint.get("effect") in ("NoSchedule", "NoExecute")
        if hard and not any(_tolerates(t, taint) for t in list_at(pod_spec, "tolerations")):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"{name_of(node)} has taint {taint['key']}{value}:{taint['effect']}"
    return ""


def _tolerates(toleration: JsonView, taint: JsonView) -> bool:
    """Decide as the scheduler does: an empty effect or key means any, the key only with Exists."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("operator") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint.get("key")
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("key") == taint.get("key") and same_value


def counted_node(node: JsonView, pods: Sequence[JsonView]) -> GpuNode | None:
    name = name_of(node)
    status = mapping_at(node, "status")
    devices = int(mapping_at(status, "allocatable").get(EXTENDED) or 0)
    if not devices:
        return None
    running = [p for p in pods if value_at(p, "spec", "nodeName") == name and not is_finished(p)]
    taken = sum(_limited(p["spec"]) for p in running)
    return GpuNode(name, excluded(node), True, devices, taken)


def is_finished(pod: JsonView) -> bool:
    return value_at(pod, "status", "phase") in ("Succeeded", "Failed")
