"""Stop the arms that are no longer needed."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Nothing, Operation, StepResult


@dataclass(frozen=True)
class Retired(StepResult):
    """The baseline's arm where it was retained, otherwise None."""

    retained: str | None = None


def retire(context: Context, operation: Operation) -> Retired:
    """Stop the other arms, unless they are retained for an instant rollback."""
    if operation.plan.keep_baseline:
        return Retired(operation.plan.baseline_arm.id)
    context.progress.step("retire", "stopping the other engine once it has answered its requests")
    context.platform.stop_all_except(operation.plan.arm)
    return Retired()


def stop_copy(context: Context, operation: Operation) -> Nothing:
    """Stop the copy of the baseline, which was only measured."""
    context.progress.step("retire", "stopping the copy of the baseline")
    context.platform.stop(operation.plan.measured_baseline)
    return Nothing()


def stop_replaced(context: Context, operation: Operation) -> Nothing:
    """Stop the engine that a restart replaced; a retained baseline stays."""
    context.progress.step("retire", "stopping the replaced engine once it has answered its requests")
    context.platform.stop(operation.plan.baseline_arm)
    return Nothing()


def release(context: Context, operation: Operation) -> Nothing:
    """Stop the baseline that an earlier rollout retained; its GPUs are needed."""
    context.progress.step("release", "stopping the baseline that was retained before")
    context.platform.stop_all_except(operation.plan.baseline_arm)
    return Nothing()
