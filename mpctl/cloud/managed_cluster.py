"""A managed cluster: its name as ``eks/REGION/NAME`` or ``gke/PROJECT/LOCATION/NAME``, and the port of its cloud."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from mpctl.errors import InputError, MpctlError

_EKS = re.compile(r"eks/(?P<location>[a-z0-9-]+)/(?P<name>[\w-]+)")
_GKE = re.compile(r"gke/(?P<project>[^/]+)/(?P<location>[a-z0-9-]+)/(?P<name>[a-z0-9-]+)")


@dataclass(frozen=True)
class Cluster:
    name: str
    location: str  # a region, or GKE's zone
    project: str | None = None  # GKE's

    @property
    def short(self) -> str:
        """The cluster as :func:`parse_cluster` reads it, and as its kubeconfig names it."""
        place = (
            f"eks/{self.location}"
            if self.project is None
            else f"gke/{self.project}/{self.location}"
        )
        return f"{place}/{self.name}"


def parse_cluster(text: str) -> Cluster:
    """Return the cluster that ``text`` names.

    Raises:
        InputError: it has neither form.
    """
    match = _EKS.fullmatch(text) or _GKE.fullmatch(text)
    if match is None:
        hint = "write eks/REGION/NAME or gke/PROJECT/LOCATION/NAME"
        raise InputError(f"'{text}' does not name a cluster", field="CLUSTER", hint=hint)
    return Cluster(**match.groupdict())


@dataclass(frozen=True)
class ClusterEndpoint:
    server: str  # https URL of the control plane
    ca_data: str  # its certificate authority in base64; empty: one that every machine knows


@dataclass(frozen=True)
class Token:
    """A bearer token, whose value stands in no representation."""

    value: str = field(repr=False)
    expires: datetime


class Cloud(Protocol):
    """Access to one cluster. Both methods raise MpctlError that names the cluster and holds no secret."""

    def endpoint(self) -> ClusterEndpoint: ...

    def token(self) -> Token: ...


def open_cloud(cluster: Cluster, *, profile: str | None) -> Cloud:
    """Return the cloud of a cluster; ``profile`` is one of the AWS configuration.

    Raises:
        InputError: a profile for GKE.
        MpctlError: the cloud's client library is not installed.
    """
    if profile and cluster.project is not None:
        raise InputError(
            "is for EKS; GKE uses the application default credentials", field="--profile"
        )
    try:
        if cluster.project is None:
            from mpctl.cloud.eks import Eks

            return Eks(cluster, profile=profile)
        from mpctl.cloud.gke import Gke
    except ImportError as error:
        raise MpctlError(
            f"{cluster.short} needs {error.name}, which is not installed",
            hint="pip install 'mpctl[cloud]'",
        ) from error
    return Gke(cluster)
