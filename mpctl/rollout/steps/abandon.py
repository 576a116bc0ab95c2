"""End an operation without another change to the service."""

from __future__ import annotations

from typing import Any

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import Arm
from mpctl.rollout.steps.record import record_revision


def abandon(context: Context, operation: Operation, scaling: dict[str, Any] | None) -> None:
    """End an operation without another change to the service: record it, put the route back, remove the candidate,
    free the autoscaler. ``scaling``: as the last that held it did."""
    plan = operation.plan
    text = context.platform.live_text()
    if text is not None:
        for arm in plan.arms:
            context.platform.restore_strategy(arm)
        text = context.platform.read().text
    context.progress.step("abandon", "leaving the service as it is" if text is not None else "the service is gone")
    if text is not None and all(r.text != text for r in context.store.revisions()):
        record_revision(context, operation, text, why=f"as {operation.id} was abandoned", spec="as found")
    if plan.route is not None:
        for line in context.router.unshift(plan.route):
            context.progress.note(line)
    context.platform.stop_all_except(Arm(plan.baseline if text is None else text))
    if scaling is not None:
        for line in context.scaler.unpin(scaling):
            context.progress.note(line)
