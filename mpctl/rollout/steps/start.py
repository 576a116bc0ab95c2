"""Start an arm: side by side with the serving one, or in its place."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.plan import Kind


@dataclass(frozen=True)
class Started(StepResult):
    """The arm that was started."""

    arm: str


def start(context: Context, operation: Operation) -> Started:
    """Start the arm beside the one that serves."""
    plan = operation.plan
    context.progress.step("start", f"starting {plan.spec_text} beside the serving engine")
    context.platform.start(plan.arm)
    if plan.kind is Kind.ROLLOUT:
        context.meter.prepare()
    return Started(plan.arm.id)


def start_copy(context: Context, operation: Operation) -> Started:
    """Start a copy of the baseline beside the service, which keeps its users."""
    copy = operation.plan.measured_baseline
    context.progress.step("start", "starting a copy of the baseline without users")
    context.platform.start(copy)
    return Started(copy.id)


def switch(context: Context, operation: Operation) -> Started:
    """Stop the serving arm and start the other in its place."""
    plan = operation.plan
    stays_up = context.platform.rolls and not plan.downtime
    down = "the old engine stops when the new one is ready" if stays_up else "the service is down meanwhile"
    context.progress.step("switch", f"switching to {plan.spec_text}; {down}")
    context.platform.replace(plan.arm, expect=plan.arms, downtime=plan.downtime)
    return Started(plan.arm.id)
