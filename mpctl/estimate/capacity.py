"""Will this rollout fit: free GPUs now, else a larger pool, else no, each with its reason.

Facts in, answer out. Unknown limits are listed as unchecked and never counted as capacity. Kubernetes
objects come as plain dicts (``kubectl get nodes,resourceslices,resourceclaims -A -o json``), so that any client serves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["fits", "resize", "no", "unknown"]

DRIVER = "gpu.nvidia.com"
GPU_LABEL = "nvidia.com/gpu.present"
POOL_LABELS = ("eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool")


@dataclass(frozen=True)
class Need:
    """``replicas`` more pods, each with ``gpus`` devices of one node."""

    replicas: int
    gpus: int = 1


@dataclass(frozen=True)
class GpuNode:
    """``excluded``: why no pod is scheduled there now; empty for a node that takes pods."""

    name: str
    pool: str | None
    excluded: str
    published: bool  # has a ResourceSlice of the GPU driver
    devices: int
    taken: int

    @property
    def free(self) -> int:
        return 0 if self.excluded else max(0, self.devices - self.taken)


@dataclass(frozen=True)
class Pool:
    """``size`` and the limits count nodes over all zones. ``gpus`` is per node; 0 is not a GPU pool."""

    name: str
    machine: str
    gpus: int
    size: int
    minimum: int
    maximum: int
    zones: tuple[str, ...] = ()
    spot: bool = False


@dataclass(frozen=True)
class PoolLimits:
    """The cloud's limits for a pool; None means unknown.

    ``quota_limit`` and ``quota_used`` are in units of which one node needs ``quota_per_node`` (EC2: vCPUs).
    """

    zones_offering: tuple[str, ...] | None = None
    quota_name: str = "GPU quota"
    quota_limit: float | None = None
    quota_used: float | None = None
    quota_per_node: float = 1


@dataclass(frozen=True)
class Fit:
    verdict: Verdict
    add_nodes: int
    reasons: tuple[str, ...]
    unchecked: tuple[str, ...] = ()


def objects(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The objects of a document: a List's items, or itself."""
    items = document.get("items")
    yield from items if isinstance(items, list) else [document]


def gpu_nodes(documents: Iterable[Mapping[str, Any]]) -> tuple[GpuNode, ...]:
    """The GPU nodes among ``documents``, with devices from ResourceSlices and allocations from ResourceClaims."""
    cluster_objects = [item for document in documents for item in objects(document)]
    slices = [
        item for item in cluster_objects if item.get("kind") == "ResourceSlice" and _spec(item).get("driver") == DRIVER
    ]
    pools = {_spec(item)["pool"]["name"]: _spec(item).get("nodeName") for item in slices if "pool" in _spec(item)}
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
        pool = next((labels[label] for label in POOL_LABELS if label in labels), None)
        published = len(devices.get(name, ()))
        nodes.append(GpuNode(name, pool, excluded(item), name in devices, published, len(taken.get(name, ()))))
    return tuple(sorted(nodes, key=lambda node: node.name))


def _spec(item: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = item.get("spec")
    return spec if isinstance(spec, Mapping) else {}


def excluded(node: Mapping[str, Any]) -> str:
    """Why no pod is scheduled on a node, whatever the pod; empty where pods are."""
    conditions = (node.get("status") or {}).get("conditions") or []
    if not any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions):
        return "not ready"
    return "cordoned" if _spec(node).get("unschedulable") else ""


def assess_fit(need: Need, nodes: tuple[GpuNode, ...] | None, pool: Pool | None, limits: PoolLimits) -> Fit:
    """Assess whether ``need`` fits. ``nodes`` None: unknown, and every device counts as taken."""
    reasons, unchecked = [], []
    if nodes is None:
        unchecked.append("free GPUs: no Kubernetes objects were given, so all are counted as taken")
        slots = 0
    else:
        others = [node.name for node in nodes if pool is not None and node.pool != pool.name]
        nodes = tuple(node for node in nodes if node.name not in others)
        slots = sum(node.free // need.gpus for node in nodes)
        total, free = sum(node.devices for node in nodes), sum(node.free for node in nodes)
        reasons.append(f"{free} of {total} GPUs on {len(nodes)} nodes are free")
        reasons += [f"{node.name} is {node.excluded}: it takes no pod" for node in nodes if node.excluded]
        if others:
            reasons.append(f"not counted, as outside pool {pool.name if pool else ''}: {', '.join(others)}")
        silent = [node.name for node in nodes if not node.published]
        if silent:
            reasons.append(
                f"{', '.join(silent)} publish no ResourceSlice: up to ten minutes after a node is ready that is normal"
                " (kubernetes/autoscaler#7530), later the DRA driver is not running there"
            )
    if slots >= need.replicas:
        return Fit("fits", 0, (*reasons, f"{need.replicas} x {need.gpus} GPU can be placed now"))
    missing = need.replicas - slots
    reasons.append(f"{missing} of {need.replicas} replicas do not fit")
    if pool is None:
        return Fit("no", 0, (*reasons, "no GPU node pool was found to enlarge"), tuple(unchecked))
    per_node = pool.gpus // need.gpus
    if not per_node:
        reasons.append(f"a {pool.machine} of pool {pool.name} has {pool.gpus} GPU, a replica needs {need.gpus}")
        return Fit("no", 0, tuple(reasons), tuple(unchecked))
    add = math.ceil(missing / per_node)
    problems, open_ = _limits(pool, limits, add)
    reasons.append(
        f"pool {pool.name} ({pool.machine}) has {pool.size} nodes, {pool.maximum} at most; {add} more are needed"
    )
    if problems:
        return Fit("no", add, (*reasons, *problems), (*unchecked, *open_))
    verdict: Verdict = "unknown" if open_ else "resize"
    return Fit(verdict, add, tuple(reasons), (*unchecked, *open_))


def _limits(pool: Pool, limits: PoolLimits, add: int) -> tuple[list[str], list[str]]:
    """Return what forbids ``add`` more nodes, and what is unknown."""
    problems, unchecked = [], []
    if pool.size + add > pool.maximum:
        problems.append(f"{pool.size + add} nodes are more than the pool's maximum of {pool.maximum}")
    if limits.zones_offering is None:
        unchecked.append(f"whether {pool.machine} is offered in {', '.join(pool.zones) or 'the zones of the pool'}")
    elif not limits.zones_offering:
        problems.append(f"{pool.machine} is offered in none of {', '.join(pool.zones) or 'its zones'}")
    if limits.quota_limit is None or limits.quota_used is None:
        unchecked.append(limits.quota_name)
    elif limits.quota_used + add * limits.quota_per_node > limits.quota_limit:
        needed = add * limits.quota_per_node
        problems.append(
            f"{limits.quota_name}: {limits.quota_used:g} of {limits.quota_limit:g} used, {needed:g} more needed"
        )
    return problems, unchecked
