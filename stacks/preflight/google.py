"""Read a Google project through its REST APIs, with the application default credentials.

One library for four services: google-auth's session. A look-up that is refused is an unknown fact, never a pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from mpctl.errors import MpctlError, NotPermitted
from stacks.base import Plan
from stacks.preflight.facts import AccountFacts, Quota

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
TIMEOUT_S = 20
APIS = (
    "compute",
    "container",
    "cloudkms",
    "iam",
    "cloudresourcemanager",
    "binaryauthorization",
    "file",
    "logging",
    "monitoring",
)
BUDGET_APIS = ("cloudbilling", "billingbudgets")
# The quota of a region that a machine's GPUs count against (Compute Engine, "Allocation quotas").
GPU_QUOTAS: Mapping[str, str] = {
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "nvidia-h100-80gb": "NVIDIA_H100_GPUS",
    "nvidia-h100-mega-80gb": "NVIDIA_H100_MEGA_GPUS",
    "nvidia-h200-141gb": "NVIDIA_H200_GPUS",
}


class Web(Protocol):
    """The part of ``google.auth.transport.requests.AuthorizedSession`` that is used."""

    def get(self, url: str, *, timeout: float) -> Any:
        """A response with ``status_code`` and ``json()``."""


def open_web() -> Web:
    """A session with the application default credentials.

    Raises:
        NotPermitted: there are none.
    """
    try:
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError
        from google.auth.transport.requests import AuthorizedSession
    except ImportError:
        raise MpctlError("GKE needs google-auth", hint="pip install -e '.[stacks,cloud]'") from None
    try:
        credentials = google.auth.default(scopes=[SCOPE])[0]
    except DefaultCredentialsError:
        raise NotPermitted(
            "no Google credentials found",
            hint="gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS",
        ) from None
    made: Web = AuthorizedSession(credentials)
    return made


def read_google(
    plan: Plan, web: Web | None = None, *, base: str = "https://{}.googleapis.com"
) -> AccountFacts:
    """Facts about the project in the cluster's region."""
    return Reader(plan, web or open_web(), base).facts()


class Reader:
    """The calls, each at most once."""

    def __init__(self, plan: Plan, web: Web, base: str) -> None:
        assert plan.project is not None
        self.plan, self.web, self.base, self.project = plan, web, base, plan.project

    def ask(self, service: str, path: str) -> Any:
        """The answer's JSON; None where the call is refused, the object is absent or nothing comes."""
        from google.auth.exceptions import GoogleAuthError
        from requests.exceptions import RequestException

        try:
            answer = self.web.get(f"{self.base.format(service)}/{path}", timeout=TIMEOUT_S)
        except GoogleAuthError as error:
            raise NotPermitted(
                f"the Google login is over: {type(error).__name__}",
                hint="gcloud auth application-default login",
            ) from None
        except RequestException:
            return None
        return answer.json() if answer.status_code == 200 else None

    def facts(self) -> AccountFacts:
        region = self.ask(
            "compute", f"compute/v1/projects/{self.project}/regions/{self.plan.cluster.region}"
        )
        machines = {pool.hardware.machine for pool in self.plan.cluster.pools}
        zones = {zone for pool in self.plan.cluster.pools for zone in pool.zones}
        return AccountFacts(
            identity=f"project {self.project}",
            zones=None
            if region is None
            else tuple(sorted(url.rpartition("/")[2] for url in region.get("zones", ()))),
            offered=self.offered(machines, zones) if region is not None else {},
            quotas=self.quotas(region),
            taken=self.taken(),
            apis_off=self.apis_off(),
        )

    def offered(self, machines: set[str], zones: set[str]) -> dict[str, tuple[str, ...]]:
        path = "compute/v1/projects/{}/zones/{}/machineTypes/{}"
        return {
            machine: tuple(
                z
                for z in sorted(zones)
                if self.ask("compute", path.format(self.project, z, machine))
            )
            for machine in sorted(machines)
        }

    def quotas(self, region: Any) -> dict[str, Quota]:
        spot = "PREEMPTIBLE_" if self.plan.settings.capacity_type == "SPOT" else ""
        made = {}
        for kind in sorted({pool.hardware.accelerator for pool in self.plan.cluster.pools}):
            if kind in GPU_QUOTAS:
                made[f"gpu-{kind}"] = self.quota(
                    region, f"{spot}{GPU_QUOTAS[kind]}", self.plan.cluster.region
                )
        project = self.ask("compute", f"compute/v1/projects/{self.project}")
        made["gpu-total"] = self.quota(project, "GPUS_ALL_REGIONS", "all regions")
        made["network"] = self.quota(project, "NETWORKS", "all regions")
        return made

    def quota(self, owner: Any, metric: str, where: str) -> Quota:
        quota: dict[str, Any] = next(
            (entry for entry in (owner or {}).get("quotas", ()) if entry["metric"] == metric), {}
        )
        unit = "GPUs" if "GPU" in metric else ""
        console = f"https://console.cloud.google.com/iam-admin/quotas?project={self.project}"
        return Quota(f"{metric} in {where}", unit, quota.get("limit"), quota.get("usage"), console)

    def taken(self) -> tuple[str, ...]:
        place = f"projects/{self.project}/locations/{self.plan.cluster.region}"
        existing = []
        if self.ask("container", f"v1/{place}/clusters/{self.plan.name}"):
            existing.append(f"GKE cluster {self.plan.name}")
        if self.ask("cloudkms", f"v1/{place}/keyRings/{self.plan.name}"):
            existing.append(f"key ring {self.plan.name}, which is never deleted")
        return tuple(existing)

    def apis_off(self) -> tuple[str, ...] | None:
        wanted = [
            f"{name}.googleapis.com"
            for name in (*APIS, *(BUDGET_APIS if self.plan.settings.budget else ()))
        ]
        names = "&".join(f"names=projects/{self.project}/services/{name}" for name in wanted)
        response = self.ask("serviceusage", f"v1/projects/{self.project}/services:batchGet?{names}")
        if response is None:
            return None
        on = {
            service["name"].rpartition("/")[2]
            for service in response.get("services", ())
            if service.get("state") == "ENABLED"
        }
        return tuple(name for name in wanted if name not in on)
