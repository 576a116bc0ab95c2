"""Judge a candidate on users' requests, or on copies of them, by the counters of all pods over the same time.

Users set the load, so the time per output token at equal load per pod is identified, and neither throughput nor
saturation is: as many tokens come out as are asked for. The unit is a window of time, long enough for the requests of
one not to decide the next: y = ln(mean time per output token of the candidate / of all baseline pods together), with
Student's t at the gate's own levels, first-order autoregression, and both bounds moved outwards by a constant
difference between pods, which no number of windows averages away (figures: scripts/figures/users-table.md).

Requests that a user gives up end early on the baseline and run on at a candidate that gets copies, whose answers nobody
reads, so times are compared per token and per request, never as totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from mpctl import formatting
from mpctl.experiment.counters import Window
from mpctl.experiment.users import ArmsReading, TrafficWindow, UsersTraffic
from mpctl.gate.policy import Policy
from mpctl.stats.confidence import Interval, Stage, Trimmed, ratio_interval, widened
from mpctl.stats.numerics import special
from mpctl.stats.sequential import FEWEST  # no coin orders windows: both arms have the same

LOOKS = 30  # windows at most, each followed by an interim analysis
STEP_REQUESTS = 20  # on the candidate, before it gets a larger share
READ_S = 5.0  # between two readings: what a harmful candidate serves until it is noticed
_FIRST_S = 600.0  # in which the first share of a split brings STEP_REQUESTS

_HARM_LOOKS = (5, 7, 10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320)  # requests on the candidate
_HARM_AGAIN = 8  # times that a step is judged from its next request on
_HARM_ERROR = 0.01  # of an equal candidate, over all looks and steps
_HARM_SPREAD, _HARM_WEIGHT = (
    0.45,
    9,
)  # of one request's time per token, as if seen in so many readings before
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
        parts = [f"{name} {in_words(interval)}" for name, interval in named if interval is not None]
        counted = (
            f"{formatting.count(self.candidate_requests)} requests on the candidate, "
            f"{formatting.count(self.baseline_requests)} on {formatting.plural(self.pods, 'baseline pod')}, "
            f"in {self.windows} of at most {self.planned} windows"
        )
        return f"{', '.join(parts)}: {counted}" if parts else f"no window is full yet: {counted}"


def in_words(interval: Interval) -> str:
    """Return ``0.63x (95% CI 0.58x to 0.69x)``."""
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
    stage = Stage(
        len(windows), max(planned, len(windows)), below=policy.side, above=policy.side, first=FEWEST
    )

    def logs(figure: Callable[[Window], float | None]) -> list[float]:
        read = [
            (figure(base), figure(cand)) for base, cand in zip(baseline, candidate, strict=True)
        ]
        return [math.log(cand / base) for base, cand in read if base and cand]

    def ratio(figure: Callable[[Window], float | None]) -> Interval | None:
        values = logs(figure)
        if not values:
            return None
        return widened(
            ratio_interval(values, stage, correlated=True),
            math.log1p(policy.max_pod_gap),
            ratio=True,
        )

    return TrafficFigures(
        *(len(windows), planned, seconds, pods, round(theirs), round(ours)),
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


@dataclass
class _TimeEvidence:
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

    def slowdown(self, error: float, policy: Policy) -> float | None:
        """Return by how much the candidate is slower where the lower bound is above the policy's limit; None elsewhere,
        and between two looks. What two equal pods may differ by is added to the error of the requests."""
        answered = self.requests
        due = sum(answered >= look for look in _HARM_LOOKS)
        if due <= self.looked or self.others < _HARM_LOOKS[0] or not self.their_seconds:
            return None
        self.looked = due
        mean = math.fsum(seconds for _, seconds in self.parts) / answered
        if mean <= 0:
            return None
        squares = math.fsum(
            count * (seconds / count / mean - 1) ** 2 for count, seconds in self.parts
        )
        freedom = _HARM_WEIGHT + len(self.parts) - 1
        spread = math.sqrt((_HARM_WEIGHT * _HARM_SPREAD**2 + squares) / freedom)
        value = math.log(mean / (self.their_seconds / self.others))
        by_chance = float(special.stdtrit(freedom, 1 - error / len(_HARM_LOOKS))) * spread
        by_chance *= math.sqrt(1 / answered + 1 / self.others)
        low = value - math.hypot(by_chance, math.log1p(policy.max_pod_gap))
        return math.exp(value) if low > math.log(policy.max_tpot_ratio) else None


@dataclass
class HarmWatch:
    """Stops a candidate that slows users, from the fifth request on. The lower bound of its slowdown, with the margin
    for what two equal pods may differ by, is compared with the policy's limit after 5, 7, 10, 14, 20, 28, ... requests
    on it, of this step and of all steps; an equal candidate is stopped in fewer than 1 of 100 rollouts of ``steps``.
    After 320 requests the step is judged from its next request on, since users may come in bursts that only then slow
    it. One whose requests wait in two readings, while none waits on the baseline, is stopped at once.

    The baseline on quiet prompts is no limit, although it would stop half the speed on busy pods at a smaller share:
    under users' load an equal engine is slower than that, and 9 to 20 of 25 simulated splits of one would be stopped.
    """

    policy: Policy
    steps: int = 1
    _every: _TimeEvidence = field(default_factory=_TimeEvidence)
    _step: _TimeEvidence = field(default_factory=_TimeEvidence)
    _before: float = 0.0  # requests of this step whose evidence was judged to its end
    _waiting: int = 0

    @property
    def requests(self) -> float:
        """Requests that the candidate answered in this step."""
        return self._before + self._step.requests

    def begin_step(self) -> None:
        """Begin a step with another share: what a candidate does under a small load says little of a larger one."""
        self._step, self._before = _TimeEvidence(), 0.0

    def add(self, window: TrafficWindow, reading: ArmsReading) -> str:
        """Return why the candidate must be stopped after this reading; "" while nothing shows that."""
        slow = ""
        for evidence, tests in ((self._every, 2), (self._step, 2 * (self.steps + _HARM_AGAIN))):
            evidence.add(window.candidate, window.baseline)
            slowdown = evidence.slowdown(_HARM_ERROR / tests, self.policy)
            if slowdown is not None:
                slow = (
                    f"its time per output token is {formatting.ratio(slowdown)} the baseline's over "
                    f"{formatting.count(evidence.requests)} requests "
                    f"(at most {formatting.limit(self.policy.max_tpot_ratio, 'x')})"
                )
        if self._step.requests >= _HARM_LOOKS[-1]:
            self._step, self._before = _TimeEvidence(), self.requests
        return self._queued(reading) or slow

    def _queued(self, reading: ArmsReading) -> str:
        ours, theirs = (
            sum(c.waiting or 0.0 for c in arm.values())
            for arm in (reading.candidate, reading.baseline)
        )
        # A baseline of which nothing was read is no proof that none waits there.
        self._waiting = self._waiting + 1 if ours and reading.baseline and not theirs else 0
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
