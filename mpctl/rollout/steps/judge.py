"""Ask the gate about the measured rounds."""

from __future__ import annotations

from typing import Any

from mpctl.records import encode
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.steps.measure import measurement


def judge(context: Context, operation: Operation) -> dict[str, Any]:
    """Ask the gate, once for all, about the rounds that were measured."""
    measured = measurement(context, operation)
    _, verdict = measured.interim(measured.rounds())
    context.progress.step("judge", verdict.outcome.value)
    record: dict[str, Any] = encode(verdict)
    return record
