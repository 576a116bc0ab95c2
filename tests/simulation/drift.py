"""Simulated services for the watch: counters as an engine would export them, with a known truth.

Load follows the day. Tokens per step and step time have a noise that lasts (first-order autoregressive, as a mix of
traffic does) and one per window, larger where fewer tokens are counted. Engines restart, scrapes fail. The service
differs from its reference by a fixed factor, as production differs from prompts of a gate.

Left out: more than one engine of a service, and requests: a window's counts are drawn as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from mpctl.experiment.counters import Counters
from mpctl.watch.assessment import MEANINGS, Signal, State, assess
from mpctl.watch.reading import Reading
from mpctl.watch.reference import LoadBand, MeanFigure, Reference
from mpctl.watch.watch_policy import WatchPolicy

DRAFTED = 3
TOTALS = ("generated", "steps", "accepted", "seconds", "first", "requests")
Array = NDArray[np.float64]
STEP_MS, DRAFT_COST = 20.0, 1.15
STATISTICAL = (Signal.WORSE_DRAFT, Signal.COSTLIER_STEP, Signal.PAST_CROSSOVER)


@dataclass(frozen=True)
class Truth:
    """``accepted`` tokens of a draft; ``lasting``, ``window``: standard deviations of logarithms; ``memory``: windows
    over which the lasting part falls to a third; ``off``: the service's factor of tokens per step; ``restart``,
    ``gap``: chance per window; ``peak``: requests at once at noon. Numbers, or one for each of several services."""

    accepted: float = 1.2
    lasting: float | Array = 0.04
    memory: float | Array = 6.0
    window: float | Array = 0.3
    off: float | Array = 1.0
    restart: float | Array = 1e-5
    gap: float | Array = 1e-3
    peak: float | Array = 12.0

    @classmethod
    def of_each(cls, kinds: Sequence[Truth], each: int) -> Truth:
        """``each`` services of every kind, in this order; all have the same ``accepted``."""
        columns = {
            f.name: np.repeat([getattr(kind, f.name) for kind in kinds], each) for f in fields(cls)
        }
        return cls(**{**columns, "accepted": kinds[0].accepted})


@dataclass(frozen=True)
class Change:
    """From window ``at`` on: factors of the accepted tokens and of the step time."""

    at: int
    accepted: float = 1.0
    step: float = 1.0


def reference(truth: Truth) -> Reference:
    """What the gate would have measured, at 1 and at 16 at once."""

    def band(batch: float) -> LoadBand:
        per_step, step = 1.0 + truth.accepted, _step_ms(batch)
        return LoadBand(
            traffic="edits",
            temperature=0.0,
            batch=batch,
            rounds=8,
            tokens_per_step=MeanFigure(per_step, per_step * 0.97, per_step * 1.03),
            time_per_token_ms=MeanFigure(
                step / per_step, step / per_step * 0.97, step / per_step * 1.03
            ),
            step_ms=MeanFigure(step, step * 0.98, step * 1.02),
            first_acceptance=MeanFigure(0.7, 0.68, 0.72),
            coverage=MeanFigure(1.0, 1.0, 1.0),
            baseline_step_ms=step / DRAFT_COST,
        )

    return Reference(
        "rollout-1", "2026-01-01T00:00:00+00:00", "eagle3", "eagle3", False, (band(1.0), band(16.0))
    )


@dataclass(frozen=True)
class Seen:
    """All services at one moment. ``totals``: a row for each of TOTALS, a column per service; ``gap``: not answered."""

    at: float
    totals: Array
    started: Array
    gap: NDArray[np.bool_]

    def reading(self, service: int) -> Reading:
        """One service's, as the watch reads it."""
        if self.gap[service]:
            return Reading(self.at, {}, {"pod": "no answer"})
        return Reading(
            self.at,
            {"pod": _counters(self.totals[:, service].tolist(), float(self.started[service]))},
        )


def moments(
    truth: Truth,
    services: int,
    windows: int,
    interval_s: float,
    seed: int,
    change: Change | None = None,
) -> Iterator[Seen]:
    """Services of one kind, one interval apart."""
    rng = np.random.default_rng(seed)
    keep = np.exp(-1.0 / np.asarray(truth.memory))
    fresh = truth.lasting * np.sqrt(1.0 - keep * keep)
    mix, slow = np.zeros(services), np.zeros(services)
    totals = np.zeros((len(TOTALS), services))
    started, phase = np.ones(services), rng.random(services)
    for number in range(windows):
        at = number * interval_s
        mix = keep * mix + rng.normal(0.0, fresh, services)
        slow = keep * slow + rng.normal(0.0, fresh / 2, services)
        again = rng.random(services) < truth.restart
        totals[:, again] = 0.0
        started = np.where(again, started + at + 1.0, started)
        day = 0.5 - 0.5 * np.cos(2.0 * math.pi * (at / 86400.0 + phase))
        batch = np.maximum(
            0.05, truth.peak * (0.05 + 0.95 * day) * np.exp(rng.normal(0.0, 0.15, services))
        )
        now = change if change is not None and number >= change.at else Change(0)
        steps = (
            1000.0 * interval_s * batch / (STEP_MS * (1.0 + 0.02 * batch) * np.exp(slow) * now.step)
        )
        blur = (
            rng.normal(0.0, 1.0, services) * truth.window / np.sqrt(np.maximum(steps / 50.0, 1.0))
        )
        accepted = np.minimum(
            truth.accepted * truth.off * np.exp(mix + blur) * now.accepted, float(DRAFTED)
        )
        first = steps * np.minimum(0.7 * accepted / truth.accepted, 1.0)
        totals += (
            steps * (1 + accepted),
            steps,
            steps * accepted,
            batch * interval_s,
            first,
            steps / 60.0,
        )
        yield Seen(at, totals.copy(), started, rng.random(services) < truth.gap)


def found(
    truth: Truth, policy: WatchPolicy, windows: int, seed: int, change: Change | None = None
) -> list[tuple[int, Signal]]:
    """The windows at which a finding began, and its signal."""
    watched = Watched(truth, policy)
    for moment in moments(truth, 1, windows, policy.interval_s, seed, change):
        watched.read(moment.reading(0))
    return watched.began


class Watched:
    """One service under the watch's own assessment. ``began``: the windows at which a finding began, and its signal."""

    def __init__(self, truth: Truth, policy: WatchPolicy) -> None:
        self._policy, self._reference = policy, reference(truth)
        self._state, self._last, self._number = State(), Signal.HEALTHY, 0
        self.began: list[tuple[int, Signal]] = []

    def read(self, reading: Reading) -> None:
        """Judge one more reading."""
        self._state, assessment = assess(
            self._policy, self._reference, self._state, reading, speculates=True
        )
        if assessment.signal not in (Signal.IDLE, Signal.BLIND):
            if assessment.signal is not self._last and MEANINGS[assessment.signal].finding:
                self.began.append((self._number, assessment.signal))
            self._last = assessment.signal
        self._number += 1


def _step_ms(batch: float) -> float:
    return STEP_MS * (1.0 + 0.02 * batch)


def _counters(totals: list[float], started: float) -> Counters:
    generated, steps, accepted, seconds, first, requests = totals
    largest = max(accepted - first, 0.0)
    return Counters(
        generation_tokens=generated,
        drafts=steps,
        draft_tokens=DRAFTED * steps,
        accepted=first + largest,
        per_position=(first, largest),
        ttft_seconds=0.1 * requests,
        ttft_count=requests,
        itl_seconds=seconds,
        itl_count=steps - requests,
        started=started,
    )
