"""Users' traffic on the arms: the route, checks of an engine that serves users, and the bake after a promotion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.gate.first_position import ENOUGH_DRAFTS, MIN_DRAFTS, judge_served_drafts, served_enough
from mpctl.json_types import Json
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.rollout.steps.candidate import POLL_S
from mpctl.rollout.steps.verify import grows, pinned_pods


@dataclass(frozen=True)
class RedirectResult(StepResult):
    """``moved``: the retained baseline has the traffic; ``left``: parts of the route that another writer changed."""

    moved: bool
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class UnshiftResult(StepResult):
    """Parts of the route that were left as they are because another writer changed them."""

    left: tuple[str, ...] = ()


def redirect(context: Context, operation: Operation) -> RedirectResult:
    """Give the retained baseline all of the route's traffic by one write; the service is restored behind it.

    Where the retained baseline does not serve any more, the service is restored without it. The route is restored
    then: an earlier try may have moved it before the arm stopped.
    """
    plan, route = operation.plan, route_of(operation)
    state = context.engines.state(plan.arm)
    if state.phase is not Phase.READY:
        context.progress.note(
            f"the retained baseline does not serve: {state.message or state.phase.value}"
        )
        return RedirectResult(moved=False, left=_restore(context, route))
    context.progress.step(
        "redirect", f"all traffic of route {route['name']} to the retained {plan.spec_text}"
    )
    context.router.shift(route, 100)
    return RedirectResult(moved=True)


def unshift(context: Context, operation: Operation) -> UnshiftResult:
    """Restore the route exactly as it was found, and let the other arm answer what it was sent."""
    context.progress.step("unshift", "restoring the route")
    return UnshiftResult(_restore(context, route_of(operation)))


def _restore(context: Context, route: Json) -> tuple[str, ...]:
    unrestored = context.router.unshift(route)
    for line in unrestored:
        context.progress.note(line)
    return unrestored


def redirected(operation: Operation) -> bool:
    """Return whether the operation gave the retained baseline the traffic."""
    result = operation.result("redirect", RedirectResult)
    return result is not None and result.moved


class RouteReturn:
    """Restores the route as soon as the retained baseline that has its traffic has no ready pod: the service behind
    it, restored or not yet, serves."""

    def __init__(self, context: Context, operation: Operation) -> None:
        self._context, self._operation = context, operation
        self._restored = not redirected(operation) or "unshift" in operation.done
        self._noted = ""

    def check(self) -> None:
        """Check once, without raising: what cannot be restored now is tried again and reported by the unshift step."""
        if self._restored:
            return
        try:
            retained = self._context.platform.retained_baseline()
            if retained is not None and retained.pods_ready:
                return
            unrestored = self._context.router.unshift(route_of(self._operation))
        except MpctlError as error:
            self._note(
                f"whether the retained baseline serves the traffic is unknown: {error.message}"
            )
            return
        self._restored = True
        self._note(
            "the retained baseline has no ready pod: the route is restored before the service is"
        )
        for line in unrestored:
            self._context.progress.note(line)

    def _note(self, line: str) -> None:
        if line != self._noted:
            self._noted = line
            self._context.progress.note(line)


def route_of(operation: Operation) -> Json:
    """The route as the plan found it."""
    route = operation.plan.route
    assert route is not None  # else there is no such step
    return route


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


def watch_arm(
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
    name, pinned = ("promoted", pinned_pods(operation)) if promoted else ("candidate", 0)
    window, last = Window.between(before, before), before
    polls: list[Window] = []
    began = context.clock.now()
    while not until.is_over(passed := (context.clock.now() - began).total_seconds(), polls):
        context.clock.sleep(min(until.poll_s, until.remaining(passed)))
        state, now = await_counters(context, plan.arm, state, name, pinned)
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


def await_counters(
    context: Context, arm: Arm, before: ArmState | None, name: str, pinned: int = 0
) -> tuple[ArmState, Counters]:
    """An arm and its counters, while it is healthy. An engine that cannot be reached from here, while its platform says
    it is ready, gets ``UNREACHED_S``: a forwarded connection that is lost says nothing of the arm. ``name``: baseline
    or candidate. ``pinned``: so many ready pods are enough while an autoscaler adds more.

    Raises:
        MpctlError: it restarted, is not ready any more, or was not reached.
    """
    began = context.clock.now()
    while True:
        state = context.engines.state(arm)
        restarted = before is not None and state.restarts > before.restarts
        serves = state.phase is Phase.READY or grows(state, pinned)
        if restarted or not (serves or (state.phase is Phase.STARTING and state.pods_ready)):
            why = "it restarted" if restarted else state.message or f"it is {state.phase.value}"
            hint = context.engines.describe_failure(arm)
            raise MpctlError(
                f"the {name} became unhealthy under production traffic: {why}", hint=hint
            )
        why = state.message
        if serves and state.endpoint is not None:
            try:
                return state, context.meter.counters(state.endpoint)
            except CounterError as error:
                why = f"its counters cannot be read: {error}"
        waited = (context.clock.now() - began).total_seconds()
        if waited >= UNREACHED_S:
            hint = context.engines.describe_failure(arm)
            raise MpctlError(
                f"the {name} was not reached for {waited:.0f} s under users' traffic: {why}",
                hint=hint,
            )
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
    return f"{tokens}, {window.drafts:.0f} drafts" + (
        f", {per_step:.2f} tokens per step" if per_step else ""
    )


_LEAST_S = 60.0  # an engine that leaks or crashes under load does so after a while
_TICK_S = 60.0


@dataclass(frozen=True)
class BakeResult(StepResult):
    """The promoted arm's counters over the bake."""

    seconds: float
    tokens: float | None = None
    drafts: float | None = None
    tokens_per_step: float | None = None


def bake(context: Context, operation: Operation) -> BakeResult:
    """Check the promoted arm for the plan's time.

    Raises:
        MpctlError: it does not do well; the rollout is undone.
    """
    plan, seconds = operation.plan, operation.plan.bake.seconds
    drafts = plan.spec is not None and plan.spec.config() is not None
    least_s = min(_LEAST_S, seconds) if drafts else seconds
    enough = (
        f"; {ENOUGH_DRAFTS:,} drafts are enough, by which acceptance is known to 3 %"
        if drafts
        else ""
    )
    context.progress.step(
        "bake",
        f"{plan.spec_text} is watched under users' traffic for at most {seconds:.0f} s{enough}",
    )
    context.progress.note(
        f"Ctrl-C leaves {plan.spec_text} serving: '{context.command('resume')}' watches it again, "
        f"'{context.command('rollback')}' restores the baseline"
    )
    ticks = _Ticks(context)
    start = await_counters(context, plan.arm, None, "promoted", pinned_pods(operation))
    window = watch_arm(
        context,
        operation,
        start,
        Until(
            least_s,
            seconds,
            lambda polls: served_enough(polls, plan.policy, draft_model=bool(plan.draft)),
            PROMOTED_POLL_S,
        ),
        where="after the promotion",
        describe=ticks.describe,
        promoted=True,
    )
    if not window.generation_tokens:
        judged = f"'{context.command('watch')}' judges those that do"
        context.progress.note(f"bake: no request came, so it showed nothing; {judged}")
    else:
        context.progress.note(f"bake: {in_words(window)}")
    return BakeResult(ticks.passed, window.generation_tokens, window.drafts, window.tokens_per_step)


class _Ticks:
    """A line a minute with what was counted, and a warning while no request comes."""

    def __init__(self, context: Context) -> None:
        self._context, self._began, self._next, self._warned = (
            context,
            context.clock.now(),
            _TICK_S,
            False,
        )

    @property
    def passed(self) -> float:
        """Seconds since the begin."""
        return (self._context.clock.now() - self._began).total_seconds()

    def describe(self, window: Window) -> str:
        """The counted tokens and drafts."""
        if self.passed >= self._next:
            self._next += _TICK_S
            if window.generation_tokens:
                self._context.progress.note(f"bake: {in_words(window)} ({self.passed:.0f} s)")
            elif not self._warned:
                self._warned = True
                self._context.progress.note(
                    f"bake: no request in {self.passed:.0f} s; without users' traffic the bake shows nothing"
                )
        return in_words(window)
