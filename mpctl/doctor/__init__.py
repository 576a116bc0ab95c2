"""Diagnose a cluster for what makes a rollout, a rollback or the watch impossible, wrong or unsafe. No I/O."""

from __future__ import annotations

from mpctl.doctor.diagnose import diagnose
from mpctl.doctor.state import SEVERITIES, ClusterFacts, Denied, KubeObject, Symptom

__all__ = ["SEVERITIES", "ClusterFacts", "Denied", "KubeObject", "Symptom", "diagnose"]
