"""Diagnose a cluster for rollouts: facts in, findings out, no I/O."""

from __future__ import annotations

from mpctl.doctor.diagnose import diagnose
from mpctl.doctor.facts import ClusterFacts, Denied, MetricAnswer, Thing
from mpctl.doctor.finding import SEVERITIES, Finding

__all__ = ["SEVERITIES", "ClusterFacts", "Denied", "Finding", "MetricAnswer", "Thing", "diagnose"]
