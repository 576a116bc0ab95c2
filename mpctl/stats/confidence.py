"""Confidence intervals of means over rounds, with Student's t at the levels of :mod:`mpctl.stats.alpha_spending`.

The unit of evidence is the round: both arms over the same prompts, one block after the other. Requests of a block share
the machine's other load, so an interval over requests would be too narrow: in an A/A test on a shared two-core machine
the spread between rounds was five times what the spread between prompts explains. A round gives one number, a paired
difference or the logarithm of a paired ratio; pairing removes the effect of the prompts.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mpctl.stats.alpha_spending import FIRST_LOOK, MOST_LOOKS, nominal_levels
from mpctl.stats.interval import Interval

METHOD = "rounds, Student's t, group sequential"


@dataclass(frozen=True)
class Stage:
    """A stage of a group-sequential test: ``look`` of ``looks``, and the significance level spent below and above an
    interval by all looks together, 0..1."""

    look: int
    looks: int
    below: float
    above: float

    @property
    def level(self) -> float:
        """Return the simultaneous confidence level of the intervals of all looks."""
        return 1.0 - self.below - self.above


def mean_interval(values: Sequence[float], stage: Stage) -> Interval:
    """Return the mean of one number per round; its bounds are open while there are too few rounds."""
    import numpy as np

    count = len(values)
    mean = float(np.mean(values))
    spread = spread_of(values)
    below, above = (_half_width(count, spread, stage, alpha) for alpha in (stage.below, stage.above))
    low = None if below is None else mean - below
    high = None if above is None else mean + above
    return Interval(mean, low, high, count, METHOD, stage.level)


def ratio_interval(logs: Sequence[float], stage: Stage) -> Interval:
    """Return the geometric mean of ratios, given the mean logarithm of each round."""
    made = mean_interval(logs, stage)
    low, high = (None if bound is None else _exp(bound) for bound in (made.low, made.high))
    return Interval(math.exp(made.value), low, high, made.n, made.method, made.level)


def share_interval(hits: int, count: int, alpha: float, *, level: float) -> Interval:
    """Return the share ``hits`` of ``count`` with its exact binomial (Clopper-Pearson) interval.

    ``alpha``: significance level of each bound; ``level``: the confidence level to report, which differs where
    ``alpha`` is the part of one of several interim analyses.
    """
    from scipy.special import betaincinv

    missed = count - hits
    low = float(betaincinv(hits, missed + 1, alpha)) if hits else 0.0
    high = float(betaincinv(hits + 1, missed, 1 - alpha)) if missed else 1.0
    return Interval(hits / count, low, high, count, "exact binomial", level)


def rounds_needed(gap: float, spread: float, alpha: float, power: float) -> int | None:
    """Return the rounds in all that tell a mean from a limit ``gap`` away with statistical power ``power``.

    ``spread`` is the standard deviation of a round, in the unit of ``gap``; ``alpha`` the one-sided significance level.
    None above MOST_LOOKS. The level of the last look is taken as a third of alpha, its value at about thirty looks.
    """
    from scipy.special import stdtrit

    def decides(count: int) -> bool:
        reach = float(stdtrit(count - 1, 1 - alpha / 3)) + float(stdtrit(count - 1, power))
        return reach * spread / math.sqrt(count) <= gap

    if gap <= 0 or not decides(MOST_LOOKS):
        return None
    return bisect.bisect_left(range(MOST_LOOKS), True, lo=FIRST_LOOK, key=decides)


def spread_of(values: Sequence[float]) -> float:
    """Return the standard deviation of a round; infinite for fewer than two."""
    import numpy as np

    return float(np.std(values, ddof=1)) if len(values) > 1 else math.inf


def _half_width(count: int, spread: float, stage: Stage, alpha: float) -> float | None:
    """Return half the width of the interval on one side; None where the side is open."""
    from scipy.special import stdtrit

    if count < 2:
        return None
    # A round may lack this figure: the count is then smaller than the look's number, whose level still holds.
    level = nominal_levels(stage.looks, alpha)[stage.look - 1]
    if level == 0.0:
        return None
    if spread == 0.0:
        return 0.0
    return float(stdtrit(count - 1, 1.0 - level)) * spread / math.sqrt(count)


def _exp(value: float) -> float | None:
    try:
        return math.exp(value)
    except OverflowError:
        return None
