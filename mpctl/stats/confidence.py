"""How sure a mean over rounds is.

The unit of evidence is the round: both arms over the same prompts, one block after the other. Requests of one block
share whatever else the machine did meanwhile, so counting them one by one claims more than is known: in an A/A test on
a shared two-core machine the spread between rounds was five times what that between prompts explains. A round gives one
number, a difference or the logarithm of a ratio that pairing by prompt has freed of how long the prompts are.

Means over rounds are judged with Student's t at the level that ``spending`` allows the look.
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
    """Where a measurement stands: ``look`` of ``looks``, and the error allowed below and above an interval, each for
    all looks together, 0..1."""

    look: int
    looks: int
    below: float
    above: float

    @property
    def level(self) -> float:
        """What the intervals of all looks together cover."""
        return 1.0 - self.below - self.above


def mean_interval(values: Sequence[float], stage: Stage) -> Interval:
    """The mean of one number per round, with open sides while there are too few rounds to say anything."""
    import numpy as np

    count = len(values)
    mean = float(np.mean(values))
    spread = float(np.std(values, ddof=1)) if count > 1 else math.inf
    below, above = (_reach(count, spread, stage, alpha) for alpha in (stage.below, stage.above))
    return Interval(mean, mean - below, mean + above, count, METHOD, stage.level)


def ratio_interval(logs: Sequence[float], stage: Stage) -> Interval:
    """The geometric mean of ratios, given the mean logarithm of each round."""
    made = mean_interval(logs, stage)
    return Interval(math.exp(made.value), math.exp(made.low), _exp(made.high), made.n, made.method, made.level)


def share_interval(hits: int, count: int, alpha: float, *, level: float) -> Interval:
    """``hits`` of ``count`` with the exact binomial (Clopper-Pearson) interval that errs with ``alpha`` at each end;
    ``level``: what it is said to cover, as when ``alpha`` is the part of one of several looks."""
    from scipy.special import betaincinv

    missed = count - hits
    low = float(betaincinv(hits, missed + 1, alpha)) if hits else 0.0
    high = float(betaincinv(hits + 1, missed, 1 - alpha)) if missed else 1.0
    return Interval(hits / count, low, high, count, "exact binomial", level)


def rounds_needed(gap: float, spread: float, alpha: float, power: float) -> int | None:
    """How many rounds in all tell a mean from a limit that is ``gap`` away, with probability ``power``.

    ``spread`` is the standard deviation of a round, in the unit of ``gap``; ``alpha`` the error allowed on this side.
    None above MOST_LOOKS. The level of the last look is taken as a third of alpha, as it is for some thirty looks.
    """
    from scipy.special import stdtrit

    def decides(count: int) -> bool:
        reach = float(stdtrit(count - 1, 1 - alpha / 3)) + float(stdtrit(count - 1, power))
        return reach * spread / math.sqrt(count) <= gap

    if gap <= 0 or not decides(MOST_LOOKS):
        return None
    return bisect.bisect_left(range(MOST_LOOKS), True, lo=FIRST_LOOK, key=decides)


def spread_of(values: Sequence[float]) -> float:
    """The standard deviation of a round; infinite for fewer than two."""
    import numpy as np

    return float(np.std(values, ddof=1)) if len(values) > 1 else math.inf


def _reach(count: int, spread: float, stage: Stage, alpha: float) -> float:
    """Half the width of the interval on one side."""
    from scipy.special import stdtrit

    if count < 2:
        return math.inf
    # A round may have given nothing for this figure; the look's own level still holds.
    level = nominal_levels(stage.looks, alpha)[stage.look - 1]
    if level == 0.0:
        return math.inf
    if spread == 0.0:
        return 0.0
    return float(stdtrit(count - 1, 1.0 - level)) * spread / math.sqrt(count)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
