"""Users' requests on the candidate: measured on copies or on a share of them, and shifted to it step by step.

Every pod of the baseline is read with the candidate. A candidate that slows users is stopped within a few requests, and
the route is restored before anything else. Killed at any moment, the step begins again with the smallest share and
keeps the windows it has. No traffic step promotes: at a smaller share than a baseline pod's the candidate is flattered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mpctl import formatting
from mpctl.errors import MpctlError
from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.experiment.users import (
    ArmsReading,
    TrafficWindow,
    UsersTraffic,
    WindowCutter,
    between,
    unfinished_between,
)
from mpctl.gate.rule import Outcome
from mpctl.gate.rules.users import is_decided, judge_traffic
from mpctl.gate.users_traffic import (
    LOOKS,
    READ_S,
    STEP_REQUESTS,
    HarmWatch,
    TrafficFigures,
    compare_traffic,
    equal_share,
    ramp,
)
from mpctl.rollout.context import Context
from mpctl.rollout.measurement import MeasuredRounds
from mpctl.rollout.measurement_records import MeasurementRecords
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.ports import RoundProgress
from mpctl.rollout.steps.candidate import POLL_S
from mpctl.rollout.steps.measure import measurement
from mpctl.rollout.steps.traffic import Until, await_counters, in_words, route_of, watch_arm
from mpctl.stats.sequential import FEWEST

_SILENT_S = 120.0  # without a request, after which the step says so
_WRITTEN_AT_ONCE = 5  # windows: each write is an object of the cluster
_SPLIT = "split"
_LONGEST_SHARE = 10  # windows of a measurement, where requests are rare


class HarmStop(MpctlError):
    """The candidate slows users; the message says by how much."""


@dataclass
class UsersWatch:
    """Reads the baseline's pods beside the candidate's counters. ``harm``: raises HarmStop when users are slowed;
    ``windows`` are cut by ``cutter``, each reported to ``on_window``."""

    context: Context
    operation: Operation
    harm: HarmWatch | None = None
    cutter: WindowCutter | None = None
    windows: list[TrafficWindow] = field(default_factory=list)
    on_window: Callable[[], None] = lambda: None
    _first: ArmsReading | None = None
    _last: ArmsReading | None = None
    _answered_at: float = 0.0
    _silent: bool = False

    def read(self, candidate: Counters) -> ArmsReading:
        """All pods of both arms now."""
        baseline = self.context.router.counters(self.operation.plan.baseline_arm)
        return ArmsReading(self.context.clock.now().timestamp(), baseline, {"candidate": candidate})

    def add(self, candidate: Counters) -> None:
        """Take one more reading where it is due.

        Raises:
            HarmStop: the candidate slows users.
        """
        now = self.context.clock.now().timestamp()
        if self._last is not None and now - self._last.at < _read_s(self.operation):
            return
        before, reading = self._last, self.read(candidate)
        self._last = reading
        if before is None:
            self._first = reading
            self._answered_at = now
            return
        try:
            window = between(before, reading)
        except CounterError:  # a pod of the baseline came, went or restarted
            window = None
        if window is not None:
            self._note_silence(window, now)
            if self.harm is not None and (why := self.harm.add(window, reading)):
                raise HarmStop(why)
        if self.cutter is not None and (full := self.cutter.add(reading)) is not None:
            self.windows.append(full)
            self.on_window()

    def unfinished(self, *, copies: bool) -> float | None:
        """Return how many of the users' requests were aborted or failed since the first reading; None where it is
        unknown. ``copies``: those on the candidate are not counted, since no user waits for them."""
        if self._first is None or self._last is None:
            return None
        before, after = (
            {**reading.baseline, **({} if copies else reading.candidate)}
            for reading in (self._first, self._last)
        )
        return unfinished_between(before, after)

    def _note_silence(self, window: TrafficWindow, now: float) -> None:
        """Say once that no user asks."""
        if window.candidate.tpot_count or window.candidate.generation_tokens:
            self._answered_at = now
        elif not self._silent and now - self._answered_at >= _SILENT_S:
            self._silent = True
            self.context.progress.note(
                f"no request reached the candidate for {_SILENT_S:.0f} s: nothing is judged without users' requests"
            )


def measure_mirrored(context: Context, operation: Operation) -> MeasuredRounds:
    """Compare answers on prompts, then both arms on users' requests, of which the candidate gets copies."""
    return _measure(context, operation, copies=True)


def measure_split(context: Context, operation: Operation) -> MeasuredRounds:
    """Compare answers on prompts, then both arms on users' requests, of which the candidate answers a growing share."""
    return _measure(context, operation, copies=False)


def _measure(context: Context, operation: Operation, *, copies: bool) -> MeasuredRounds:
    measured, route = measurement(context, operation), route_of(operation)
    records, result = measured.records, measured.measure_answers()
    _, verdict = records.interim(result.rounds)
    if verdict.outcome is Outcome.REJECT:
        return result
    earlier = records.traffic() or UsersTraffic(planned=LOOKS, copies=copies)
    if not earlier.stopped:
        earlier = _on_users(context, operation, records, earlier)
    if earlier.stopped:
        context.router.unshift(route)
    figures = compare_traffic(earlier, operation.plan.policy)
    context.progress.note(f"users' requests: {figures.describe()}")
    windows = f"{figures.windows} windows of users' requests are measured"
    return replace(result, ended=earlier.stopped or windows)


def _on_users(
    context: Context, operation: Operation, records: MeasurementRecords, earlier: UsersTraffic
) -> UsersTraffic:
    """Move requests to the candidate step by step, and measure at the last share."""
    plan, policy = operation.plan, operation.plan.policy
    _, counters = await_counters(context, plan.arm, None, "candidate")
    read = UsersWatch(context, operation).read(counters)
    load = plan.users.load
    pods = max(len(read.baseline), load.pods if load else 1)  # one may be unreadable just now
    rate = load.requests_per_s if load else 0.0
    if earlier.copies:
        shares: tuple[int, ...] = (100 // pods,)
        harm = None
    else:
        shares = ramp(
            pods, rate, min(plan.users.share_percent or equal_share(pods), equal_share(pods))
        )
        harm = HarmWatch(policy, steps=len(shares))
        earlier = UsersTraffic(earlier.windows, LOOKS, equal_share=shares[-1] >= equal_share(pods))
    try:
        for share in shares[:-1]:
            assert harm is not None
            _share_step(context, operation, harm, share)
            harm.begin_step()
        return collect(
            context, operation, shares[-1], earlier, harm=harm, keep=records.keep_traffic, rate=rate
        )
    except HarmStop as stop:
        stopped = replace(records.traffic() or earlier, planned=LOOKS, stopped=stop.message)
        try:
            context.router.unshift(route_of(operation))
        finally:  # it waits for the candidate's last answers, and no other command may begin anew
            records.keep_traffic(stopped)
        context.progress.note(f"users are spared the candidate: {stop.message}")
        return stopped


def _share_step(context: Context, operation: Operation, harm: HarmWatch, percent: int) -> None:
    """Hold one share until the candidate answered enough requests for the next."""
    window_s = operation.plan.policy.traffic_window_s
    context.progress.step(_SPLIT, f"{percent} % of users' requests to the candidate")
    where = f"at {percent} % of users' requests"
    _hold(context, operation, harm, percent, where, window_s, _LONGEST_SHARE * window_s)


def _hold(
    context: Context,
    operation: Operation,
    harm: HarmWatch,
    percent: int,
    where: str,
    seconds: float,
    longest_s: float,
) -> Window:
    """Give the candidate a share of users' requests, and watch it there until it answered enough of them."""
    route, watch = route_of(operation), UsersWatch(context, operation, harm)
    start = await_counters(context, operation.plan.arm, None, "candidate")
    watch.add(start[1])
    context.router.shift(route, percent)
    return watch_arm(
        context,
        operation,
        start,
        Until(seconds, longest_s, lambda polls: harm.requests >= STEP_REQUESTS),
        where=where,
        check=_checked(lambda: context.router.require_shifted(route, percent), watch),
    )


def collect(
    context: Context,
    operation: Operation,
    percent: int,
    traffic: UsersTraffic,
    *,
    harm: HarmWatch | None = None,
    keep: Callable[[UsersTraffic], None] = lambda traffic: None,
    rate: float = 0.0,
) -> UsersTraffic:
    """Give the candidate ``percent`` of users' requests, or copies of them, and cut windows until the gate has decided,
    the rest would not decide, or all planned windows are measured.

    Raises:
        HarmStop: the candidate slows users.
        MpctlError: the candidate does not do well, or the route is not as it was written.
    """
    plan, policy = operation.plan, operation.plan.policy
    what = f"{'copies of ' if traffic.copies else ''}{percent} % of users' requests"
    most = f"at most {traffic.planned} windows of {policy.traffic_window_s:.0f} s or more"
    context.progress.step(
        "mirror" if traffic.copies else _SPLIT, f"{what} to {plan.spec_text}: {most}"
    )
    start = await_counters(context, plan.arm, None, "candidate")
    watch = UsersWatch(context, operation, harm, windows=list(traffic.windows))
    settle_s = _send_users(context, operation, watch, start[1], percent, copies=traffic.copies)

    def now() -> UsersTraffic:
        return replace(traffic, windows=tuple(watch.windows))

    def report_window() -> None:
        lost = watch.unfinished(copies=traffic.copies)
        context.progress.round(_progress(compare_traffic(now(), policy), traffic.planned, lost))
        if len(watch.windows) % _WRITTEN_AT_ONCE == 0:
            keep(now())

    watch.on_window = report_window
    # A window is full when the candidate answered enough; ``rate`` is of all requests.
    fill_s = 100 * policy.traffic_window_requests / (rate * percent) if rate else 0.0
    window_s = max(policy.traffic_window_s, fill_s)
    longest_s = settle_s + 2 * (traffic.planned - len(watch.windows)) * window_s
    require = context.router.require_mirrored if traffic.copies else context.router.require_shifted
    try:
        watch_arm(
            context,
            operation,
            start,
            Until(
                0.0,
                longest_s,
                lambda polls: is_decided(now(), policy),
                POLL_S if harm else _read_s(operation),
            ),
            where=f"on {what}",
            check=_checked(lambda: require(route_of(operation), percent), watch),
            describe=lambda window: compare_traffic(now(), policy).describe(),
        )
    finally:
        keep(now())
    return now()


def _send_users(
    context: Context,
    operation: Operation,
    watch: UsersWatch,
    counters: Counters,
    percent: int,
    *,
    copies: bool,
) -> float:
    """Send the candidate its share or copies of users' requests, and let the watch cut windows once the change has
    settled. Returns the seconds until then. ``counters``: the candidate's, from before."""
    policy = operation.plan.policy
    settle_s = watch.read(counters).settle_s(policy.traffic_window_s)
    watch.add(counters)
    (context.router.mirror if copies else context.router.shift)(route_of(operation), percent)
    begins = context.clock.now().timestamp() + settle_s
    watch.cutter = WindowCutter(policy.traffic_window_s, policy.traffic_window_requests, begins)
    if not watch.windows:
        context.progress.note(
            f"the first {settle_s:.0f} s after the change of the route do not count"
        )
    return settle_s


def _progress(figures: TrafficFigures, planned: int, lost: float | None) -> RoundProgress:
    remaining_s = (planned - figures.windows) * figures.seconds / figures.windows
    users = (
        f"{formatting.count(figures.candidate_requests)} requests answered by the candidate, "
        f"{formatting.count(figures.baseline_requests)} by the baseline"
    )
    if lost is not None:
        users = f"{formatting.count(lost)} requests lost (aborted or failed); {users}"
    progress = RoundProgress(figures.windows, planned, figures.seconds, remaining_s, users=users)
    ratio = figures.tpot_ratio  # which decides
    if ratio is None:
        return progress
    interval = formatting.bounds(ratio) or "no interval yet"
    return replace(
        progress, figures=(("time per output token", formatting.ratio(ratio.value), interval),)
    )


def _read_s(operation: Operation) -> float:
    """Seconds between two readings of all pods."""
    return min(READ_S, operation.plan.policy.traffic_window_s / 4)


def _checked(require: Callable[[], None], watch: UsersWatch) -> Callable[[Counters], None]:
    def check(counters: Counters) -> None:
        require()
        watch.add(counters)

    return check


_LONGEST_STEP = 5  # times the duration of a traffic step, where requests are rare


@dataclass(frozen=True)
class ShiftResult(StepResult):
    """The share of the traffic and what the candidate's counters showed meanwhile."""

    percent: int
    tokens: float | None = None
    drafts: float | None = None
    tokens_per_step: float | None = None
    requests: int = 0


def shift(context: Context, operation: Operation, percent: int) -> ShiftResult:
    """Give the candidate ``percent`` of the users' traffic, and hold it there while it does well.

    Raises:
        MpctlError: the candidate does not do well, or the route is not as it was written; the rollout is undone.
    """
    plan = operation.plan
    seconds = plan.traffic.step_duration_s
    context.progress.step(
        operation.begun, f"{percent} % of the traffic to {plan.spec_text} for {seconds:.0f} s"
    )
    harm = HarmWatch(plan.policy, steps=len(plan.traffic.steps))
    where = f"at {percent} % of the traffic"
    try:
        window = _hold(context, operation, harm, percent, where, seconds, _LONGEST_STEP * seconds)
    except HarmStop as stop:
        raise MpctlError(f"{plan.arm.id} {where}: {stop.message}") from stop
    requests = round(harm.requests)
    few = (
        ""
        if requests >= STEP_REQUESTS
        else f", {requests} requests only: too few to say whether it slows users"
    )
    context.progress.note(f"{percent} % of the traffic: {in_words(window)}{few}")
    return ShiftResult(
        percent, window.generation_tokens, window.drafts, window.tokens_per_step, requests
    )


@dataclass(frozen=True)
class MirrorResult(StepResult):
    """The share of the requests, and what the engines' counters said. Ratios are candidate over baseline."""

    percent: int
    slices: int = 0
    baseline_requests: int = 0
    candidate_requests: int = 0
    time_per_output_token_ratio: float | None = None
    ttft_ratio: float | None = None
    length_ratio: float | None = None


def mirror(context: Context, operation: Operation) -> MirrorResult:
    """Mirror the plan's share of the requests until they decide, for as long as a traffic step lasts, and at least
    until the first interim analysis.

    Raises:
        MpctlError: the candidate does not do well on them, or the route is not as it was written; the rollout is
            undone.
    """
    plan = operation.plan
    percent, policy, seconds = (
        plan.traffic.mirror_percent,
        plan.policy,
        plan.traffic.step_duration_s,
    )
    planned = max(FEWEST, int(seconds / policy.traffic_window_s) - 1)
    traffic = collect(context, operation, percent, UsersTraffic(planned=planned, copies=True))
    figures = compare_traffic(traffic, policy)
    context.progress.note(f"mirrored {percent} %: {figures.describe()}")
    failed = [
        rule.message for rule in judge_traffic(traffic, policy) if rule.outcome is Outcome.FAIL
    ]
    if failed:
        raise MpctlError(
            f"the candidate on copies of {percent} % of the requests: {'; '.join(failed)}"
        )
    ratios = (figures.tpot_ratio, figures.ttft_ratio, figures.length_ratio)
    return MirrorResult(
        percent,
        figures.windows,
        figures.baseline_requests,
        figures.candidate_requests,
        *(None if ratio is None else ratio.value for ratio in ratios),
    )
