"""Give the candidate a share of the users' traffic, step by step.

The gate has promoted it on recorded prompts by then. Users' answers are not compared, but a candidate that becomes
unhealthy, or whose drafts are worth nothing on users' prompts, goes no further.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.gate.first_position import MIN_DRAFTS, judge_served_drafts
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.rollout.steps.ready import POLL_S
from mpctl.rollout.steps.redirect import route_of

UNREACHED_S = 30.0  # of a pod that is ready: a forward that is opened anew takes seconds


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
    window, last = Window.between(before, before), before
    polls: list[Window] = []
    began = context.clock.now()
    while (passed := (context.clock.now() - began).total_seconds()) < seconds:
        context.clock.sleep(min(POLL_S, seconds - passed))
        context.router.require_shifted(route, percent)
        state, now = await_counters(context, plan.arm, state, "candidate")
        try:
            window = Window.between(before, now)
            polls.append(Window.between(last, now))
            last = now
        except CounterError as error:
            raise MpctlError(f"{state.id} at {percent} % of the traffic: {error}") from error
        if why := judge_served_drafts(polls, plan.policy, draft_model=bool(plan.draft)):
            raise MpctlError(f"{state.id} at {percent} % of the traffic: {why}")
        context.progress.update(f"{_in_words(window)} ({passed:.0f} s)")
    context.progress.note(f"{percent} % of the traffic: {_in_words(window)}")
    return Shifted(percent, window.generation_tokens, window.drafts, window.tokens_per_step)


def await_counters(context: Context, arm: Arm, before: ArmState | None, name: str) -> tuple[ArmState, Counters]:
    """An arm and its counters, while it is healthy. An engine that cannot be reached from here, while its platform says
    it is ready, gets ``UNREACHED_S``: a forwarded connection that is lost says nothing of the arm. ``name``: baseline
    or candidate.

    Raises:
        MpctlError: it restarted, is not ready any more, or was not reached.
    """
    began = context.clock.now()
    while True:
        state = context.platform.state(arm)
        restarted = before is not None and state.restarts > before.restarts
        up = state.phase is Phase.READY or (state.phase is Phase.STARTING and state.pods_ready > 0)
        if restarted or not up:
            why = "it restarted" if restarted else state.message or f"it is {state.phase.value}"
            hint = context.platform.describe_failure(arm)
            raise MpctlError(f"{name} {arm.id} became unhealthy under production traffic: {why}", hint=hint)
        why = state.message
        if state.phase is Phase.READY and state.endpoint is not None:
            try:
                return state, context.meter.counters(state.endpoint)
            except CounterError as error:
                why = f"its counters cannot be read: {error}"
        waited = (context.clock.now() - began).total_seconds()
        if waited >= UNREACHED_S:
            hint = context.platform.describe_failure(arm)
            raise MpctlError(f"{arm.id} was not reached for {waited:.0f} s under users' traffic: {why}", hint=hint)
        context.progress.update(why)
        context.clock.sleep(POLL_S)


def _in_words(window: Window) -> str:
    tokens = f"{window.generation_tokens:.0f} tokens"
    if window.drafts is None:
        return tokens
    if window.drafts < MIN_DRAFTS:
        return f"{tokens}, {window.drafts:.0f} drafts (judged from {MIN_DRAFTS} on)"
    per_step = window.tokens_per_step
    return f"{tokens}, {window.drafts:.0f} drafts" + (f", {per_step:.2f} tokens per step" if per_step else "")
