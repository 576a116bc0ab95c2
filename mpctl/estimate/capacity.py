"""Free GPUs of nodes, and whether more pods fit on them. Kubernetes objects come as plain dicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
        if item.get("kind") == "ResourceSlice" and _spec(item).get("driver") == DRIVER
    ]
    pools = {
        _spec(item)["pool"]["name"]: _spec(item).get("nodeName")
        for item in slices
        if "pool" in _spec(item)
    }
    devices: dict[str, set[str]] = {}
    for item in slices:
        names = {device["name"] for device in _spec(item).get("devices") or []}
        devices.setdefault(str(_spec(item).get("nodeName")), set()).update(names)
    taken: dict[str, set[str]] = {}
    for claim in (item for item in cluster_objects if item.get("kind") == "ResourceClaim"):
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or []:
            if result.get("driver") == DRIVER:
                taken.setdefault(str(pools.get(result.get("pool"))), set()).add(result["device"])
    nodes = []
    for item in (item for item in cluster_objects if item.get("kind") == "Node"):
        name, labels = item["metadata"]["name"], item["metadata"].get("labels") or {}
        if labels.get(GPU_LABEL) != "true" and name not in devices:
            continue
        published = len(devices.get(name, ()))
        nodes.append(
            GpuNode(name, excluded(item), name in devices, published, len(taken.get(name, ())))
        )
    return tuple(sorted(nodes, key=lambda node: node.name))


def _spec(item: JsonView) -> JsonView:
    spec = item.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def excluded(node: JsonView) -> str:
    """Why no pod is scheduled on a node, whatever the pod; empty where pods are."""
    conditions = (node.get("status") or {}).get("conditions") or []
    if not any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
        return "not ready"
    return "cordoned" if _spec(node).get("unschedulable") else ""


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
    """Number of GPUs that a pod requests: its claims, else its limits."""
    claims = pod_spec.get("resourceClaims") or []
    if claims:
        return len(claims)
    total = 0
    for container in pod_spec.get("containers") or []:
        limits = (container.get("resources") or {}).get("limits") or {}
        total += int(limits.get(EXTENDED) or 0)
    return total


def exclusion_reason(pod_spec: JsonView, node: JsonView) -> str:
    """Reason why node selector or taints exclude a node for a pod; empty when they do not."""
    labels = node["metadata"].get("labels") or {}
    for key, value in (pod_spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return f"{node['metadata']['name']} has no label {key}={value}"
    for taint in (node.get("spec") or {}).get("taints") or []:
        hard = taint.get("effect") in ("NoSchedule", "NoExecute")
        if hard and not any(_tolerates(t, taint) for t in pod_spec.get("tolerations") or []):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"{node['metadata']['name']} has taint {taint['key']}{value}:{taint['effect']}"
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
    name = node["metadata"]["name"]
    status = node.get("status") or {}
    devices = int((status.get("allocatable") or {}).get(EXTENDED) or 0)
    if not devices:
        return None
    running = [
        p for p in pods if (p.get("spec") or {}).get("nodeName") == name and not is_finished(p)
    ]
    taken = sum(gpus_of(p["spec"]) for p in running if not p["spec"].get("resourceClaims"))
    return GpuNode(name, excluded(node), True, devices, taken)


def is_finished(pod: JsonView) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
