"""Simulated services for the watch: counters as an engine would export them, with a known truth.

Load follows the day. Tokens per step and step time have a noise that lasts (first-order autoregressive, as a mix of
traffic does) and one per window, larger where fewer tokens are counted. Engines restart, scrapes fail. The service
differs from its reference by a fixed factor, as production differs from prompts of a gate.

Left out: more than one engine of a service, and requests: a window's counts are drawn as a whole.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from mpctl.experiment.counters import Counters
from mpctl.watch.assess import State, assess
from mpctl.watch.policy import WatchPolicy
from mpctl.watch.reading import Reading
from mpctl.watch.reference import Band, Measured, Reference
from mpctl.watch.signals import MEANINGS, Signal

DRAFTED = 3
STEP_MS, DRAFT_COST = 20.0, 1.15
STATISTICAL = (Signal.WORSE_DRAFT, Signal.COSTLIER_STEP, Signal.PAST_CROSSOVER)


@dataclass(frozen=True)
class Truth:
    """``accepted`` tokens of a draft; ``lasting``, ``window``: standard deviations of logarithms; ``memory``: windows
    over which the lasting part falls to a third; ``off``: the service's factor of tokens per step; ``restart``,
    ``gap``: chance per window; ``peak``: requests at once at noon."""

    accepted: float = 1.2
    lasting: float = 0.04
    memory: float = 6.0
    window: float = 0.3
    off: float = 1.0
    restart: float = 1e-5
    gap: float = 1e-3
    peak: float = 12.0


@dataclass(frozen=True)
class Change:
    """From window ``at`` on: factors of the accepted tokens and of the step time."""

    at: int
    accepted: float = 1.0
    step: float = 1.0


def reference(truth: Truth) -> Reference:
    """What the gate would have measured, at 1 and at 16 at once."""

    def band(batch: float) -> Band:
        per_step, step = 1.0 + truth.accepted, _step_ms(batch)
        return Band(
            traffic="edits",
            temperature=0.0,
            batch=batch,
            rounds=8,
            tokens_per_step=Measured(per_step, per_step * 0.97, per_step * 1.03),
            time_per_token_ms=Measured(step / per_step, step / per_step * 0.97, step / per_step * 1.03),
            step_ms=Measured(step, step * 0.98, step * 1.02),
            first_acceptance=Measured(0.7, 0.68, 0.72),
            coverage=Measured(1.0, 1.0, 1.0),
            baseline_step_ms=step / DRAFT_COST,
        )

    return Reference("rollout-1", "2026-01-01T00:00:00+00:00", "eagle3", "eagle3", False, (band(1.0), band(16.0)))


def readings(
    truth: Truth, windows: int, interval_s: float, seed: int, change: Change | None = None
) -> Iterator[Reading]:
    """The readings of one service, one interval apart."""
    rng = random.Random(seed)
    keep = math.exp(-1.0 / truth.memory)
    fresh = truth.lasting * math.sqrt(1.0 - keep * keep)
    mix = slow = 0.0
    totals = [0.0] * 7  # generated, steps, accepted, drafts, seconds, first, requests
    started, phase = 1.0, rng.random()
    for number in range(windows):
        at = number * interval_s
        mix, slow = keep * mix + rng.gauss(0.0, fresh), keep * slow + rng.gauss(0.0, fresh / 2)
        if rng.random() < truth.restart:
            totals, started = [0.0] * 7, started + at + 1.0
        day = 0.5 - 0.5 * math.cos(2.0 * math.pi * (at / 86400.0 + phase))
        batch = max(0.05, truth.peak * (0.05 + 0.95 * day) * math.exp(rng.gauss(0.0, 0.15)))
        now = change if change is not None and number >= change.at else None
        step_ms = _step_ms(batch) * math.exp(slow) * (now.step if now else 1.0)
        steps = 1000.0 * interval_s * batch / step_ms
        blur = rng.gauss(0.0, truth.window / math.sqrt(max(steps / 50.0, 1.0)))
        accepted = truth.accepted * truth.off * math.exp(mix + blur) * (now.accepted if now else 1.0)
        accepted = min(accepted, float(DRAFTED))
        gains = (steps * (1 + accepted), steps, steps * accepted, steps, batch * interval_s, 0.0, steps / 60.0)
        totals = [total + gain for total, gain in zip(totals, gains, strict=True)]
        totals[5] += steps * min(0.7 * accepted / truth.accepted, 1.0)
        if rng.random() < truth.gap:
            yield Reading(at, {}, {"pod": "no answer"})
            continue
        yield Reading(at, {"pod": _counters(totals, started)})


def found(
    truth: Truth, policy: WatchPolicy, windows: int, seed: int, change: Change | None = None
) -> list[tuple[int, Signal]]:
    """The windows at which a finding began, and its signal."""
    state, last, began = State(), Signal.HEALTHY, []
    against = reference(truth)
    for number, reading in enumerate(readings(truth, windows, policy.interval_s, seed, change)):
        state, seen = assess(policy, against, state, reading, speculates=True)
        if seen.signal in (Signal.IDLE, Signal.BLIND):
            continue
        if seen.signal is not last and MEANINGS[seen.signal].finding:
            began.append((number, seen.signal))
        last = seen.signal
    return began


def _step_ms(batch: float) -> float:
    return STEP_MS * (1.0 + 0.02 * batch)


def _counters(totals: list[float], started: float) -> Counters:
    generated, steps, accepted, drafts, seconds, first, requests = totals
    rest = max(accepted - first, 0.0)
    return Counters(
        generation_tokens=generated,
        drafts=drafts,
        draft_tokens=DRAFTED * drafts,
        accepted=first + rest,
        per_position=(first, rest),
        ttft_seconds=0.1 * requests,
        ttft_count=requests,
        itl_seconds=seconds,
        itl_count=steps - requests,
        started=started,
    )
