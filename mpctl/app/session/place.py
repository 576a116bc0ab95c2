"""Places that are searched for services."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """The platform, and on a cluster the way to its API server. ``timeout_s``: of one request to it."""

    platform: str = "local"
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    as_user: str | None = None
    timeout_s: float | None = None


def find_platform(context: str | None, kubeconfig: str | None) -> str:
    """The platform of ``auto``: a cluster that is named, else this machine while a service is up on it, else the
    kubeconfig's current cluster."""
    if context or kubeconfig:
        return "kubernetes"
    from mpctl.platform.local.files import service_dirs

    if next(iter(service_dirs()), None) is not None:
        return "local"
    from mpctl.platform.kubernetes.api.connection import reachable

    return "kubernetes" if reachable(None, None) else "local"
