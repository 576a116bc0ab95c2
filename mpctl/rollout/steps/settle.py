"""Wait until every pod runs the written service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mpctl.manifest import redacted
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.steps.ready import await_ready
from mpctl.rollout.steps.traffic.redirect import RouteReturn


@dataclass(frozen=True)
class Settled(StepResult):
    """The arm that every pod runs, with its engine's own arguments."""

    arm: str
    argv: tuple[str, ...] = ()


def _nothing() -> None:
    pass


def settle(context: Context, operation: Operation, *, meanwhile: Callable[[], None] = _nothing) -> Settled:
    """Wait until the written service serves, then restore what was only set for the change. ``meanwhile``: as with
    :func:`await_ready`."""
    plan = operation.plan
    context.progress.step(
        "settle", f"waiting until every pod runs {plan.spec_text}, at most {plan.ready_timeout_s:.0f} s"
    )
    state = await_ready(context, plan.arm, plan.ready_timeout_s, name=plan.name_of(plan.arm), meanwhile=meanwhile)
    context.platform.restore_strategy(plan.arm)
    return Settled(state.id, redacted(state.argv or ()))


def settle_behind_retained(context: Context, operation: Operation) -> Settled:
    """As :func:`settle`, while the retained baseline has the traffic and may stop."""
    return settle(context, operation, meanwhile=RouteReturn(context, operation).check)
