"""A managed cluster: provider, location and name, parsed from each form that people write; the port of its cloud."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from mpctl.errors import InputError

Provider = Literal["eks", "gke"]

_ARN = re.compile(r"arn:aws[a-z-]*:eks:(?P<location>[a-z0-9-]+):(?P<account>\d{12}):cluster/(?P<name>[\w-]+)$")
_LINK = re.compile(
    r"(?:https://container\.googleapis\.com/v1(?:beta1)?/)?"
    r"projects/(?P<account>[^/]+)/(?:locations|zones)/(?P<location>[^/]+)/clusters/(?P<name>[^/]+)$"
)
_SHORT_EKS = re.compile(r"eks/(?P<location>[a-z0-9-]+)/(?P<name>[\w-]+)$")
_SHORT_GKE = re.compile(r"gke/(?P<account>[^/]+)/(?P<location>[a-z0-9-]+)/(?P<name>[a-z0-9-]+)$")

FORMS = (
    "eks/REGION/NAME, gke/PROJECT/LOCATION/NAME, an EKS ARN, a GKE resource name, "
    "or NAME with --region (EKS) or --project and --location (GKE)"
)


@dataclass(frozen=True)
class Cluster:
    """``account``: the GCP project; for EKS the account of an ARN, or None for the credentials' own."""

    provider: Provider
    name: str
    location: str
    account: str | None = None

    @property
    def short(self) -> str:
        """The name under which it is put into a kubeconfig; `parse_cluster` reads it back."""
        parts = (
            ("eks", self.location, self.name)
            if self.provider == "eks"
            else ("gke", self.account, self.location, self.name)
        )
        return "/".join(str(part) for part in parts)

    @property
    def resource(self) -> str:
        """GKE's full resource name."""
        return f"projects/{self.account}/locations/{self.location}/clusters/{self.name}"


def parse_cluster(
    text: str, *, region: str | None = None, project: str | None = None, location: str | None = None
) -> Cluster:
    """The cluster that ``text`` and the flags name; InputError where they name none, or two."""
    forms: tuple[tuple[Provider, re.Pattern[str]], ...] = (
        ("eks", _ARN), ("gke", _LINK), ("eks", _SHORT_EKS), ("gke", _SHORT_GKE),
    )  # fmt: skip
    for provider, form in forms:
        if match := form.match(text):
            parts = match.groupdict()
            cluster = Cluster(provider, parts["name"], parts["location"], parts.get("account"))
            _refuse_contradiction(cluster, region=region, project=project, location=location)
            return cluster
    if "/" in text or ":" in text or not text:
        raise InputError(f"'{text}' does not name a cluster", field="CLUSTER", hint=f"Write {FORMS}")
    if region and (project or location):
        raise InputError("--region means EKS, --project and --location mean GKE: give one kind", field="CLUSTER")
    if region:
        return Cluster("eks", text, region)
    if project and location:
        return Cluster("gke", text, location, project)
    raise InputError(f"'{text}' says neither cloud nor place", field="CLUSTER", hint=f"Write {FORMS}")


def _refuse_contradiction(cluster: Cluster, **flags: str | None) -> None:
    implied = {"region": cluster.location if cluster.provider == "eks" else None}
    implied |= {"project": cluster.account, "location": cluster.location} if cluster.provider == "gke" else {}
    for flag, value in flags.items():
        if value is not None and value != implied.get(flag):
            raise InputError(f"--{flag} {value} contradicts {cluster.short}", field="CLUSTER")


@dataclass(frozen=True)
class ClusterEndpoint:
    """``server`` is the https URL of the control plane, ``ca_data`` its certificate authority in base64."""

    server: str
    ca_data: str


@dataclass(frozen=True)
class Token:
    """A bearer token. Its value is kept out of every representation."""

    value: str = field(repr=False)
    expires: datetime


class Cloud(Protocol):
    def endpoint(self) -> ClusterEndpoint: ...

    def token(self) -> Token: ...


API = "client.authentication.k8s.io"


def open_cloud(cluster: Cluster, *, profile: str | None = None) -> Cloud:
    if cluster.provider == "eks":
        from mpctl.cloud.eks import Eks

        return Eks(cluster, profile=profile)
    if profile:
        raise InputError("is for EKS; GKE uses the application default credentials", field="--profile")
    from mpctl.cloud.gke import Gke

    return Gke(cluster)


def exec_credential(token: Token, environment: Mapping[str, str]) -> str:
    """The ExecCredential that client-go reads, in the version it asked for."""
    exec_info = environment.get("KUBERNETES_EXEC_INFO", "")
    try:
        version = json.loads(exec_info)["apiVersion"] if exec_info else f"{API}/v1"
    except (ValueError, KeyError, TypeError):
        raise InputError("is not what kubectl sends", field="KUBERNETES_EXEC_INFO") from None
    if version not in {f"{API}/v1", f"{API}/v1beta1"}:
        raise InputError(f"asks for {version}", field="KUBERNETES_EXEC_INFO", hint="Update kubectl to 1.22 or later")
    expires = token.expires.strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"token": token.value, "expirationTimestamp": expires}
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
