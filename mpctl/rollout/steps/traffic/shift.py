"""Give the candidate a share of the users' traffic, step by step.

The gate has promoted it on recorded prompts by then. Users' answers are not compared, but a candidate that becomes
unhealthy, or whose drafts are worth nothing on users' prompts, goes no further.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.steps.traffic.live_checks import await_counters, hold, in_words
from mpctl.rollout.steps.traffic.redirect import route_of


@dataclass(frozen=True)
class Shifted(StepResult):
    """The share of the traffic and what the candidate's counters showed meanwhile."""

    percent: int
    tokens: float | None = None
    drafts: float | None = None
    tokens_per_step: float | None = None


def shift(context: Context, operation: Operation, percent: int) -> Shifted:
    """Give the candidate ``percent`` of the users' traffic, and hold it there while it does well.

    Raises:
        MpctlError: the candidate does not do well, or the route is not as it was written; the rollout is undone.
    """
    plan = operation.plan
    route = route_of(operation)
    seconds = plan.step_duration_s
    context.progress.step(operation.begun, f"{percent} % of the traffic to {plan.spec_text} for {seconds:.0f} s")
    state, before = await_counters(context, plan.arm, None, "candidate")
    context.router.shift(route, percent)
    window = hold(
        context,
        operation,
        (state, before),
        seconds,
        where=f"at {percent} % of the traffic",
        check=lambda: context.router.require_shifted(route, percent),
    )
    context.progress.note(f"{percent} % of the traffic: {in_words(window)}")
    return Shifted(percent, window.generation_tokens, window.drafts, window.tokens_per_step)
