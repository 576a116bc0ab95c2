"""Confidence intervals of means over rounds and of shares.

The unit of evidence is the round: both arms over the same prompts, one block after the other. Requests of a block share
the machine's other load, so an interval over requests would be too narrow: in an A/A test on a shared two-core machine
the spread between rounds was five times what the spread between prompts explains. A round gives one number, a paired
difference or the logarithm of a paired ratio; pairing removes the effect of the prompts. Means have Student's t at the
levels of :mod:`mpctl.stats.sequential`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpctl.stats.numerics import np, special
from mpctl.stats.sequential import FEWEST, FIRST_LOOK, Spending, nominal_levels, spending_of


@dataclass(frozen=True)
class Interval:
    """``low <= value <= high``; a bound of None is open.

    ``level``: simultaneous coverage over all interim analyses, 0..1. ``n``: sample size in the unit that ``method``
    names.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    method: str
    level: float

    def above(self, limit: float, *, strictly: bool = False) -> bool:
        """Return whether the whole interval lies above the limit; not strictly: or on it."""
        return self.low is not None and (self.low > limit or (self.low == limit and not strictly))

    def below(self, limit: float, *, strictly: bool = False) -> bool:
        """Return whether the whole interval lies below the limit; not strictly: or on it."""
        return self.high is not None and (
            self.high < limit or (self.high == limit and not strictly)
        )

    @property
    def closed(self) -> bool:
        """True when both bounds are known."""
        return self.low is not None and self.high is not None


SHARE_TAIL = 0.05  # of each bound of a share that passes; what rejects is tested at the interim analysis's level
_ROUNDING = 1e-9  # of a slope: equal values have one by rounding alone
METHOD = "rounds, Student's t, group sequential"


@dataclass(frozen=True)
class Stage:
    """A stage of a group-sequential test: ``look`` of ``looks``, and the error below and above an interval over all
    looks together, 0..1, which is spent evenly unless it says how."""

    look: int
    looks: int
    below: float | Spending
    above: float | Spending
    first: int = FIRST_LOOK  # that may decide

    @property
    def level(self) -> float:
        """Return the simultaneous confidence level of the intervals of all looks."""
        return 1.0 - spending_of(self.below).alpha - spending_of(self.above).alpha

    def level_of(self, alpha: float | Spending) -> float:
        """Return the significance level at this look of a bound with a total error of ``alpha``; 0 where it may not
        decide."""
        return nominal_levels(self.looks, alpha, self.first)[self.look - 1]


@dataclass(frozen=True)
class Trimmed:
    """A mean over rounds, without the lowest and the highest of them."""

    mean: float
    spread: float  # of one round: the mean's standard error is spread / sqrt(count)
    count: int  # of all rounds
    cut: int  # rounds left out at each end

    @classmethod
    def of(cls, values: Sequence[float], trim: float = 0.0, *, correlated: bool = False) -> Trimmed:
        """Trim the share ``trim`` of the rounds, 0..0.5, at each end.

        The error of a trimmed mean follows from the winsorised variance (Tukey and McLaughlin 1963; Yuen 1974).
        ``correlated``: a round resembles the one before it, so the spread is enlarged by their correlation.
        """
        count, ordered = len(values), np.sort(np.asarray(values, dtype=np.float64))
        cut = int(trim * count)
        inner = ordered[cut : count - cut]
        if count < 2:
            return cls(float(inner.mean()), math.inf, count, cut)
        winsorised = np.clip(ordered, inner[0], inner[-1])
        spread = float(np.std(winsorised, ddof=1)) * math.sqrt(
            (count - 1) * count / (len(inner) - 1) / len(inner)
        )
        if correlated:
            spread *= math.sqrt(_inflation(values))
        return cls(float(inner.mean()), spread, count, cut)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of Student's t."""
        return self.count - 2 * self.cut - 1


def mean_interval(
    values: Sequence[float], stage: Stage, trim: float = 0.0, correlated: bool = False
) -> Interval:
    """Return the mean of one number per round, trimmed by the share ``trim`` at each end; its bounds are open while
    there are too few rounds."""
    return interval_of(Trimmed.of(values, trim, correlated=correlated), stage)


def interval_of(mean: Trimmed, stage: Stage) -> Interval:
    """Return a mean with its confidence interval."""
    to_low, to_high = (_half_width(mean, stage, alpha) for alpha in (stage.below, stage.above))
    low = None if to_low is None else mean.mean - to_low
    high = None if to_high is None else mean.mean + to_high
    return Interval(mean.mean, low, high, mean.count, METHOD, stage.level)


def ratio_interval(
    logs: Sequence[float], stage: Stage, trim: float = 0.0, correlated: bool = False
) -> Interval:
    """Return the geometric mean of ratios, given the mean logarithm of each round."""
    return exponential(mean_interval(logs, stage, trim, correlated))


def exponential(mean: Interval) -> Interval:
    """Return the interval of a ratio, given that of its logarithm."""
    low, high = (None if bound is None else _exp(bound) for bound in (mean.low, mean.high))
    return Interval(math.exp(mean.value), low, high, mean.n, mean.method, mean.level)


def widened(interval: Interval, by: float, *, ratio: bool) -> Interval:
    """Return the interval with both bounds moved outwards by ``by``, of a ratio in logarithms."""
    if not by:
        return interval
    low, high = interval.low, interval.high
    if ratio:
        factor = math.exp(by)
        return replace(
            interval,
            low=None if low is None else low / factor,
            high=None if high is None else high * factor,
        )
    return replace(
        interval, low=None if low is None else low - by, high=None if high is None else high + by
    )


def joined(interval: Interval, by: float, *, ratio: bool) -> Interval:
    """Return the interval with an independent error of ``by`` added to both bounds, of a ratio in logarithms: the
    squares of independent errors add up. However many rounds there are, each bound stays ``by`` away."""
    if not by:
        return interval
    value, low, high = (
        None if bound is None else math.log(bound) if ratio else bound
        for bound in (interval.value, interval.low, interval.high)
    )
    assert value is not None
    low = None if low is None else value - math.hypot(value - low, by)
    high = None if high is None else value + math.hypot(high - value, by)
    if ratio:
        low, high = (None if bound is None else _exp(bound) for bound in (low, high))
    return replace(interval, low=low, high=high)


def gap_beyond(gap: float, by: float) -> float:
    """Return how far a mean would have to be beyond a limit without the error ``by`` to show as much as one that is
    ``gap`` beyond it does with it; below zero where no number of rounds shows it."""
    return math.sqrt(gap * gap - by * by) if gap > by else gap - by


def _inflation(values: Sequence[float]) -> float:
    """Return by how much the variance of a mean grows because neighbours resemble each other (first-order
    autoregression)."""
    mean = math.fsum(values) / len(values)
    offsets = [v - mean for v in values]
    square = math.fsum(o * o for o in offsets)
    if not square:
        return 1.0
    follow = math.fsum(a * b for a, b in itertools.pairwise(offsets)) / square
    follow = min(max(follow, 0.0), 0.9)
    return (1 + follow) / (1 - follow)


def trend_of(values: Sequence[float], alpha: float) -> tuple[float, float] | None:
    """Return slope and first point of the straight line through values in the order in which they were measured, where
    they still rise or fall: where the slope differs from 0 at the two-sided level ``alpha``; None elsewhere."""
    count = len(values)
    if count < FEWEST:
        return None
    (slope, start), errors = np.polyfit(range(count), values, 1, cov=True)
    shown = abs(slope) / max(math.sqrt(errors[0][0]), _ROUNDING)
    return (slope, start) if shown > special.stdtrit(count - 2, 1 - alpha / 2) else None


def is_below(mean: Trimmed, alpha: float) -> bool:
    """Return whether a mean lies below 0 at the one-sided level ``alpha``; False for fewer than FEWEST rounds."""
    if mean.count < FEWEST:
        return False
    width = float(special.stdtrit(mean.freedom, 1 - alpha)) * mean.spread / math.sqrt(mean.count)
    return mean.mean + width < -_ROUNDING


def share_interval(hits: int, count: int, alpha: float, *, level: float) -> Interval:
    """Return the share ``hits`` of ``count`` with its exact binomial (Clopper-Pearson) interval.

    ``alpha``: significance level of each bound; ``level``: the confidence level to report, which differs where
    ``alpha`` is the part of one of several interim analyses.
    """
    missed = count - hits
    low = float(special.betaincinv(hits, missed + 1, alpha)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, missed, 1 - alpha)) if missed else 1.0
    return Interval(hits / count, low, high, count, "exact binomial", level)


def spent(hits: int) -> float:
    """Return the part of an error that a bound with so many hits may spend. The parts add up to 1, so the bounds of a
    share hold together whenever they are looked at: with ``hits`` the true share is missed only if a sample of one
    certain size, the first that such a bound allows, already had no more."""
    return 1.0 / ((hits + 1) * (hits + 2))


def excess_interval(worse: int, better: int, count: int) -> Interval:
    """Return the share of prompts that failed on the candidate alone, less those that failed on the baseline alone.

    The distances to the exact bounds of both shares are added as squares (Zou and Donner, Statistics in Medicine 27,
    2008). Each bound has the error SHARE_TAIL over all looks.
    """
    shares = [
        share_interval(hits, count, SHARE_TAIL * spent(hits), level=1 - 2 * SHARE_TAIL)
        for hits in (worse, better)
    ]
    (low, mine, high), (lower, theirs, higher) = (
        (s.low or 0.0, s.value, s.high or 0.0) for s in shares
    )
    value = mine - theirs
    return replace(
        shares[0],
        value=value,
        low=value - math.hypot(mine - low, higher - theirs),
        high=value + math.hypot(high - mine, theirs - lower),
    )


def lognormal_mean(values: Sequence[float], offset: float, alpha: float) -> float:
    """Return the upper bound of the mean of skewed times, none below zero, with the error ``alpha``.

    Cox's bound of a lognormal mean (Zhou and Gao, Statistics in Medicine 16, 1997), of the times plus ``offset``: below
    it differences do not matter.
    """
    logs = [math.log(value + offset) for value in values]
    count, mean = len(logs), math.fsum(logs) / len(logs)
    if count < 2:
        return math.inf
    spread = math.fsum((log - mean) ** 2 for log in logs) / (count - 1)
    error = math.sqrt(spread / count + spread**2 / (2 * (count - 1)))
    return (
        _exp(mean + spread / 2 + float(special.stdtrit(count - 1, 1 - alpha)) * error) or math.inf
    ) - offset


def quotient_interval(
    parts: Sequence[float], wholes: Sequence[float], alpha: float
) -> Interval | None:
    """Return the quotient of two sums over stretches of time, with an interval by their spread (linearised; Cochran,
    Sampling Techniques, 1977, 6.4). ``alpha``: significance level of each bound. None for fewer than FEWEST
    stretches."""
    count, total = len(parts), math.fsum(wholes)
    if count < FEWEST or total <= 0:
        return None
    value = math.fsum(parts) / total
    squares = math.fsum(
        (part - value * whole) ** 2 for part, whole in zip(parts, wholes, strict=True)
    )
    width = (
        float(special.stdtrit(count - 1, 1 - alpha))
        * math.sqrt(squares * count / (count - 1))
        / total
    )
    return Interval(
        value, value - width, value + width, count, "stretches, Student's t", 1 - 2 * alpha
    )


def chance_to_decide(gap: float, mean: Trimmed, planned: int, alpha: float | Spending) -> float:
    """Return the probability, 0..1, that the interval after ``planned`` rounds of a mean lies beyond a limit that the
    mean is ``gap`` inside of now (below zero: outside), if its true value is one standard error better than it looks.
    """
    count, total = mean.count, max(planned, mean.count)
    if count < 2 or not math.isfinite(mean.spread):
        return 1.0
    error = mean.spread / math.sqrt(count)
    width = (
        float(special.stdtrit(max(total - 1, 1), 1.0 - nominal_levels(total, alpha)[-1]))
        * mean.spread
        / math.sqrt(total)
    )
    expected = gap + (total - count) / total * error - width
    noise = mean.spread * math.sqrt(total - count) / total
    return float(special.ndtr(expected / noise)) if noise > 0 else float(expected > 0)


def _half_width(mean: Trimmed, stage: Stage, alpha: float | Spending) -> float | None:
    """Return half the width of the interval on one side; None where the side is open."""
    if mean.count < 2:
        return None
    # A round may lack this figure: the count is then smaller than the look's number, whose level still holds.
    level = stage.level_of(alpha)
    if level == 0.0:
        return None
    if mean.spread == 0.0:
        return 0.0
    return float(special.stdtrit(mean.freedom, 1.0 - level)) * mean.spread / math.sqrt(mean.count)


def _exp(value: float) -> float | None:
    """The exponential; None where no float but 0 or infinity holds it, so that the bound is open."""
    try:
        return math.exp(value) or None
    except OverflowError:
        return None
