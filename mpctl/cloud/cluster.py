"""A managed cluster: provider, place and name, parsed from each form that people write."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from mpctl.errors import InputError

Provider = Literal["eks", "gke"]

_ARN = re.compile(r"arn:aws[a-z-]*:eks:(?P<place>[a-z0-9-]+):(?P<account>\d{12}):cluster/(?P<name>[\w-]+)$")
_LINK = re.compile(
    r"(?:https://container\.googleapis\.com/v1(?:beta1)?/)?"
    r"projects/(?P<account>[^/]+)/(?:locations|zones)/(?P<place>[^/]+)/clusters/(?P<name>[^/]+)$"
)
_SHORT_EKS = re.compile(r"eks/(?P<place>[a-z0-9-]+)/(?P<name>[\w-]+)$")
_SHORT_GKE = re.compile(r"gke/(?P<account>[^/]+)/(?P<place>[a-z0-9-]+)/(?P<name>[a-z0-9-]+)$")

FORMS = (
    "eks/REGION/NAME, gke/PROJECT/LOCATION/NAME, an EKS ARN, a GKE resource name, "
    "or NAME with --region (EKS) or --project and --location (GKE)"
)


@dataclass(frozen=True)
class Cluster:
    """``account``: the GCP project; for EKS the account of an ARN, or None for the credentials' own."""

    provider: Provider
    name: str
    place: str
    account: str | None = None

    @property
    def short(self) -> str:
        """The name under which it is put into a kubeconfig; `parse_cluster` reads it back."""
        parts = (
            ("eks", self.place, self.name) if self.provider == "eks" else ("gke", self.account, self.place, self.name)
        )
        return "/".join(str(part) for part in parts)

    @property
    def resource(self) -> str:
        """GKE's full resource name."""
        return f"projects/{self.account}/locations/{self.place}/clusters/{self.name}"


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
            cluster = Cluster(provider, parts["name"], parts["place"], parts.get("account"))
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
    implied = {"region": cluster.place if cluster.provider == "eks" else None}
    implied |= {"project": cluster.account, "location": cluster.place} if cluster.provider == "gke" else {}
    for flag, value in flags.items():
        if value is not None and value != implied.get(flag):
            raise InputError(f"--{flag} {value} contradicts {cluster.short}", field="CLUSTER")
