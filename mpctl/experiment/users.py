"""Users' requests by the engines' counters.

Their load, the placement of a measurement beside them, and their requests on both arms as windows between readings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.experiment.workload import prompts_for
from mpctl.formatting import plural
from mpctl.records import Record
from mpctl.stats.numerics import special

USERS_LOAD = "users-load"  # the finding that accepts a measurement far below the users' load
LEAST_OF_USERS_LOAD = 0.5  # requests at once, of those that users keep in flight on each pod
FEW = 10  # requests since the start; whoever tried an engine out sent as many
_RARE_PER_S = 0.005  # three requests in the ten minutes of a measurement
_UNSEEN = 3.0  # expected requests of which one is seen with 95 %
_SPREAD = 0.45  # of one request's time per output token, of logarithms
_CHANCE = 0.025  # that equal pods are reported to differ, on either side
_ALIKE = (
    1.1  # requests of one pod over those of another; otherwise their times differ by load or by age
)
NOTED_POD_GAP = 0.05  # between two pods of one manifest


class Placement(StrEnum):
    """Where both arms are measured, by the name that ``--measure-on`` takes.

    service: on the serving baseline and the candidate, with prompts of mpctl's own; only without users. pair: on a copy
    of the baseline and the candidate, both without users. mirror: on the baseline's pods and the candidate, which gets
    copies of users' requests. turns: on a copy of the baseline and the candidate, one after the other on one GPU.
    split: on the baseline's pods and the candidate, which answers a share of users' requests.
    """

    SERVICE = "service"
    PAIR = "pair"
    MIRROR = "mirror"
    TURNS = "turns"
    SPLIT = "split"

    @property
    def copies_baseline(self) -> bool:
        """True when a copy of the baseline is measured and users stay on the service."""
        return self in (Placement.PAIR, Placement.TURNS)

    @property
    def users_set_load(self) -> bool:
        """True when users' requests are what is measured: as many tokens come out as are asked for, so neither
        throughput nor saturation is identified."""
        return self in (Placement.MIRROR, Placement.SPLIT)


@dataclass(frozen=True)
class UserLoad:
    """Users' requests on the service before a measurement: ``requests_per_s`` over all its ``pods``.

    ``seen``: requests were running, waiting or answered between the readings, which were ``window_s`` apart.
    ``earlier_per_s``: requests since the engines started that mpctl did not send, per second. ``answer_s``: mean time
    of an answer since then, None where nothing was answered. ``age_s``: since the oldest engine started, 0 where none
    says it.
    """

    requests_per_s: float
    pods: int
    seen: bool
    window_s: float
    earlier_per_s: float = 0.0
    answer_s: float | None = None
    pod_gap: float = 0.0
    age_s: float = 0.0

    @property
    def earlier(self) -> bool:
        """True when the engines answered users since they started, whether or not one was seen now."""
        return self.earlier_per_s >= _RARE_PER_S

    @property
    def per_pod(self) -> float:
        """Requests per second of one pod."""
        return self.requests_per_s / max(self.pods, 1)

    @property
    def in_flight_per_pod(self) -> float | None:
        """Mean number of requests that a pod answers at once, by Little's law; None where no answer was timed."""
        return None if self.answer_s is None else self.per_pod * self.answer_s

    @property
    def at_once(self) -> int:
        """Requests that users keep in flight on each pod; 0 where none was seen or no answer was timed."""
        return round(self.in_flight_per_pod or 0.0) if self.seen else 0

    @property
    def in_words(self) -> str:
        """The load in one sentence without its full stop."""
        if self.seen:
            gap = (
                f", whose times per output token differ by {100 * self.pod_gap:.0f} %"
                if self.pod_gap > NOTED_POD_GAP  # by more than pods of one manifest usually do
                else ""
            )
            pods = plural(self.pods, "pod")
            return f"users send {self.requests_per_s:.2g} requests/s to {pods}{gap}"
        bound = (
            f"no user was seen in {self.window_s:.0f} s: "
            f"fewer than {_UNSEEN / self.window_s:.2g} requests/s at 95 %"
        )
        if not self.earlier:
            return bound
        return (
            f"{bound}, but users sent {self.earlier_per_s:.2g} requests/s since the engines started"
        )


def below_users_load(users: UserLoad | None, placement: Placement, sent: int) -> str:
    """Return the sentence on a measurement of ``sent`` requests at once that says little about the users' load, and
    what judges it; empty where they are at least half of those that users keep in flight, or nothing is known.

    Speculation pays less the more requests decode at once.
    """
    wanted = users.at_once if users is not None and placement.copies_baseline else 0
    if not sent or sent >= LEAST_OF_USERS_LOAD * wanted:
        return ""
    return (
        f"users keep about {wanted} requests in flight on each pod, prompts are sent {sent} at once: --concurrency "
        f"{wanted} with {prompts_for(wanted)} distinct prompts of each class judges the candidate at their load, and "
        f"--accept {USERS_LOAD} promotes it below half of it"
    )


def answered(engines: Mapping[str, Counters]) -> float:
    """Number of requests that the engines answered since they started."""
    return math.fsum(_finished(counters) for counters in engines.values())


def earlier_rate(engines: Mapping[str, Counters], now: float, own: float) -> float:
    """Requests per second since the engines started without ``own``, those that mpctl sent; 0 for a few.

    ``now``: Unix time.
    """
    total = answered(engines)
    if total - own < FEW:
        return 0.0
    rates = (
        _finished(c) / max(now - c.started, 1.0) for c in engines.values() if c.started is not None
    )
    return math.fsum(rates) * (1.0 - own / total)


def user_load(
    before: Mapping[str, Counters],
    after: Mapping[str, Counters],
    window_s: float,
    earlier_per_s: float,
) -> UserLoad:
    """Tell users by two readings of every engine, ``window_s`` apart. A request that makes no token, as a health probe
    does, is none of a user."""
    arrived, busy = 0.0, False
    for name, counters in after.items():
        first = before.get(name)
        busy |= bool(counters.running or counters.waiting)
        if first is None or first.started != counters.started:
            continue
        tokens = _grown(first.generation_tokens, counters.generation_tokens)
        tokens += _grown(first.prompt_tokens, counters.prompt_tokens)
        busy |= tokens > 0 or bool(first.running or first.waiting)
        if tokens:
            arrived += _finished(counters) - _finished(first) + _open(counters) - _open(first)
    rate = max(arrived / window_s, 0.0) or earlier_per_s
    gap = pod_gap(before, after)
    return UserLoad(
        rate if busy else 0.0, len(after), busy, window_s, earlier_per_s, _answer_s(after), gap
    )


def oldest_start(engines: Mapping[str, Counters]) -> float | None:
    """Unix time at which the first of the engines started; None where none says it."""
    return min((c.started for c in engines.values() if c.started is not None), default=None)


def pod_gap(before: Mapping[str, Counters], after: Mapping[str, Counters]) -> float:
    """Return by how much the slowest pod's time per output token is above that of the fastest.

    The times are those of all requests since the pods started, as a short window has too few. The gap is 0 where it may
    be chance, and where the pods answered unequal numbers of requests, which makes equal pods differ.
    """
    if any(
        name not in before or before[name].started != counters.started
        for name, counters in after.items()
    ):
        return 0.0
    pods = [
        (c.tpot_seconds / c.tpot_count, c.tpot_count)
        for c in after.values()
        if c.tpot_count and c.tpot_seconds
    ]
    if len(pods) < max(len(after), 2):
        return 0.0
    (fastest, some), (slowest, others) = min(pods), max(pods)
    least, most = min(count for _, count in pods), max(count for _, count in pods)
    if math.log(most / least) - 2 * math.sqrt(1 / most + 1 / least) > math.log(_ALIKE):
        return 0.0
    chance = (
        float(special.ndtri(1 - _CHANCE / math.comb(len(pods), 2)))
        * _SPREAD
        * math.sqrt(1 / some + 1 / others)
    )
    return slowest / fastest - 1 if math.log(slowest / fastest) > chance else 0.0


def _finished(counters: Counters) -> float:
    """Answered requests; by their first tokens where the engine does not count them."""
    return next(
        (
            n
            for n in (counters.latency_count, counters.ttft_count, counters.queue_count)
            if n is not None
        ),
        0.0,
    )


def _open(counters: Counters) -> float:
    return (counters.running or 0.0) + (counters.waiting or 0.0)


def _grown(before: float | None, after: float | None) -> float:
    return max((after or 0.0) - (before or 0.0), 0.0)


def _answer_s(engines: Mapping[str, Counters]) -> float | None:
    count = math.fsum(c.latency_count or 0.0 for c in engines.values())
    return math.fsum(c.latency_seconds or 0.0 for c in engines.values()) / count if count else None


@dataclass(frozen=True)
class ArmsReading:
    """The counters of every pod of both arms at one moment, ``at`` seconds of a clock that never goes back."""

    at: float
    baseline: Mapping[str, Counters]
    candidate: Mapping[str, Counters]

    @property
    def batch(self) -> float:
        """The most requests that one pod has now, running and waiting."""
        every = (*self.baseline.values(), *self.candidate.values())
        return max(((c.running or 0.0) + (c.waiting or 0.0) for c in every), default=0.0)

    def settle_s(self, shortest: float) -> float:
        """Return the time after a change of weights that does not count: until requests that began before it are gone
        and answers are again as long as all are. Those that end first are short ones."""
        every = (*self.baseline.values(), *self.candidate.values())
        mean = max((c.latency_s or 0.0 for c in every), default=0.0)
        return max(shortest, 10 * mean, *(c.latency_p99_s or 0.0 for c in every))


def unfinished_between(
    before: Mapping[str, Counters], after: Mapping[str, Counters]
) -> float | None:
    """Return how many requests were aborted or failed on pods between two readings; None where no engine counts them.
    A pod that came or restarted counts from its start, one that went not at all."""
    counted = []
    for name, now in after.items():
        if now.unfinished is None:
            continue
        earlier = before.get(name)
        if earlier is None or earlier.started != now.started:
            counted.append(now.unfinished)
        else:
            counted.append(now.unfinished - (earlier.unfinished or 0.0))
    return math.fsum(counted) if counted else None


@dataclass(frozen=True)
class TrafficWindow:
    """Both arms over one window of time, the ``pods`` of the baseline together. ``batch``: the most requests that one
    pod had in a reading."""

    seconds: float
    pods: int
    baseline: Window
    candidate: Window
    batch: float = 0.0


@dataclass(frozen=True)
class UsersTraffic(Record):
    """A measurement of users' requests, of which there are at most ``planned`` windows. ``copies``: the candidate gets
    copies. ``equal_share``: as many as one pod of the baseline; ``stopped``: why it was stopped for the users' sake."""

    windows: tuple[TrafficWindow, ...] = ()
    planned: int = 0
    copies: bool = False
    equal_share: bool = True
    stopped: str = ""


def between(before: ArmsReading, after: ArmsReading) -> TrafficWindow:
    """Subtract two readings.

    Raises:
        CounterError: an engine restarted, or a pod came or went.
    """
    if (
        before.baseline.keys() != after.baseline.keys()
        or before.candidate.keys() != after.candidate.keys()
    ):
        raise CounterError("the pods are not the same as before")
    baseline = _pooled(before.baseline, after.baseline)
    candidate = _pooled(before.candidate, after.candidate)
    return TrafficWindow(
        after.at - before.at,
        len(after.baseline),
        baseline,
        candidate,
        max(before.batch, after.batch),
    )


def _pooled(before: Mapping[str, Counters], after: Mapping[str, Counters]) -> Window:
    pods = tuple(Window.between(before[name], after[name]) for name in sorted(after))
    return Window.total(pods)


@dataclass
class WindowCutter:
    """Cuts readings into windows of at least ``shortest_s`` with at least ``fewest`` answers of the candidate. Readings
    before ``begins_at`` do not count; nor does a window in which a pod of the baseline came, went or restarted."""

    shortest_s: float
    fewest: float
    begins_at: float = -math.inf
    _readings: list[ArmsReading] = field(default_factory=list)  # the first of the open window
    _batch: float = 0.0

    def add(self, reading: ArmsReading) -> TrafficWindow | None:
        """The window that ends with this reading; None while it is open."""
        if reading.at < self.begins_at:
            return None
        self._batch = max(self._batch, reading.batch)
        try:
            window = between(self._readings[0], reading) if self._readings else None
        except CounterError:
            window = None
        if not self._readings or window is None or self._is_full(window):
            batch, self._readings, self._batch = self._batch, [reading], reading.batch
            return None if window is None else replace(window, batch=batch)
        return None

    def _is_full(self, window: TrafficWindow) -> bool:
        enough = (window.candidate.tpot_count or 0.0) >= self.fewest and (
            window.baseline.tpot_count or 0.0
        ) > 0
        timed = bool(window.baseline.tpot_seconds and window.candidate.tpot_seconds)
        return window.seconds >= self.shortest_s and enough and timed
