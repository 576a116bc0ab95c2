"""Managed clusters: a kubeconfig entry, the tokens it asks for, and whether a rollout fits."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from mpctl.app.environment_requests import CapacityRequest, CloudClusterRef, ConnectRequest
from mpctl.cloud.kubeconfig import KubeconfigEntry, kubeconfig_path, write_entry
from mpctl.cloud.managed_cluster import Cloud, Cluster, exec_credential, open_cloud, parse_cluster
from mpctl.errors import InputError
from mpctl.estimate.capacity import Fit, GpuNode, Need, Pool, PoolLimits, assess_fit, gpu_nodes


@dataclass(frozen=True, slots=True)
class Connection:
    """An entry of a kubeconfig; ``changed`` is False where it was present already."""

    server: str
    context: str
    file: Path
    changed: bool
    current: bool
    backup: Path | None


def connect(request: ConnectRequest) -> Connection:
    """Write an entry for the cluster; kubectl then asks `mpctl credential` for a token at each call.

    Raises:
        Conflict: the file has an entry of that name that another program wrote.
    """
    cluster, cloud = open_cluster(request.cluster)
    endpoint, profile = cloud.endpoint(), request.cluster.profile
    entry = KubeconfigEntry(
        name=request.context or cluster.short,
        server=endpoint.server,
        ca_data=endpoint.ca_data,
        command=shutil.which("mpctl") or "mpctl",
        args=("credential", cluster.short),
        env={"AWS_PROFILE": profile} if profile else {},
        namespace=request.namespace,
    )
    written = write_entry(kubeconfig_path(request.kubeconfig, os.environ), entry, use=request.use)
    return Connection(entry.server, entry.name, written.path, written.changed, written.current, written.backup)


def credential(cluster: CloudClusterRef) -> str:
    """Return an ExecCredential with a short-lived token, in the version that kubectl asked for."""
    _, cloud = open_cluster(cluster)
    return exec_credential(cloud.token(), os.environ)


def open_cluster(reference: CloudClusterRef) -> tuple[Cluster, Cloud]:
    """Return the cluster that a reference names, and its cloud.

    Raises:
        InputError: the reference names no cluster, or contradicts itself.
    """
    cluster = parse_cluster(
        reference.name, region=reference.region, project=reference.project, location=reference.location
    )
    return cluster, open_cloud(cluster, profile=reference.profile)


LISTING = "give the output of: kubectl get nodes,resourceslices,resourceclaims -A -o json"


@dataclass(frozen=True, slots=True)
class CapacityOutcome:
    """Whether the replicas fit, and the pool that was assessed, None for a cluster without GPUs."""

    pool: Pool | None
    fit: Fit


def assess_capacity(request: CapacityRequest) -> CapacityOutcome:
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
