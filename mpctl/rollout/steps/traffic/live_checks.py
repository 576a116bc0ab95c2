"""The gate's checks of an arm under users' traffic: it is healthy, and its drafts are worth something."""

from __future__ import annotations

from collections.abc import Callable

from mpctl.errors import MpctlError
from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.gate.first_position import MIN_DRAFTS, judge_served_drafts
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.rollout.steps.ready import POLL_S

PROMOTED_POLL_S = 5.0  # each poll reads the service's pods
UNREACHED_S = 30.0  # of a pod that is ready: a forward that is opened anew takes seconds


def hold(
    context: Context,
    operation: Operation,
    start: tuple[ArmState, Counters],
    seconds: float,
    *,
    where: str,
    check: Callable[[], None] = lambda: None,
    promoted: bool = False,
) -> Window:
    """Check the plan's arm for ``seconds``; returns what its counters showed. ``start``: the arm and its counters
    before; ``check`` is called with each poll; ``promoted``: it is the service, for minutes, whose pods come and go, so
    counters that went backwards begin again.

    Raises:
        MpctlError: the arm does not do well, or ``check`` says so.
    """
    plan, (state, before) = operation.plan, start
    name, poll_s = ("promoted", PROMOTED_POLL_S) if promoted else ("candidate", POLL_S)
    window, last = Window.between(before, before), before
    polls: list[Window] = []
    began = context.clock.now()
    while (passed := (context.clock.now() - began).total_seconds()) < seconds:
        context.clock.sleep(min(poll_s, seconds - passed))
        check()
        state, now = await_counters(context, plan.arm, state, name)
        try:
            window = Window.between(before, now)
            polls.append(Window.between(last, now))
        except CounterError as error:
            if not promoted:
                raise MpctlError(f"{state.id} {where}: {error}") from error
            before = now
        last = now
        if why := judge_served_drafts(polls, plan.policy, draft_model=bool(plan.draft)):
            raise MpctlError(f"{state.id} {where}: {why}")
        context.progress.update(f"{in_words(window)} ({passed:.0f} s)")
    return window


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


def in_words(window: Window) -> str:
    """A window in words."""
    tokens = f"{window.generation_tokens:.0f} tokens"
    if window.drafts is None:
        return tokens
    if window.drafts < MIN_DRAFTS:
        return f"{tokens}, {window.drafts:.0f} drafts (judged from {MIN_DRAFTS} on)"
    per_step = window.tokens_per_step
    return f"{tokens}, {window.drafts:.0f} drafts" + (f", {per_step:.2f} tokens per step" if per_step else "")
