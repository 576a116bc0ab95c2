"""Diagnose a cluster for what makes a rollout, a rollback or the watch impossible, wrong or unsafe. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mpctl.doctor import access, autoscaling, gpus, kserve_setup, services, updates
from mpctl.doctor.state import SEVERITIES, ClusterFacts, Denied, KubeObject, Symptom

__all__ = ["SEVERITIES", "ClusterFacts", "Denied", "KubeObject", "Symptom", "diagnose"]

Check = Callable[[ClusterFacts], Iterator[Symptom]]
CHECKS: tuple[Check, ...] = (
    *kserve_setup.CHECKS,
    *gpus.CHECKS,
    *autoscaling.CHECKS,
    *services.CHECKS,
    *updates.CHECKS,
    *access.CHECKS,
)


def diagnose(facts: ClusterFacts) -> tuple[Symptom, ...]:
    """Every finding: failures, warnings, notes, then what is in order; the checks' own order within each."""
    findings = [finding for check in CHECKS for finding in check(facts)]
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))
