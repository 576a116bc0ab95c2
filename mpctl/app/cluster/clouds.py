"""Managed clusters: a kubeconfig entry, and the tokens it asks for."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from mpctl.app.environment_requests import CloudClusterRef, ConnectRequest
from mpctl.cloud.kubeconfig import KubeconfigEntry, kubeconfig_path, write_entry
from mpctl.cloud.managed_cluster import Cloud, Cluster, exec_credential, open_cloud, parse_cluster


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
