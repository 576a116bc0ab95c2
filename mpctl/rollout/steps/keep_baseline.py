"""Start the old arm again beside the promoted service."""

from __future__ import annotations

from typing import Any

from mpctl.errors import MpctlError
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.steps.ready import await_ready
from mpctl.rollout.steps.redirect import route_of


def keep_baseline(context: Context, operation: Operation) -> dict[str, Any]:
    """Start the old arm again beside the promoted service, and leave it there. Without room for it by now, the rollout
    stands all the same: a rollback then takes an engine start."""
    plan = operation.plan
    arm = plan.baseline_arm
    context.progress.step("keep-baseline", f"starting {plan.baseline_spec} again, to be kept for an instant way back")
    try:
        context.router.start_retained(arm, route_of(operation))
        await_ready(context, arm, plan.ready_timeout_s)
    except MpctlError as error:
        context.progress.note(f"the old arm is not kept, a rollback takes an engine start: {error.message}")
        try:
            context.platform.stop(arm)
        except MpctlError as left:
            context.progress.note(f"it is left beside the service: {left.message}; mpctl retire ends it")
        return {"kept": None, "reason": error.message}
    return {"kept": arm.id}
