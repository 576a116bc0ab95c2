"""Checks of an arm under users' traffic: it is healthy, and its drafts are worth something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.gate.first_position import MIN_DRAFTS, judge_served_drafts
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.rollout.steps.ready import POLL_S

PROMOTED_POLL_S = 5.0  # each poll reads the service's pods
UNREACHED_S = 30.0  # of a pod that is ready: a forward that is opened anew takes seconds


@dataclass(frozen=True)
class Until:
    """The end of a check: after ``seconds``, and then as soon as ``enough`` was observed, or after ``most_s``; polled
    every ``poll_s``."""

    seconds: float
    most_s: float = 0.0
    enough: Callable[[Sequence[Window]], bool] = lambda polls: True
    poll_s: float = POLL_S

    def is_over(self, passed: float, polls: Sequence[Window]) -> bool:
        """Return whether the check ends. ``polls``: the counters from poll to poll."""
        return passed >= self.seconds and (passed >= self.most_s or self.enough(polls))

    def remaining(self, passed: float) -> float:
        """Seconds until the next possible end."""
        return (self.seconds if passed < self.seconds else self.most_s) - passed


def hold(
    context: Context,
    operation: Operation,
    start: tuple[ArmState, Counters],
    until: Until,
    *,
    where: str,
    check: Callable[[Counters], None] = lambda counters: None,
    describe: Callable[[Window], str] | None = None,
    promoted: bool = False,
) -> Window:
    """Check the plan's arm ``until`` the end; returns what its counters showed. ``start``: the arm and its counters
    before; ``check`` is called with the counters of each poll; ``promoted``: it is the service, for minutes, whose pods
    come and go, so counters that went backwards begin again.

    Raises:
        MpctlError: the arm does not do well, or ``check`` says so.
    """
    plan, (state, before) = operation.plan, start
    name = "promoted" if promoted else "candidate"
    window, last = Window.between(before, before), before
    polls: list[Window] = []
    began = context.clock.now()
    while not until.is_over(passed := (context.clock.now() - began).total_seconds(), polls):
        context.clock.sleep(min(until.poll_s, until.remaining(passed)))
        state, now = await_counters(context, plan.arm, state, name)
        check(now)
        try:
            window = Window.between(before, now)
            polls.append(Window.between(last, now))
        except CounterError as error:
            if not promoted:
                raise MpctlError(f"the {name} {where}: {error}") from error
            before = now
        last = now
        if why := judge_served_drafts(polls, plan.policy, draft_model=bool(plan.draft)):
            raise MpctlError(f"the {name} {where}: {why}")
        context.progress.update(f"{(describe or in_words)(window)} ({passed:.0f} s)")
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
            raise MpctlError(f"the {name} became unhealthy under production traffic: {why}", hint=hint)
        why = state.message
        if state.phase is Phase.READY and state.endpoint is not None:
            try:
                return state, context.meter.counters(state.endpoint)
            except CounterError as error:
                why = f"its counters cannot be read: {error}"
        waited = (context.clock.now() - began).total_seconds()
        if waited >= UNREACHED_S:
            hint = context.platform.describe_failure(arm)
            raise MpctlError(f"the {name} was not reached for {waited:.0f} s under users' traffic: {why}", hint=hint)
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
