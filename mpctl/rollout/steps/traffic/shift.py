"""Give the candidate a share of the users' traffic, step by step.

The gate has promoted it on recorded prompts by then. A candidate that becomes unhealthy, slows users, lets requests
wait, or whose drafts are worth nothing on users' prompts, goes no further. No step promotes: at a smaller share than a
baseline pod's the candidate is flattered.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.experiment.counters import Counters
from mpctl.gate.users_traffic import STEP_REQUESTS, HarmWatch
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.steps.traffic.live_checks import Until, await_counters, hold, in_words
from mpctl.rollout.steps.traffic.redirect import route_of
from mpctl.rollout.steps.traffic.users import HarmStop, UsersWatch

_LONGEST = 5  # times the duration of a step, where requests are rare


@dataclass(frozen=True)
class Shifted(StepResult):
    """The share of the traffic and what the candidate's counters showed meanwhile."""

    percent: int
    tokens: float | None = None
    drafts: float | None = None
    tokens_per_step: float | None = None
    requests: int = 0


def shift(context: Context, operation: Operation, percent: int) -> Shifted:
    """Give the candidate ``percent`` of the users' traffic, and hold it there while it does well.

    Raises:
        MpctlError: the candidate does not do well, or the route is not as it was written; the rollout is undone.
    """
    plan = operation.plan
    route = route_of(operation)
    seconds = plan.step_duration_s
    context.progress.step(operation.begun, f"{percent} % of the traffic to {plan.spec_text} for {seconds:.0f} s")
    harm = HarmWatch(plan.policy, steps=len(plan.traffic_steps))
    watch = UsersWatch(context, operation, harm)
    start = await_counters(context, plan.arm, None, "candidate")
    watch.add(start[1])
    context.router.shift(route, percent)

    def check(counters: Counters) -> None:
        context.router.require_shifted(route, percent)
        watch.add(counters)

    try:
        window = hold(
            context,
            operation,
            start,
            Until(seconds, _LONGEST * seconds, lambda polls: harm.requests >= STEP_REQUESTS),
            where=f"at {percent} % of the traffic",
            check=check,
        )
    except HarmStop as stop:
        raise MpctlError(f"{plan.arm.id} at {percent} % of the traffic: {stop.message}") from stop
    requests = round(harm.requests)
    few = "" if requests >= STEP_REQUESTS else f", {requests} requests only: too few to say whether it slows users"
    context.progress.note(f"{percent} % of the traffic: {in_words(window)}{few}")
    return Shifted(percent, window.generation_tokens, window.drafts, window.tokens_per_step, requests)
