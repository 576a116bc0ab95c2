"""Start an arm: beside the serving one, or in its place."""

from __future__ import annotations

from typing import Any

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Kind, Plan


def start(context: Context, operation: Operation) -> dict[str, Any]:
    """Start the arm beside the one that serves."""
    context.progress.step("start", f"starting {operation.plan.spec} beside the serving engine")
    context.platform.start(operation.plan.arm)
    if operation.plan.kind is Kind.ROLLOUT:
        context.meter.prepare()
    return {"arm": operation.plan.arm.id}


def replace(context: Context, operation: Operation) -> dict[str, Any]:
    """Stop the serving arm and start the other in its place."""
    plan = operation.plan
    down = (
        "the old engine goes when the new one is ready" if _stays_up(context, plan) else "the service is down meanwhile"
    )
    context.progress.step("switch", f"switching to {plan.spec}; {down}")
    context.platform.replace(plan.arm, expect=plan.arms, downtime=plan.downtime)
    return {"arm": plan.arm.id}


def _stays_up(context: Context, plan: Plan) -> bool:
    return context.platform.rolls and not plan.downtime
