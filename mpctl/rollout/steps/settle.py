"""Wait until every pod runs the written service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpctl.manifest import redacted
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.steps.ready import await_ready
from mpctl.rollout.steps.redirect import Leaving


def _nothing() -> None:
    pass


def settle(context: Context, operation: Operation, *, meanwhile: Callable[[], None] = _nothing) -> dict[str, Any]:
    """Wait until the written service serves, then take back what was only set for the change. ``meanwhile``: as with
    :func:`await_ready`."""
    plan = operation.plan
    context.progress.step("settle", f"waiting until every pod runs {plan.spec}, at most {plan.ready_timeout_s:.0f} s")
    state = await_ready(context, plan.arm, plan.ready_timeout_s, meanwhile=meanwhile)
    context.platform.restore_strategy(plan.arm)
    return {"arm": state.id, "argv": list(redacted(state.argv or ()))}


def settle_behind_retained(context: Context, operation: Operation) -> dict[str, Any]:
    """As :func:`settle`, while the kept arm has the traffic and may end."""
    return settle(context, operation, meanwhile=Leaving(context, operation).look)
