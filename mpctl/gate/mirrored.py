"""Judges a candidate on copies of users' requests, by the counters of both engines over the same time.

The unit is a slice of time in which both engines finished requests: one ratio for each figure, because requests of one
slice share the load of that time. Requests that a user gives up end early on the baseline and run on at the candidate,
whose answers nobody reads, so times are compared per token and per request, never as totals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mpctl import formatting
from mpctl.experiment.counters import Window
from mpctl.gate.policy import Policy
from mpctl.stats.confidence import Stage, ratio_interval
from mpctl.stats.interval import Interval

MIN_SLICES = 6  # with fewer, Student's t leaves an interval too wide to say anything

Pair = tuple[Window, Window]
"""Baseline and candidate over one slice of time."""


@dataclass(frozen=True)
class MirrorFigures:
    """Figures from both engines' counters over all slices. Ratios are candidate over baseline; a ratio is None where
    an engine counted nothing, its bounds are open while there are too few slices."""

    slices: int
    baseline_requests: int
    candidate_requests: int
    tpot_ratio: Interval | None = None
    ttft_ratio: Interval | None = None
    length_ratio: Interval | None = None

    def describe(self) -> str:
        """Return ``time per output token 0.63x (95% CI 0.58x to 0.69x), ...: 40 copies beside 41 requests ...``."""
        named = (
            ("time per output token", self.tpot_ratio),
            ("TTFT", self.ttft_ratio),
            ("tokens per request", self.length_ratio),
        )
        parts = [f"{name} {_text(interval)}" for name, interval in named if interval is not None]
        counted = f"{self.candidate_requests} copies beside {self.baseline_requests} requests of one serving pod"
        return f"{', '.join(parts)}: {counted}" if parts else f"too few requests to compare: {counted}"


def _text(interval: Interval) -> str:
    return f"{formatting.ratio(interval.value)} ({formatting.confidence(interval)})"


def is_slice(pair: Pair) -> bool:
    """Return whether both engines finished requests in a slice, so that it gives a ratio."""
    return all((window.tpot_count or 0) > 0 and (window.tpot_seconds or 0) > 0 for window in pair)


def compare_mirrored(pairs: Sequence[Pair], policy: Policy) -> MirrorFigures:
    """Compare the engines over slices of time."""
    usable = [pair for pair in pairs if is_slice(pair)]
    alpha = (1 - policy.level) / 2
    return MirrorFigures(
        slices=len(usable),
        baseline_requests=round(sum(base.ttft_count or 0 for base, _ in pairs)),
        candidate_requests=round(sum(cand.ttft_count or 0 for _, cand in pairs)),
        tpot_ratio=_ratio(usable, lambda w: _mean(w.tpot_seconds, w.tpot_count), alpha),
        ttft_ratio=_ratio(usable, lambda w: _mean(w.ttft_seconds, w.ttft_count), alpha),
        length_ratio=_ratio(usable, lambda w: _mean(w.generation_tokens, w.ttft_count), alpha),
    )


def judge_mirrored(figures: MirrorFigures, policy: Policy) -> str:
    """Return why a candidate does not do well on copies of users' requests; "" while nothing shows that.

    Only the time per output token is judged, and only where its whole interval lies above the policy's limit: the
    candidate's prefix cache starts empty, so its first tokens come later whatever it does.
    """
    ratio = figures.tpot_ratio
    if ratio is None or not ratio.above(policy.max_tpot_ratio, strictly=True):
        return ""
    limit = formatting.limit(policy.max_tpot_ratio, "x")
    return f"its time per output token is {_text(ratio)} the serving pod's (at most {limit})"


def _mean(total: float | None, count: float | None) -> float | None:
    return None if not total or not count else total / count


def _ratio(pairs: Sequence[Pair], figure: Callable[[Window], float | None], alpha: float) -> Interval | None:
    """Return the geometric mean of a figure's ratio over the slices."""
    read = [(figure(base), figure(cand)) for base, cand in pairs]
    logs = [math.log(cand / base) for base, cand in read if base and cand]
    if not logs:
        return None
    made = ratio_interval(logs, Stage(look=1, looks=1, below=alpha, above=alpha))
    return made if len(logs) >= MIN_SLICES else replace(made, low=None, high=None)
