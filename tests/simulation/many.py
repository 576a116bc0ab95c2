"""The watch's assessment of many services at once, with arrays: a month of a thousand takes a minute instead of hours.

It repeats ``mpctl.watch.assessment`` for one engine per service that always speculates. Where both differ, this module
is wrong: :func:`found_in_many` runs the product's function on some of the services and compares all findings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mpctl.watch import assessment, detect
from mpctl.watch.assessment import MEANINGS, Signal
from mpctl.watch.watch_policy import WatchPolicy

from .drift import TOTALS, Array, Change, Seen, Truth, Watched, moments, reference

SIGNALS = tuple(Signal)
_CODE = {signal: number for number, signal in enumerate(SIGNALS)}
_FINDING = np.array([MEANINGS[signal].finding for signal in SIGNALS])
Mask = NDArray[np.bool_]


@dataclass
class Found:
    """``began``: (service, window, signal) of findings; ``first``: the first window of one from ``since`` on, by
    service, -1 without; ``compared``: services that the product's function judged, too; ``different``: those with other
    findings."""

    began: list[tuple[int, int, Signal]] = field(default_factory=list)
    first: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    compared: int = 0
    different: int = 0

    @property
    def signals(self) -> Counter[Signal]:
        """Findings by signal."""
        return Counter(signal for _, _, signal in self.began)


def found_in_many(
    truth: Truth,
    policy: WatchPolicy,
    services: int,
    windows: int,
    seed: int,
    change: Change | None = None,
    *,
    since: int = 0,
    compare: Sequence[int] = (),
) -> Found:
    """Findings of services; those whose numbers are in ``compare`` are judged by the product's function, too."""
    many, found = _Many(truth, policy, services), Found(first=np.full(services, -1))
    watched = {service: Watched(truth, policy) for service in compare}
    for number, seen in enumerate(
        moments(truth, services, windows, policy.interval_s, seed, change)
    ):
        codes = many.after(seen)
        judged = (codes != _CODE[Signal.IDLE]) & (codes != _CODE[Signal.BLIND])
        new = judged & (codes != many.last) & _FINDING[codes]
        many.last = np.where(judged, codes, many.last)
        for service in np.flatnonzero(new):
            signal = SIGNALS[codes[service]]
            found.began.append((int(service), number, signal))
            if number >= since and found.first[service] < 0:
                found.first[service] = number
        for service, one in watched.items():
            one.read(seen.reading(service))
    listed = {
        service: [(at, signal) for which, at, signal in found.began if which == service]
        for service in watched
    }
    found.compared = len(watched)
    found.different = sum(one.began != listed[service] for service, one in watched.items())
    return found


class _Blocks:
    """``mpctl.watch.detect.Blocks`` of every service."""

    def __init__(self, start: detect.Blocks, count: int) -> None:
        self.length = start.length
        self.mean, self.variance, self.weight, self.total, self.count = (
            np.full(count, value) for value in (start.mean, start.variance, start.weight, 0.0, 0.0)
        )

    @property
    def spread(self) -> Array:
        root = math.sqrt(self.length)
        return np.clip(
            np.sqrt(self.variance) * self.length,
            detect.LEAST_NOISE * root,
            detect.MOST_NOISE * root,
        )

    def learn(self, value: Array, which: Mask) -> None:
        self.total, self.count = np.where(which, self.total + value, self.total), self.count + which
        full = self.count >= self.length
        if not full.any():
            return
        block = self.total / self.length
        reach = detect._CLIP * np.sqrt(
            np.maximum(self.variance, detect.LEAST_NOISE**2 / self.length)
        )
        away = np.clip(block - self.mean, -reach, reach)
        weight = np.minimum(self.weight + 1.0, detect._MEMORY_WINDOWS / self.length)
        self.total, self.count = np.where(full, 0.0, self.total), np.where(full, 0.0, self.count)
        self.mean = np.where(full, self.mean + away / weight, self.mean)
        self.variance = np.where(
            full, self.variance + (away * away - self.variance) / weight, self.variance
        )
        self.weight = np.where(full, weight, self.weight)


class _Noise:
    """``mpctl.watch.detect.Noise`` of every service."""

    def __init__(self, count: int) -> None:
        self.blocks = [_Blocks(start, count) for start in detect.UNLEARNED.blocks]

    def learn(self, value: Array, which: Mask) -> None:
        for blocks in self.blocks:
            blocks.learn(value, which)


def _limit(noise: _Noise, margin: float, run_length: float, least: float) -> Array:
    limits = [
        detect.normal(b.length, run_length) * b.spread - b.length * margin for b in noise.blocks
    ]
    longest = noise.blocks[-1]
    side = detect.normal(longest.length, run_length) * longest.spread / math.sqrt(longest.length)
    beyond = side / (2.0 * margin) > math.sqrt(longest.length)
    limits.append(np.where(beyond, side * side / (4.0 * margin), 0.0))
    return np.maximum(least, np.maximum.reduce(limits))


class _Many:
    """``mpctl.watch.assessment.State`` of every service."""

    def __init__(self, truth: Truth, policy: WatchPolicy, count: int) -> None:
        self.policy, self.bands = policy, reference(truth).bands
        self.slack = reference(truth).expected(1.0).slack
        self.first = True
        self.at, self.there = np.zeros(count), np.zeros(count, bool)
        self.totals, self.started = np.zeros((len(TOTALS), count)), np.zeros(count)
        self.known, self.gone, self.gone_started = (
            np.zeros(count, bool),
            np.zeros(count),
            np.zeros(count),
        )
        self.restart, self.restart_before = np.full(count, -math.inf), np.full(count, -math.inf)
        self.slower, self.unpaid = np.zeros(count), np.zeros(count)
        self.windows, self.fewer, self.costlier = np.zeros(count), np.zeros(count), np.zeros(count)
        self.is_slower, self.is_unpaid = np.zeros(count, bool), np.zeros(count, bool)
        self.slower_noise, self.unpaid_noise = _Noise(count), _Noise(count)
        self.last = np.full(count, _CODE[Signal.HEALTHY])

    def after(self, seen: Seen) -> NDArray[np.int64]:
        """Judge one more reading of each; codes of signals."""
        answered, blind = ~seen.gap, np.full(len(seen.gap), _CODE[Signal.BLIND])
        if self.first:
            self.first = False
            self._base(seen, np.ones(len(blind), bool))
            return blind
        generated = seen.totals[0]
        both = self.there & answered
        again = both & ((self.started != seen.started) | (generated < self.totals[0]))
        back = (
            ~self.there
            & answered
            & self.known
            & ((self.gone_started != seen.started) | (generated < self.gone))
        )
        leaves = seen.gap & self.there
        self.known |= leaves
        self.gone = np.where(leaves, self.totals[0], self.gone)
        self.gone_started = np.where(leaves, self.started, self.gone_started)
        self.restart_before = np.where(again | back, self.restart, self.restart_before)
        self.restart = np.where(again | back, seen.at, self.restart)
        restarting = seen.at - self.restart_before < assessment._RESTART_S
        whole = both & ~again & ~restarting
        seconds = seen.at - self.at
        delta = seen.totals - self.totals
        idle = whole & (delta[0] < assessment.LEAST_TOKENS)
        compared = whole & ~idle
        self._base(seen, ~idle | (seconds >= self.policy.interval_s * assessment._PATIENCE))
        codes = np.where(idle, _CODE[Signal.IDLE], blind)
        codes = np.where(restarting, _CODE[Signal.RESTARTING], codes)
        with np.errstate(all="ignore"):  # of services that are not compared
            return np.where(compared, self._compared(delta, seconds, compared), codes)

    def _base(self, seen: Seen, which: Mask) -> None:
        self.at, self.there = (
            np.where(which, seen.at, self.at),
            np.where(which, ~seen.gap, self.there),
        )
        self.totals, self.started = (
            np.where(which, seen.totals, self.totals),
            np.where(which, seen.started, self.started),
        )

    def _compared(self, delta: Array, seconds: Array, which: Mask) -> NDArray[np.int64]:
        generated, steps, _, itl, first, requests = delta
        batch = itl / seconds
        low, high = self.bands
        share = np.clip((batch - low.batch) / (high.batch - low.batch), 0.0, 1.0)
        per_step = low.tokens_per_step.value + share * (
            high.tokens_per_step.value - low.tokens_per_step.value
        )
        assert low.step_ms is not None
        assert high.step_ms is not None
        assert low.first_acceptance is not None
        step_ms = low.step_ms.value + share * (high.step_ms.value - low.step_ms.value)
        baseline_ms = (low.baseline_step_ms or 0) + share * (
            (high.baseline_step_ms or 0) - (low.baseline_step_ms or 0)
        )
        measured = low.first_acceptance.value
        zero = (steps >= assessment.LEAST_DRAFTS) & (
            _at_most(first / steps, steps)
            < min(assessment.ZERO, assessment._ZERO_OF_MEASURED * measured)
        )
        beyond = batch > high.batch * 1.25 + 0.5
        by_sums = self._by_sums(
            np.log(per_step / (generated / steps)),
            np.log(1000.0 * itl / (steps - requests) / step_ms),
            np.log(step_ms / baseline_ms / (generated / steps)),
            per_step <= step_ms / baseline_ms,
            which & ~zero & ~beyond,
        )
        return np.where(
            zero,
            _CODE[Signal.STEP_TO_ZERO],
            np.where(beyond, _CODE[Signal.UNMEASURED_LOAD], by_sums),
        )

    def _by_sums(
        self, fewer: Array, costlier: Array, below: Array, past: Mask, which: Mask
    ) -> NDArray[np.int64]:
        run_length = self.policy.run_length
        shift = -math.log(1.0 - self.policy.loss)
        slack = min(max(self.slack, 0.0), shift / 2)
        allowance = slack + detect.ALLOWED * (shift - slack)
        limit = _limit(
            self.slower_noise,
            allowance - slack,
            run_length,
            detect.LASTS * (shift - allowance),
        )
        slower = self.slower + np.minimum(fewer + costlier - allowance, detect.ONE * limit)
        windows = np.where(slower > 0, self.windows + 1, 0.0)
        slower = np.minimum(np.maximum(slower, 0.0), detect.CAP * limit)
        unpaid_limit = _limit(
            self.unpaid_noise, assessment._PAYS, run_length, detect.LASTS * assessment._PAYS
        )
        unpaid = self.unpaid + np.minimum(below, detect.ONE * unpaid_limit)
        unpaid = np.minimum(np.maximum(unpaid, 0.0), detect.CAP * unpaid_limit)
        began = windows <= 1
        sound = which & (slower <= limit / 2) & (unpaid <= unpaid_limit / 2)
        is_slower = (slower >= limit) | (self.is_slower & (slower > 0))
        is_unpaid = (unpaid >= unpaid_limit) | (self.is_unpaid & (unpaid > 0))
        self.fewer = np.where(which, np.where(began, fewer, self.fewer + fewer), self.fewer)
        self.costlier = np.where(
            which, np.where(began, costlier, self.costlier + costlier), self.costlier
        )
        self.slower, self.unpaid = (
            np.where(which, slower, self.slower),
            np.where(which, unpaid, self.unpaid),
        )
        self.windows = np.where(which, windows, self.windows)
        self.is_slower = np.where(which, is_slower, self.is_slower)
        self.is_unpaid = np.where(which, is_unpaid, self.is_unpaid)
        self.slower_noise.learn(fewer + costlier, sound)
        self.unpaid_noise.learn(fewer, sound)
        worse = np.where(
            self.fewer >= self.costlier, _CODE[Signal.WORSE_DRAFT], _CODE[Signal.COSTLIER_STEP]
        )
        slow = np.where(self.is_slower, worse, _CODE[Signal.HEALTHY])
        return np.where(
            self.is_unpaid,
            np.where(past, _CODE[Signal.PAST_CROSSOVER], _CODE[Signal.WORSE_DRAFT]),
            slow,
        )


def _at_most(share: Array, count: Array) -> Array:
    square = assessment._Z**2 / count
    return (share + square / 2 + np.sqrt(square * (share * (1.0 - share) + square / 4))) / (
        1.0 + square
    )
