"""Places that are searched for services."""

from __future__ import annotations

import os
from typing import NamedTuple

from mpctl.errors import InputError


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
    kubeconfig's current cluster.

    Raises:
        InputError: KUBECONFIG names no file that exists.
    """
    if context or kubeconfig:
        return "kubernetes"
    from mpctl.platform.local.files import service_dirs

    if next(iter(service_dirs()), None) is not None:
        return "local"
    from mpctl.platform.kubernetes.api.connection import VARIABLE, kubeconfig_files, missing_kubeconfig, reachable

    if os.environ.get(VARIABLE) and not kubeconfig_files(None):
        raise InputError(
            missing_kubeconfig(), hint=f"correct or unset {VARIABLE}, or choose this machine with --platform local"
        )
    return "kubernetes" if reachable(None, None) else "local"
