"""The same figures as JSON objects; units are in the names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpctl.experiment.arm import ArmSummary
from mpctl.gate.analysis import Comparison
from mpctl.gate.assess import Verdict
from mpctl.rollout.operation import Operation


def comparison_record(comparison: Comparison) -> dict[str, Any]:
    """Both arms, the speedup and how many greedy outputs differ."""
    return {
        "baseline": _arm(comparison.baseline),
        "candidate": _arm(comparison.candidate),
        "speedup": comparison.speedup,
        "speedupByRepeat": list(comparison.throughput_ratios),
        "outputsCompared": comparison.compared,
        "outputsDifferent": comparison.different,
        "newlyFailed": comparison.newly_failed,
    }


def _arm(arm: ArmSummary) -> dict[str, Any]:
    window = arm.window
    return {
        "requests": arm.requests,
        "failed": arm.failed,
        "outputTokens": arm.output_tokens,
        "tokensPerSecond": arm.throughput,
        "meanTpotMs": arm.tpot_ms,
        "meanTtftMs": arm.ttft_ms,
        "medianE2eMs": arm.e2e_ms,
        "tokensPerStep": window.tokens_per_step if window else None,
        "acceptanceRate": window.acceptance_rate if window else None,
        "acceptanceLength": window.acceptance_length if window else None,
        "coverage": window.coverage if window else None,
        "acceptanceByPosition": list(window.position_rates) if window else [],
        "queueWaitMs": window.queue_wait_ms if window else None,
        "preemptions": window.preemptions if window else None,
    }


def operation_record(operation: Operation, verdict: Verdict | None, cells: Sequence[Comparison] = ()) -> dict[str, Any]:
    """An operation with its ending, verdict and measurement, one entry per traffic condition."""
    plan = operation.plan
    return {
        "metadata": {"name": operation.id, "openedAt": operation.opened_at, "by": operation.who},
        "spec": {
            "kind": plan.kind.value,
            "strategy": plan.strategy.value,
            "speculation": plan.spec,
            "baseline": plan.baseline_spec,
            "planDigest": plan.digest(),
        },
        "status": {
            "ending": operation.ending.value if operation.ending else None,
            "detail": operation.detail,
            "steps": list(operation.done),
            "step": operation.begun or None,
            "gate": verdict.to_record() if verdict else None,
            "measurement": [{"cell": c.cell.to_record(), **comparison_record(c)} for c in cells],
        },
    }
