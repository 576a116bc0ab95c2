"""Ask the gate about the measured rounds."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.gate.verdict import Verdict
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.steps.measure import measurement


@dataclass(frozen=True)
class Judged(StepResult):
    """The gate's verdict on the measured rounds."""

    verdict: Verdict


def verdict_of(operation: Operation) -> Verdict | None:
    """The gate's verdict on an operation; None while it has not judged."""
    judged = operation.result("judge", Judged)
    return None if judged is None else judged.verdict


def judge(context: Context, operation: Operation) -> Judged:
    """Ask the gate, once for all, about the rounds that were measured."""
    measured = measurement(context, operation)
    _, verdict = measured.interim(measured.rounds())
    context.progress.step("judge", verdict.outcome.value)
    return Judged(verdict)
