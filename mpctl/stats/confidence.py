"""Confidence intervals of means over rounds, of shares and of quantiles.

The unit of evidence is the round: both arms over the same prompts, one block after the other. Requests of a block share
the machine's other load, so an interval over requests would be too narrow: in an A/A test on a shared two-core machine
the spread between rounds was five times what the spread between prompts explains. A round gives one number, a paired
difference or the logarithm of a paired ratio; pairing removes the effect of the prompts. Means have Student's t at the
levels of :mod:`mpctl.stats.sequential`.

Bounds of a quantile come from order statistics; the only assumption: requests are independent and alike. The i-th
smallest of n values lies below the q-quantile with the probability that fewer than i of n fall below it, which is
binomial (David and Nagaraja, Order Statistics, 2003, 7.1). An upper bound for the 99th percentile at 95 % exists from
299 values on, since 0.99 ** 298 > 0.05.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpctl.stats.sequential import FEWEST, FIRST_LOOK, nominal_levels


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
        return self.high is not None and (self.high < limit or (self.high == limit and not strictly))

    @property
    def closed(self) -> bool:
        """True when both bounds are known."""
        return self.low is not None and self.high is not None


SHARE_TAIL = 0.05  # of each bound of a share that passes; what rejects is tested at the interim analysis's level
METHOD = "rounds, Student's t, group sequential"
_BY_ORDER = "requests, order statistics"


@dataclass(frozen=True)
class Stage:
    """A stage of a group-sequential test: ``look`` of ``looks``, and the significance level spent below and above an
    interval by all looks together, 0..1."""

    look: int
    looks: int
    below: float
    above: float
    first: int = FIRST_LOOK  # that may decide

    @property
    def level(self) -> float:
        """Return the simultaneous confidence level of the intervals of all looks."""
        return 1.0 - self.below - self.above


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
        import numpy as np

        count, ordered = len(values), np.sort(np.asarray(values, dtype=np.float64))
        cut = int(trim * count)
        inner = ordered[cut : count - cut]
        if count < 2:
            return cls(float(inner.mean()), math.inf, count, cut)
        winsorised = np.clip(ordered, inner[0], inner[-1])
        spread = float(np.std(winsorised, ddof=1)) * math.sqrt((count - 1) * count / (len(inner) - 1) / len(inner))
        if correlated:
            spread *= math.sqrt(_inflation(values))
        return cls(float(inner.mean()), spread, count, cut)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of Student's t."""
        return self.count - 2 * self.cut - 1


def mean_interval(values: Sequence[float], stage: Stage, trim: float = 0.0, correlated: bool = False) -> Interval:
    """Return the mean of one number per round, trimmed by the share ``trim`` at each end; its bounds are open while
    there are too few rounds."""
    mean = Trimmed.of(values, trim, correlated=correlated)
    to_low, to_high = (_half_width(mean, stage, alpha) for alpha in (stage.below, stage.above))
    low = None if to_low is None else mean.mean - to_low
    high = None if to_high is None else mean.mean + to_high
    return Interval(mean.mean, low, high, mean.count, METHOD, stage.level)


def ratio_interval(logs: Sequence[float], stage: Stage, trim: float = 0.0, correlated: bool = False) -> Interval:
    """Return the geometric mean of ratios, given the mean logarithm of each round."""
    mean = mean_interval(logs, stage, trim, correlated)
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
            interval, low=None if low is None else low / factor, high=None if high is None else high * factor
        )
    return replace(interval, low=None if low is None else low - by, high=None if high is None else high + by)


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


def quotient_interval(parts: Sequence[float], wholes: Sequence[float], alpha: float) -> Interval | None:
    """Return the quotient of two sums over stretches of time, with an interval by their spread (linearised; Cochran,
    Sampling Techniques, 1977, 6.4). ``alpha``: significance level of each bound. None for fewer than FEWEST
    stretches."""
    from scipy.special import stdtrit

    count, total = len(parts), math.fsum(wholes)
    if count < FEWEST or total <= 0:
        return None
    value = math.fsum(parts) / total
    squares = math.fsum((part - value * whole) ** 2 for part, whole in zip(parts, wholes, strict=True))
    width = float(stdtrit(count - 1, 1 - alpha)) * math.sqrt(squares * count / (count - 1)) / total
    return Interval(value, value - width, value + width, count, "stretches, Student's t", 1 - 2 * alpha)


def chance_to_decide(gap: float, mean: Trimmed, planned: int, alpha: float) -> float:
    """Return the probability, 0..1, that the interval after ``planned`` rounds of a mean lies beyond a limit that the
    mean is ``gap`` inside of now (below zero: outside), if its true value is one standard error better than it looks.
    """
    from scipy.special import ndtr, stdtrit

    count, total = mean.count, max(planned, mean.count)
    if count < 2 or not math.isfinite(mean.spread):
        return 1.0
    error = mean.spread / math.sqrt(count)
    width = float(stdtrit(max(total - 1, 1), 1.0 - nominal_levels(total, alpha)[-1])) * mean.spread / math.sqrt(total)
    expected = gap + (total - count) / total * error - width
    noise = mean.spread * math.sqrt(total - count) / total
    return float(ndtr(expected / noise)) if noise > 0 else float(expected > 0)


def _half_width(mean: Trimmed, stage: Stage, alpha: float) -> float | None:
    """Return half the width of the interval on one side; None where the side is open."""
    from scipy.special import stdtrit

    if mean.count < 2:
        return None
    # A round may lack this figure: the count is then smaller than the look's number, whose level still holds.
    level = nominal_levels(stage.looks, alpha, stage.first)[stage.look - 1]
    if level == 0.0:
        return None
    if mean.spread == 0.0:
        return 0.0
    return float(stdtrit(mean.freedom, 1.0 - level)) * mean.spread / math.sqrt(mean.count)


def _exp(value: float) -> float | None:
    """The exponential; None where no float but 0 or infinity holds it, so that the bound is open."""
    try:
        return math.exp(value) or None
    except OverflowError:
        return None


def values_needed(q: float, alpha: float) -> int:
    """Return the sample size that a one-sided upper bound of the ``q``-quantile takes at error ``alpha``, both 0..1."""
    return math.ceil(math.log(alpha) / math.log(q))


def quantile_bounds(values: Sequence[float], q: float, alpha: float) -> tuple[float, float, float]:
    """Return the sample quantile with a lower and an upper bound, each with error probability at most ``alpha``.

    A side that the sample size cannot bound is infinite.
    """
    import numpy as np
    from scipy.special import bdtr

    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count = len(ordered)
    # below[i] = P(at most i values fall under the quantile), i = 0..n-1; bdtr is the binomial distribution function
    below = bdtr(np.arange(count), count, q)
    low = int(np.searchsorted(below, alpha, side="right"))  # the largest i with P(fewer than i) <= alpha
    high = int(np.searchsorted(below, 1.0 - alpha))  # the smallest i with P(at most i) >= 1 - alpha
    return (
        float(np.quantile(ordered, q)),
        float(ordered[low - 1]) if low > 0 else -math.inf,
        float(ordered[high]) if high < count else math.inf,
    )


def quantile_ratio(candidate: Sequence[float], baseline: Sequence[float], q: float, alpha: float) -> Interval | None:
    """Return the ratio of two arms' quantiles; each bound has error probability at most ``alpha``, half of it per arm.

    None where a quantile is zero, as when every chunk of an answer arrived at once.
    """
    cand, cand_low, cand_high = quantile_bounds(candidate, q, alpha / 2)
    base, base_low, base_high = quantile_bounds(baseline, q, alpha / 2)
    if base <= 0 or cand <= 0:
        return None
    low = max(cand_low, 0.0) / base_high or None
    high = cand_high / base_low if base_low > 0 and math.isfinite(cand_high) else None
    return Interval(cand / base, low, high, min(len(candidate), len(baseline)), _BY_ORDER, 1 - 2 * alpha)
