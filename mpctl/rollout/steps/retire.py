"""Stop the arms that are no longer needed."""

from __future__ import annotations

from typing import Any

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation


def retire(context: Context, operation: Operation) -> dict[str, Any]:
    """Stop the other arms, unless they are kept for an instant way back."""
    if operation.plan.keep_baseline:
        return {"kept": operation.plan.baseline_arm.id}
    context.progress.step("retire", "stopping the other engine")
    context.platform.stop_all_except(operation.plan.arm)
    return {}


def release(context: Context, operation: Operation) -> dict[str, Any]:
    """End the arm that an earlier rollout kept; its GPUs are needed."""
    context.progress.step("release", "ending the arm that was kept before")
    context.platform.stop_all_except(operation.plan.baseline_arm)
    return {}
