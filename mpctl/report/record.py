"""A measurement as JSON objects by docs/schema/report.json: ``report``, ``rollout``, ``bench`` and ``gate explain``
print the same objects. Names are in camel case with their units, figures have six digits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mpctl.experiment.arm import ArmSummary, Spread, client_unfit
from mpctl.experiment.run import ArmConditions
from mpctl.gate.analysis import Comparison
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.json_types import Json
from mpctl.records import encode
from mpctl.report.values import CellReport, Deciding, Report
from mpctl.rollout.operation import Operation
from mpctl.rollout.phases import phase_seconds
from mpctl.rollout.plan import Plan
from mpctl.rollout.steps.confirm import Confirmation


def report_record(report: Report) -> Json:
    """Return a whole report."""
    metadata = {"name": report.run, "created": report.created, "who": report.who}
    body = {
        "metadata": {**metadata, "mpctlVersion": report.mpctl_version, "service": report.service},
        "sentence": report.sentence,
        "gate": verdict_record(report.verdict, report.deciding),
        "cells": [
            {
                **cell_record(c.comparison, c.verdict, share=c.share),
                "quantilesMs": c.curves,
                "p99": _p99(c),
            }
            for c in report.cells
        ],
        "conditions": {
            "baseline": _conditions(report.baseline),
            "candidate": _conditions(report.candidate),
        },
        "prompts": camel_record(report.prompts),
        "client": camel_record(report.client),
        "policy": {
            name: value for name, value in report.policy.to_record().items() if value is not None
        },
        "decomposition": [
            {"cell": c.label, **camel_record(c.decomposition)} for c in report.decomposed
        ],
        "notes": report.notes,
    }
    record: Json = _rounded(body)
    return record


def _conditions(arm: ArmConditions) -> Json:
    """Return an arm's conditions with its speculation in words alone."""
    record: Json = camel_record(replace(arm, speculation=None))
    del record["speculation"]
    return record


def plan_record(plan: Plan) -> Json:
    """Return what a plan does, and the digest that names it."""
    return {
        "kind": plan.kind.value,
        "strategy": plan.strategy.value,
        "speculation": plan.spec_text,
        "baseline": plan.baseline_text,
        "planDigest": plan.digest(),
    }


def operation_record(
    operation: Operation,
    verdict: Verdict | None,
    cells: Sequence[Comparison] = (),
    deciding: Deciding | None = None,
) -> Json:
    """Return an operation with its ending, verdict, measurement and the seconds of its phases."""
    plan = operation.plan
    return {
        "metadata": {"name": operation.id, "openedAt": operation.opened_at, "by": operation.who},
        "spec": plan_record(plan),
        "status": {
            "ending": operation.ending.value if operation.ending else None,
            "detail": operation.detail,
            "steps": list(operation.done),
            "step": operation.begun or None,
            "phaseSeconds": _rounded(phase_seconds(operation)),
            "secondStart": _rounded(camel_record(operation.result("confirm", Confirmation))),
            **measurement_record(cells, verdict, deciding),
        },
    }


def measurement_record(
    cells: Sequence[Comparison], verdict: Verdict | None, deciding: Deciding | None = None
) -> Json:
    """Return ``gate``, null where nothing was judged, and ``cells``."""
    judged = {v.cell: v for v in verdict.cells} if verdict else {}
    record: Json = _rounded(
        {
            "gate": verdict_record(verdict, deciding) if verdict else None,
            "cells": [cell_record(c, judged.get(c.cell)) for c in cells],
        }
    )
    return record


def verdict_record(verdict: Verdict, deciding: Deciding | None = None) -> Json:
    """Return the verdict over all cells; ``deciding``: the measurement that would probably decide an undecided one."""
    return {
        "outcome": verdict.outcome.value,
        "summary": verdict.summary,
        "reasons": list(verdict.reasons),
        "crossovers": camel_record(verdict.crossovers),
        "deciding": camel_record(deciding),
    }


def cell_record(
    comparison: Comparison, verdict: CellVerdict | None, *, share: float | None = None
) -> Json:
    """Return both arms of a cell, the two ratios, and the rules where the gate judged them. ``promptsMuchSlower`` and
    ``promptsMuchFaster``: prompts whose answer took more than 1.5 times as long on the candidate, and on the
    baseline."""
    cell = comparison.cell
    return {
        **camel_record(cell),
        "label": cell.label,
        "share": share if share is not None or verdict is None else verdict.share,
        "outcome": verdict.outcome.value if verdict else None,
        "reasons": list(verdict.reasons) if verdict else [],
        "rules": camel_record(verdict.rules) if verdict else [],
        "throughputRatio": camel_record(comparison.throughput_ratio),
        "throughputRatioByRound": list(comparison.round_ratios),
        "timePerTokenRatio": camel_record(comparison.time_per_token_ratio),
        "promptsMuchSlower": comparison.much_slower[0],
        "promptsMuchFaster": comparison.much_slower[1],
        "outputsCompared": comparison.compared,
        "outputsDifferent": comparison.different,
        "newlyFailed": comparison.newly_failed,
        "baseline": arm_record(comparison.baseline),
        "candidate": arm_record(comparison.candidate),
    }


def arm_record(arm: ArmSummary) -> Json:
    """Return one arm's figures. ``mean``: by the engine's clock where it has one; quantiles: by the load client's, None
    where it cannot measure them."""
    window = arm.window
    ttft, tpot = (None, None) if client_unfit(arm) else (arm.ttft, arm.tpot)
    return {
        "requests": arm.requests,
        "failed": arm.failed,
        "outputTokens": arm.output_tokens,
        "tokensPerSecond": arm.throughput,
        "requestsPerSecond": arm.requests_per_second,
        "ttftMs": _times(ttft, arm.ttft_ms),
        "tpotMs": _times(tpot, arm.tpot_ms),
        "e2eMs": _times(arm.e2e, arm.e2e.mean if arm.e2e else None),
        "stepMs": dict(zip(("p50", "p90", "p99"), arm.steps, strict=True)) if arm.steps else None,
        "queueWaitMs": window.queue_wait_ms if window else None,
        "tokensPerStep": window.tokens_per_step if window else None,
        "acceptanceRate": window.acceptance_rate if window else None,
        "acceptanceLength": window.acceptance_length if window else None,
        "coverage": window.coverage if window else None,
        "acceptanceByPosition": list(window.position_rates) if window else [],
        "drafts": window.drafts if window else None,
        "draftTokens": window.draft_tokens if window else None,
        "acceptedTokens": window.accepted if window else None,
        "preemptions": window.preemptions if window else None,
    }


def _p99(cell: CellReport) -> Json:
    """The 99th percentiles with the load client's own error, or the reason why there is none."""
    return {
        arm: {
            f"{name}Ms": {
                "value": t.value_ms,
                "error": t.error_ms,
                "why": t.why,
            }
            for name, t in tails.items()
        }
        for arm, tails in cell.tails.items()
    }


def _times(spread: Spread | None, mean: float | None) -> dict[str, float | None]:
    return {
        "mean": mean,
        **{q: getattr(spread, q) if spread else None for q in ("p50", "p90", "p99")},
    }


def camel_record(value: Any) -> Any:
    """Return dataclasses, or a tuple of them, as JSON objects with names in camel case; None as null."""
    if isinstance(value, tuple):
        return [camel_record(item) for item in value]
    return None if value is None else _camel(encode(value))


def _camel(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_camel_name(name): _camel(item) for name, item in value.items()}
    return [_camel(item) for item in value] if isinstance(value, list) else value


def _camel_name(name: str) -> str:
    head, *others = name.split("_")
    return head + "".join(part.capitalize() for part in others)


def _rounded(value: Any) -> Any:
    """Return the value with floats of six digits; NaN and infinities, which JSON cannot carry, become null."""
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
