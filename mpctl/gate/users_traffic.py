"""Judge a candidate on users' requests, or on copies of them, by the counters of all pods over the same time.

Users set the load, so the time per output token at equal load per pod is identified, and neither throughput nor
saturation is: as many tokens come out as are asked for. The unit is a window of time, long enough for the requests of
one not to decide the next: y = ln(mean time per output token of the candidate / of all baseline pods together), with
Student's t at the gate's own levels, first-order autoregression, and both bounds moved outwards by a constant
difference between pods, which no number of windows averages away (figures: docs/explanation/gate.md).

Requests that a user gives up end early on the baseline and run on at a candidate that gets copies, whose answers nobody
reads, so times are compared per token and per request, never as totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mpctl import formatting
from mpctl.experiment.counters import Window
from mpctl.experiment.traffic import Reading, TrafficWindow, UsersTraffic
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.gate.policy import Policy
from mpctl.stats.confidence import Stage, Trimmed, chance_to_decide, ratio_interval, widened
from mpctl.stats.interval import Interval

JUDGED_ON_USERS = frozenset(  # rules that prompts cannot answer while users are on the engines
    (
        "tokens",
        "caches",
        "time per token",
        "throughput",
        "TPOT",
        "TTFT",
        "queue wait",
        "TTFT p99",
        "TPOT p99",
        "E2E p99",
    )
)
USERS_RULES = frozenset(("time per token", "equal load", "answers of users", "share", "harm", "throughput"))
LOOKS = 30  # windows at most, each followed by an interim analysis
STEP_REQUESTS = 20  # on the candidate, before it gets a larger share
READ_S = 5.0  # between two readings: what a harmful candidate serves until it is noticed
LEAST_CHANCE = 0.05  # of a decision by the remaining windows; below it, from half of them on, the measurement ends
LOOK_LIMIT_SD = 3.0  # by which the share of requests may differ from the weights before the router looks at load
_FIRST_S = 600.0  # in which the first share of a split brings STEP_REQUESTS
_CHANCE_SD = 2.0  # of the requests per pod, which differ by chance

_HARM_LOOKS = (5, 7, 10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320)  # requests on the candidate
_HARM_ERROR = 0.01  # of an equal candidate, over all looks and steps
_HARM_SPREAD, _HARM_WEIGHT = 0.45, 9  # of one request's time per token, as if seen in so many readings before
_HARM_WAITING = 2  # readings with waiting requests on the candidate alone


@dataclass(frozen=True)
class TrafficFigures:
    """Both arms over all windows. Ratios are candidate over baseline; bounds are open while there are too few windows.

    ``load_ratio``: requests of the candidate's pod over those of a baseline pod; ``load_sd``: its standard deviation by
    chance, of logarithms. ``batch``: the most requests that one pod had. ``rate``: requests per second and baseline
    pod.
    """

    windows: int
    planned: int
    seconds: float
    pods: int
    baseline_requests: int
    candidate_requests: int
    batch: float = 0.0
    rate: float = 0.0
    load_ratio: float | None = None
    load_sd: float = 0.0
    tpot_ratio: Interval | None = None
    ttft_ratio: Interval | None = None
    length_ratio: Interval | None = None
    tpot: Trimmed | None = None

    def describe(self) -> str:
        """Return ``time per output token 0.63x (95% CI 0.58x to 0.69x), ...: 40 requests beside 121 of 3 pods``."""
        named = (
            ("time per output token", self.tpot_ratio),
            ("TTFT", self.ttft_ratio),
            ("tokens per request", self.length_ratio),
        )
        parts = [f"{name} {_text(interval)}" for name, interval in named if interval is not None]
        counted = (
            f"{formatting.count(self.candidate_requests)} requests on the candidate, "
            f"{formatting.count(self.baseline_requests)} on {self.pods} baseline pod{'' if self.pods == 1 else 's'}, "
            f"in {self.windows} of at most {self.planned} windows"
        )
        return f"{', '.join(parts)}: {counted}" if parts else f"no window is full yet: {counted}"


def _text(interval: Interval) -> str:
    return f"{formatting.ratio(interval.value)} ({formatting.confidence(interval)})"


def compare_traffic(traffic: UsersTraffic, policy: Policy) -> TrafficFigures:
    """Compare the arms over windows of time."""
    windows, planned = traffic.windows, traffic.planned
    if not windows:
        return TrafficFigures(0, planned, 0.0, 0, 0, 0)
    baseline = [w.baseline for w in windows]
    candidate = [w.candidate for w in windows]
    seconds = math.fsum(w.seconds for w in windows)
    pods = round(math.fsum(w.pods for w in windows) / len(windows))
    theirs, ours = (math.fsum(w.tpot_count or 0.0 for w in arm) for arm in (baseline, candidate))
    stage = Stage(len(windows), max(planned, len(windows)), below=policy.side, above=policy.side)

    def logs(figure: Callable[[Window], float | None]) -> list[float]:
        read = [(figure(base), figure(cand)) for base, cand in zip(baseline, candidate, strict=True)]
        return [math.log(cand / base) for base, cand in read if base and cand]

    def ratio(figure: Callable[[Window], float | None]) -> Interval | None:
        values = logs(figure)
        if not values:
            return None
        return widened(ratio_interval(values, stage, correlated=True), math.log1p(policy.max_pod_gap), ratio=True)

    return TrafficFigures(
        windows=len(windows),
        planned=planned,
        seconds=seconds,
        pods=pods,
        baseline_requests=round(theirs),
        candidate_requests=round(ours),
        batch=max(w.batch for w in windows),
        rate=theirs / seconds / pods if seconds and pods else 0.0,
        load_ratio=ours / theirs * pods if theirs else None,
        load_sd=math.sqrt(1 / ours + 1 / theirs) if ours and theirs else math.inf,
        tpot_ratio=ratio(_tpot),
        ttft_ratio=ratio(lambda w: _mean(w.ttft_seconds, w.ttft_count)),
        length_ratio=ratio(lambda w: _mean(w.generation_tokens, w.ttft_count)),
        tpot=Trimmed.of(logs(_tpot), correlated=True),
    )


def _tpot(window: Window) -> float | None:
    return _mean(window.tpot_seconds, window.tpot_count)


def _mean(total: float | None, count: float | None) -> float | None:
    return None if not total or not count else total / count


def judge_traffic(traffic: UsersTraffic, policy: Policy) -> tuple[RuleResult, ...]:
    """Pass a gain that the whole interval shows, fail a loss that it shows. Under unequal load nothing is promoted, and
    only a candidate that is slower under less load is rejected."""
    figures = compare_traffic(traffic, policy)
    load = _judge_load(figures, policy, copies=traffic.copies)
    rules = [_judge_tpot(figures, policy), load, _judge_length(figures, policy)]
    if load.outcome is not Outcome.PASS and (load.value or 1.0) >= 1.0:
        rules = [replace(r, outcome=Outcome.UNDECIDED) if r.outcome is Outcome.FAIL else r for r in rules]
    if not traffic.equal_share:
        what = "the candidate got a smaller share than a baseline pod, so it may be rejected and not promoted"
        rules.append(RuleResult(Outcome.MISSING, what, rule="share"))
    if traffic.stopped:
        rules.append(RuleResult(Outcome.FAIL, f"users were spared the candidate: {traffic.stopped}", rule="harm"))
    return (*rules, RuleResult(Outcome.SKIP, _unidentified(figures), rule="throughput"))


def _judge_tpot(figures: TrafficFigures, policy: Policy) -> RuleResult:
    ratio, gain, loss = figures.tpot_ratio, policy.max_time_per_token_ratio, policy.max_tpot_ratio
    limits = f"promoted below {formatting.limit(gain, 'x')}, rejected above {formatting.limit(loss, 'x')}"
    if ratio is None:
        message = f"time per output token: {figures.describe()}"
        return RuleResult(Outcome.MISSING, message, limit=gain, unit="x", rule="time per token")
    outcome = Outcome.UNDECIDED
    if ratio.below(gain, strictly=True):
        outcome = Outcome.PASS
    elif ratio.above(loss, strictly=True):
        outcome = Outcome.FAIL
    gap = formatting.limit(policy.max_pod_gap, "share")
    message = (
        f"time per output token {_text(ratio)} of the baseline's over {figures.windows} windows of users' requests, "
        f"{formatting.count(figures.candidate_requests)} on the candidate ({limits}); widened by {gap}, for what two "
        "equal pods may differ"
    )
    n = min(figures.candidate_requests, figures.baseline_requests)
    return RuleResult(outcome, message, ratio.value, gain, ratio, n, "x", rule="time per token")


def _judge_load(figures: TrafficFigures, policy: Policy, *, copies: bool) -> RuleResult:
    ratio, most = figures.load_ratio, policy.max_load_gap
    if not ratio:
        return RuleResult(Outcome.MISSING, "requests per pod were not counted", limit=most, rule="equal load")
    gap = abs(math.log(ratio))
    unequal = gap - _CHANCE_SD * figures.load_sd > math.log1p(most)
    message = (
        f"the candidate answered {formatting.ratio(ratio)} the requests of a baseline pod "
        f"(at most {formatting.limit(most, 'share')} apart)"
    )
    if gap > LOOK_LIMIT_SD * figures.load_sd and not copies:
        message += "; the router looks at load: judged at equal queue, not at equal load"
    return RuleResult(
        Outcome.UNDECIDED if unequal else Outcome.PASS, message, ratio, 1 + most, None, 0, "x", rule="equal load"
    )


def _judge_length(figures: TrafficFigures, policy: Policy) -> RuleResult:
    """Answers of other requests differ in length by chance, so the rule fails by its whole interval only."""
    ratio, most = figures.length_ratio, policy.max_length_ratio
    if ratio is None:
        return RuleResult(Outcome.SKIP, "tokens per answer were not counted", limit=most, rule="answers of users")
    far = ratio.above(most, strictly=True) or ratio.below(1 / most, strictly=True)
    message = f"tokens per answer {_text(ratio)} (at most {formatting.limit(most, 'x')} either way)"
    return RuleResult(
        Outcome.FAIL if far else Outcome.PASS, message, ratio.value, most, ratio, 0, "x", rule="answers of users"
    )


def _unidentified(figures: TrafficFigures) -> str:
    return (
        "throughput is not identified, because users set the load; saturation is unknown: at most "
        f"{formatting.count(figures.batch)} requests were on one pod at once, {formatting.number(figures.rate)} "
        "requests/s per pod"
    )


def is_decided(traffic: UsersTraffic, policy: Policy) -> bool:
    """Return whether further windows are not needed: the gate has decided, all are measured, or the rest would not
    decide."""
    if len(traffic.windows) >= traffic.planned:
        return True
    outcomes = {rule.outcome for rule in judge_traffic(traffic, policy)}
    return Outcome.FAIL in outcomes or outcomes <= {Outcome.PASS, Outcome.SKIP} or is_hopeless(traffic, policy)


def is_hopeless(traffic: UsersTraffic, policy: Policy) -> bool:
    """Return whether the remaining windows would decide in less than LEAST_CHANCE of cases; False before half."""
    figures = compare_traffic(traffic, policy)
    made = figures.tpot
    if made is None or 2 * figures.windows < figures.planned:
        return False
    margin = math.log1p(policy.max_pod_gap)
    gain = math.log(policy.max_time_per_token_ratio) - made.mean - margin
    loss = made.mean - math.log(policy.max_tpot_ratio) - margin
    return all(chance_to_decide(gap, made, figures.planned, policy.side) < LEAST_CHANCE for gap in (gain, loss))


@dataclass
class _Evidence:
    """Requests of the candidate with their summed times, by reading, and those of the baseline beside them."""

    parts: list[tuple[float, float]] = field(default_factory=list)
    others: float = 0.0
    their_seconds: float = 0.0
    looked: int = 0

    @property
    def requests(self) -> float:
        return math.fsum(count for count, _ in self.parts)

    def add(self, ours: Window, theirs: Window) -> None:
        if ours.tpot_count and ours.tpot_seconds is not None:
            self.parts.append((ours.tpot_count, ours.tpot_seconds))
        self.others += theirs.tpot_count or 0.0
        self.their_seconds += theirs.tpot_seconds or 0.0

    def slowdown(self, error: float, limit: float) -> float | None:
        """Return by how much the candidate is slower where the lower bound is above ``limit``; None elsewhere, and
        between two looks."""
        from scipy.special import stdtrit

        made = self.requests
        due = sum(made >= look for look in _HARM_LOOKS)
        if due <= self.looked or self.others < _HARM_LOOKS[0] or not self.their_seconds:
            return None
        self.looked = due
        mean = math.fsum(seconds for _, seconds in self.parts) / made
        if mean <= 0:
            return None
        squares = math.fsum(count * (seconds / count / mean - 1) ** 2 for count, seconds in self.parts)
        freedom = _HARM_WEIGHT + len(self.parts) - 1
        spread = math.sqrt((_HARM_WEIGHT * _HARM_SPREAD**2 + squares) / freedom)
        reach = float(stdtrit(freedom, 1 - error / len(_HARM_LOOKS)))
        value = math.log(mean / (self.their_seconds / self.others))
        low = value - reach * spread * math.sqrt(1 / made + 1 / self.others)
        return math.exp(value) if low > math.log(limit) else None


@dataclass
class HarmWatch:
    """Stops a candidate that slows users, from the fifth request on. The lower bound of its slowdown is compared with
    the policy's limit after 5, 7, 10, 14, 20, 28, ... requests on it, of this step and of all steps; an equal candidate
    is stopped in 1 of 100 rollouts of ``steps``. One whose requests wait in two readings, while none waits on the
    baseline, is stopped at once."""

    policy: Policy
    steps: int = 1
    _every: _Evidence = field(default_factory=_Evidence)
    _step: _Evidence = field(default_factory=_Evidence)
    _waiting: int = 0

    @property
    def requests(self) -> float:
        """Requests that the candidate answered in this step."""
        return self._step.requests

    def begin_step(self) -> None:
        """Begin a step with another share: what a candidate does under a small load says little of a larger one."""
        self._step = _Evidence()

    def add(self, window: TrafficWindow, reading: Reading) -> str:
        """Return why the candidate must be stopped after this reading; "" while nothing shows that."""
        limit, slow = self.policy.max_tpot_ratio, ""
        for evidence, tests in ((self._every, 2), (self._step, 2 * self.steps)):
            evidence.add(window.candidate, window.baseline)
            slowdown = evidence.slowdown(_HARM_ERROR / tests, limit)
            if slowdown is not None:
                slow = (
                    f"its time per output token is {formatting.ratio(slowdown)} the baseline's over "
                    f"{formatting.count(evidence.requests)} requests (at most {formatting.limit(limit, 'x')})"
                )
        return self._queued(reading) or slow

    def _queued(self, reading: Reading) -> str:
        ours, theirs = (sum(c.waiting or 0.0 for c in arm.values()) for arm in (reading.candidate, reading.baseline))
        self._waiting = self._waiting + 1 if ours and not theirs else 0
        if self._waiting < _HARM_WAITING:
            return ""
        return f"{formatting.count(ours)} requests wait on the candidate and none on the baseline"


def equal_share(pods: int) -> int:
    """The largest percentage of users' requests that loads one candidate pod no more than each of ``pods`` others."""
    return 100 // (pods + 1)


def ramp(pods: int, rate: float, most: int) -> tuple[int, ...]:
    """The shares in percent by which the candidate comes to ``most``: first what brings 20 requests in 10 minutes at
    ``rate`` requests per second, then at most double."""
    share = min(max(1, math.ceil(100 * STEP_REQUESTS / _FIRST_S / rate) if rate > 0 else 1), most)
    steps = [share]
    while steps[-1] < most:
        steps.append(min(next_share(steps[-1], pods), most))
    return tuple(steps)


def next_share(before: int, pods: int) -> int:
    """The largest share that may follow ``before``: a tenth of a pod's load, from there on double."""
    return max(2 * before, equal_share(pods) // 10, 1)
