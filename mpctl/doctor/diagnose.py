"""All checks over one cluster, worst findings first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mpctl.doctor import access, api, autoscaling, gpu_driver, gpus, kserve, metrics, services
from mpctl.doctor.facts import ClusterFacts
from mpctl.doctor.finding import SEVERITIES, Finding

Check = Callable[[ClusterFacts], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    *api.CHECKS,
    *kserve.CHECKS,
    *gpus.CHECKS,
    *gpu_driver.CHECKS,
    *autoscaling.CHECKS,
    *metrics.CHECKS,
    *services.CHECKS,
    *access.CHECKS,
)


def diagnose(facts: ClusterFacts) -> tuple[Finding, ...]:
    """Every finding: failures, warnings, notes, then what is in order; the checks' own order within each."""
    findings = [finding for check in CHECKS for finding in check(facts)]
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))
