"""Decide whether a rollout fits a managed cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from mpctl.app.cluster.access import open_cluster
from mpctl.app.requests import CapacityRequest
from mpctl.errors import InputError
from mpctl.estimate.capacity import Fit, GpuNode, Need, Pool, PoolLimits, assess_fit, gpu_nodes

LISTING = "give the output of: kubectl get nodes,resourceslices,resourceclaims -A -o json"


@dataclass(frozen=True, slots=True)
class CapacityOutcome:
    """Whether the replicas fit, and the pool that was assessed, None for a cluster without GPUs."""

    pool: Pool | None
    fit: Fit


def run(request: CapacityRequest) -> CapacityOutcome:
    """Assess the capacity for a rollout.

    Raises:
        InputError: the cluster or the pool is not named clearly.
    """
    cluster, cloud = open_cluster(request.cluster)
    nodes = _read_nodes(request.objects, request.objects_file)
    pool = _choose_pool(cloud.pools(), request.pool)
    if pool and nodes is not None and cluster.provider == "gke":
        # The container API only knows the initial size; the nodes are the truth.
        pool = replace(pool, size=sum(1 for node in nodes if node.pool == pool.name))
    fit = assess_fit(Need(request.replicas, request.gpus), nodes, pool, cloud.limits(pool) if pool else PoolLimits())
    return CapacityOutcome(pool, fit)


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
