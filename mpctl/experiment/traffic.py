"""Users' requests on both arms at once, by the counters of all pods: readings, and windows of time between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mpctl.experiment.counters import CounterError, Counters, Window


@dataclass(frozen=True)
class Reading:
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
class UsersTraffic:
    """A measurement of users' requests, of which there are at most ``planned`` windows. ``copies``: the candidate gets
    copies. ``equal_share``: as many as one pod of the baseline; ``stopped``: why it was stopped for the users' sake."""

    windows: tuple[TrafficWindow, ...] = ()
    planned: int = 0
    copies: bool = False
    equal_share: bool = True
    stopped: str = ""


def between(before: Reading, after: Reading) -> TrafficWindow:
    """Subtract two readings.

    Raises:
        CounterError: an engine restarted, or a pod came or went.
    """
    if before.baseline.keys() != after.baseline.keys() or before.candidate.keys() != after.candidate.keys():
        raise CounterError("the pods are not the same as before")
    baseline = _pooled(before.baseline, after.baseline)
    candidate = _pooled(before.candidate, after.candidate)
    return TrafficWindow(after.at - before.at, len(after.baseline), baseline, candidate, max(before.batch, after.batch))


def _pooled(before: Mapping[str, Counters], after: Mapping[str, Counters]) -> Window:
    pods = tuple(Window.between(before[name], after[name]) for name in sorted(after))
    return replace(Window.total(pods), ttft_buckets=(), tpot_buckets=())


@dataclass
class WindowCutter:
    """Cuts readings into windows of at least ``shortest_s`` with at least ``fewest`` answers of the candidate. Readings
    before ``begins_at`` do not count; nor does a window in which a pod of the baseline came, went or restarted."""

    shortest_s: float
    fewest: float
    begins_at: float = -math.inf
    _readings: list[Reading] = field(default_factory=list)  # the first of the open window
    _batch: float = 0.0

    def add(self, reading: Reading) -> TrafficWindow | None:
        """The window that ends with this reading; None while it is open."""
        if reading.at < self.begins_at:
            return None
        self._batch = max(self._batch, reading.batch)
        window = self._window(reading)
        if not self._readings or window is None or self._is_full(window):
            batch, self._readings, self._batch = self._batch, [reading], reading.batch
            return None if window is None else replace(window, batch=batch)
        return None

    def _window(self, reading: Reading) -> TrafficWindow | None:
        try:
            return between(self._readings[0], reading) if self._readings else None
        except CounterError:
            return None

    def _is_full(self, window: TrafficWindow) -> bool:
        enough = (window.candidate.tpot_count or 0.0) >= self.fewest and (window.baseline.tpot_count or 0.0) > 0
        timed = bool(window.baseline.tpot_seconds and window.candidate.tpot_seconds)
        return window.seconds >= self.shortest_s and enough and timed
