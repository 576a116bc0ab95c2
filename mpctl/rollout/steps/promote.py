"""Make an arm the service."""

from __future__ import annotations

from typing import Any

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.revision import text_digest


def adopt(context: Context, operation: Operation) -> dict[str, Any]:
    """Make the arm the service: its manifest is the live one, and it gets the traffic."""
    plan = operation.plan
    context.progress.step(operation.begun, f"routing the service to {plan.spec}")
    moved = bool(operation.done.get("redirect", {}).get("moved"))
    context.platform.promote(plan.arm, expect=plan.arms, downtime=plan.downtime, candidate_serves=moved)
    return {"digest": text_digest(plan.text)}
