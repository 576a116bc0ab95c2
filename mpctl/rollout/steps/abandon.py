"""End an operation without another change to the service."""

from __future__ import annotations

from typing import Any

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import Arm
from mpctl.rollout.revision import Manifest
from mpctl.rollout.steps.record import revision_of


def abandon(context: Context, operation: Operation, scaling: dict[str, Any] | None) -> None:
    """Record the service as it is, restore the route, stop the candidate, unpin the autoscaler.

    ``scaling``: as the last operation that pinned it found it.
    """
    plan = operation.plan
    text = context.platform.live_text()
    if text is not None:
        for manifest in (plan.baseline, plan.goal):
            if manifest.text:
                context.platform.restore_strategy(Arm(manifest.text))
        text = context.platform.read().text
    context.progress.step("abandon", "leaving the service as it is" if text is not None else "the service is gone")
    if text is not None and all(r.text != text for r in context.store.revisions()):
        revision_of(context, Manifest.of(text), operation.id, why=f"as {operation.id} was abandoned", spec=None)
    if plan.route is not None:
        for line in context.router.unshift(plan.route):
            context.progress.note(line)
    context.platform.stop_all_except(Arm(plan.baseline.text if text is None else text))
    if scaling is not None:
        for line in context.scaler.unpin(scaling):
            context.progress.note(line)
