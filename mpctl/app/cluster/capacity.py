"""Decide whether a rollout fits a managed cluster, and resize its GPU pool."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from mpctl.app.cluster.access import open_cluster
from mpctl.app.console import Console
from mpctl.app.requests import CapacityRequest
from mpctl.cloud.cluster import Cluster
from mpctl.cloud.ports import Cloud
from mpctl.cloud.resize import Ledger, enlarge, restore
from mpctl.errors import InputError, Refused
from mpctl.estimate.capacity import Fit, GpuNode, Need, Pool, PoolLimits, assess_fit, assess_return, gpu_nodes
from mpctl.platform.local.files import state_root

LISTING = "give the output of: kubectl get nodes,resourceslices,resourceclaims -A -o json"


@dataclass(frozen=True, slots=True)
class Resize:
    """A pool's size after a change; ``changed`` is False where it had that size already."""

    pool: str
    nodes: int
    changed: bool


@dataclass(frozen=True, slots=True)
class CapacityOutcome:
    """Return whether the replicas fit, and the resize; ``fit`` is None when the pool was restored."""

    cluster: str
    pool: Pool | None
    fit: Fit | None
    resize: Resize | None = None


def run(request: CapacityRequest, console: Console) -> CapacityOutcome:
    """Assess the capacity for a rollout and, where asked, grow or restore the pool.

    Raises:
        InputError: the cluster or the pool is not named clearly, or a resize lacks the listing it needs.
        Refused: nodes that serve would be removed.
        Cancelled: the resize was not confirmed.
    """
    cluster, cloud = open_cluster(request.cluster)
    nodes = _read_nodes(request.objects, request.objects_file)
    # Shrinking needs to know which nodes serve; GKE's own node count may be stale, and a size set from it may shrink.
    if nodes is None and (request.change == "restore" or (request.change == "grow" and cluster.provider == "gke")):
        raise InputError("required to resize this pool", field="--objects", hint=LISTING)
    pool = _choose_pool(cloud.pools(), request.pool)
    if pool and nodes is not None and cluster.provider == "gke":
        # The container API only knows the initial size; the nodes are the truth.
        pool = replace(pool, size=sum(1 for node in nodes if node.pool == pool.name))
    if request.change == "restore":
        return CapacityOutcome(cluster.short, pool, None, _restore(cloud, cluster, pool, nodes or (), console))
    fit = assess_fit(Need(request.replicas, request.gpus), nodes, pool, cloud.limits(pool) if pool else PoolLimits())
    schedulable = fit.verdict != "no" and (fit.verdict != "unknown" or request.accept_unchecked)
    if request.change is None or not schedulable or not fit.add_nodes or pool is None:
        return CapacityOutcome(cluster.short, pool, fit)
    return CapacityOutcome(cluster.short, pool, fit, _grow(cloud, cluster, pool, fit.add_nodes, console))


def _read_nodes(text: str | None, file: str) -> tuple[GpuNode, ...] | None:
    if text is None:
        return None
    try:
        return gpu_nodes([json.loads(text)])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("not a listing of Kubernetes objects", file=file, hint=LISTING) from None


def _choose_pool(pools: tuple[Pool, ...], name: str | None) -> Pool | None:
    """Return the named pool, or the only one; None when the cluster has no GPU pool."""
    names = ", ".join(pool.name for pool in pools) or "none"
    if name is None and len(pools) > 1:
        raise InputError("several GPU pools", field="--pool", hint=f"name one of: {names}")
    if name is None:
        return pools[0] if pools else None
    for pool in pools:
        if pool.name == name:
            return pool
    raise InputError(f"GPU pool {name!r} not found", field="--pool", hint=f"GPU pools: {names}")


def _grow(cloud: Cloud, cluster: Cluster, pool: Pool, add: int, console: Console) -> Resize:
    console.confirm(f"Enlarge pool {pool.name} of {cluster.short} from {pool.size} by {add}?")
    size, changed = enlarge(cloud, _ledger(cluster, pool), pool, add, _now)
    return Resize(pool.name, size, changed)


def _restore(cloud: Cloud, cluster: Cluster, pool: Pool | None, nodes: tuple[GpuNode, ...], console: Console) -> Resize:
    if pool is None:
        raise InputError("cluster has no GPU pool", field="--pool")
    ledger = _ledger(cluster, pool)
    last = ledger.last()
    if last and last.event != "returned":
        if reason := assess_return(nodes, pool, last.before):
            raise Refused(reason, hint="end the candidate first, or leave empty nodes to the cluster autoscaler")
        console.warn("the cloud chooses which nodes it removes; their pods are evicted and restart elsewhere")
        console.confirm(f"Set pool {pool.name} of {cluster.short} back to {last.before} nodes?")
    size, changed = restore(cloud, ledger, pool, _now)
    return Resize(pool.name, size, changed)


def _ledger(cluster: Cluster, pool: Pool) -> Ledger:
    return Ledger(state_root() / "pools", cluster, pool.name)


def _now() -> datetime:
    return datetime.now(UTC)
