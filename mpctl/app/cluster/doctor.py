"""Diagnose a cluster: what prevents rollouts, each finding with cause, fix and source."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.app.session.base import Place, SystemClock
from mpctl.app.session.cluster import open_client
from mpctl.doctor import SEVERITIES, Symptom, diagnose
from mpctl.platform.kubernetes.doctor_reader import read_cluster


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings for one namespace of a cluster; ``namespace`` is None for all of them."""

    context: str
    namespace: str | None
    findings: tuple[Symptom, ...]

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings of each severity, the worst first."""
        return {
            severity: sum(f.severity == severity for f in self.findings) for severity in SEVERITIES
        }


def diagnose_cluster(place: Place, *, all_namespaces: bool) -> Diagnosis:
    """Read the cluster and return its findings; objects that may not be read become notes."""
    client = open_client(place)
    namespace = None if all_namespaces else place.namespace or client.namespace
    facts = read_cluster(client, namespace, SystemClock().now())
    return Diagnosis(client.context, namespace, tuple(diagnose(facts)))
