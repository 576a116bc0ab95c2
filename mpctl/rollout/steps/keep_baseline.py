"""Retain the baseline: start it again beside the promoted service."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.steps.ready import await_ready
from mpctl.rollout.steps.traffic.redirect import route_of


@dataclass(frozen=True)
class Retained(StepResult):
    """The arm that is retained; None with the reason where it could not be started."""

    arm: str | None = None
    reason: str = ""


def keep_baseline(context: Context, operation: Operation) -> Retained:
    """Start the baseline again beside the promoted service. Without capacity for it the rollout stands all the same: a
    rollback then takes an engine start."""
    plan = operation.plan
    arm = plan.baseline_arm
    context.progress.step("keep-baseline", f"starting {plan.baseline_text} again, retained for an instant rollback")
    try:
        context.router.start_retained(arm, route_of(operation))
        await_ready(context, arm, plan.ready_timeout_s, name="the retained baseline")
    except MpctlError as error:
        context.progress.note(f"the baseline is not retained, a rollback takes an engine start: {error.message}")
        try:
            context.platform.stop(arm)
        except MpctlError as left:
            stop = f"{context.command('retire')} stops it"
            context.progress.note(f"it still runs beside the service: {left.message}; {stop}")
        return Retained(None, error.message)
    return Retained(arm.id)
