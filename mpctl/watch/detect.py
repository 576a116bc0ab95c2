"""Sequential detection: a cumulative sum per figure, whose limit follows from a stated rate of false alarms.

Each window gives one number: how far a figure is from where it should be, as a logarithm. A cumulative sum (Page,
Biometrika 41, 1954) adds what exceeds ``allowance`` and starts again at zero when it falls below; an alarm is a sum
above a limit.

Windows resemble their neighbours, because a long request spans several and a mix of traffic lasts: a sum of few windows
spreads wider than independent ones would, one of many less wide than the same growth would make it. The spread of means
is therefore learned at four lengths, while nothing is wrong, and the limit is what sums of none of these lengths exceed
by chance. Values are clipped, so that neither one broken window nor a shift that was not seen yet teaches much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from statistics import NormalDist

LENGTHS = (
    8,
    16,
    32,
    64,
)  # windows, each twice the one before: two to sixteen minutes at the default interval
FIRST_NOISE = 0.12  # of the logarithm of one window, before anything was learned
LEAST_NOISE, MOST_NOISE = 0.05, 1.0
UNLIKE_NORMAL = 10.0  # fewer false alarms than normally distributed noise would be allowed: real noise has longer tails
_FIRST_WEIGHT = 8.0  # blocks that FIRST_NOISE counts for
_MEMORY_WINDOWS = 5760.0  # a day at the default interval
_CLIP = 3.0  # noises


@dataclass(frozen=True, slots=True)
class Blocks:
    """Means of a figure over ``length`` windows, one block after the other: their ``mean`` and ``variance``, learned
    from ``weight`` blocks. ``first``: the sum of a block that waits for its neighbour, with which it is one of twice
    the length."""

    length: int
    variance: float
    mean: float = 0.0
    weight: float = _FIRST_WEIGHT
    first: float | None = None

    @property
    def spread(self) -> float:
        """Standard deviation of the sum of a block."""
        root = math.sqrt(self.length)
        return min(
            max(math.sqrt(self.variance) * self.length, LEAST_NOISE * root), MOST_NOISE * root
        )

    def after(self, total: float) -> tuple[Blocks, float | None]:
        """Add a block by its sum; return also the sum of the block of twice the length that it completes."""
        reach = _CLIP * math.sqrt(max(self.variance, LEAST_NOISE**2 / self.length))
        away = min(max(total / self.length - self.mean, -reach), reach)
        weight = min(self.weight + 1.0, _MEMORY_WINDOWS / self.length)
        variance, mean = (
            self.variance + (away * away - self.variance) / weight,
            self.mean + away / weight,
        )
        if self.first is None:
            return Blocks(self.length, variance, mean, weight, total), None
        return Blocks(self.length, variance, mean, weight), self.first + total


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a figure at each of :data:`LENGTHS`. ``total``, ``count``: of the shortest block, not full yet."""

    blocks: tuple[Blocks, ...] = tuple(
        Blocks(length, FIRST_NOISE**2 / length) for length in LENGTHS
    )
    total: float = 0.0
    count: int = 0

    def after(self, value: float) -> Noise:
        """Add a window, which is learned as soon as its block is full."""
        total: float | None = self.total + value
        if self.count + 1 < LENGTHS[0]:
            return Noise(self.blocks, self.total + value, self.count + 1)
        learned: list[Blocks] = []
        for blocks in self.blocks:
            longer, total = (blocks, None) if total is None else blocks.after(total)
            learned.append(longer)
        return Noise(tuple(learned))


@dataclass(frozen=True, slots=True)
class Sum:
    """A cumulative sum and the number of windows since it was last zero."""

    value: float = 0.0
    windows: int = 0

    def after(self, excess: float) -> Sum:
        """Add a window; ``excess``: its value less the allowance."""
        value = self.value + excess
        return Sum(value, self.windows + 1) if value > 0 else NOTHING


NOTHING = Sum()
UNLEARNED = Noise()
ALLOWED = 0.6  # of the loss to be found that a sum does not count. Half of it is best against noise of single windows,
# more against a mix of traffic that lasts as long as detection may take (scripts/watch-table).
LASTS = 4  # windows until a loss of the policy's size is found, at least
ONE = 0.5  # share of the limit that one window may add: a single broken one is no finding
CAP = 1.5  # limits that a sum may reach, so that it falls again soon after the cause is gone


@dataclass(frozen=True, slots=True)
class Detection:
    """A cumulative sum under its limit. ``alarm``: from the limit on until the sum is zero again."""

    total: Sum = NOTHING
    noise: Noise = UNLEARNED
    limit: float = 0.0
    alarm: bool = False

    def after(self, excess: float, margin: float, run_length: float, least: float) -> Detection:
        """Add a window; ``excess``: its value less the allowance; the others as :func:`limit_of` takes them."""
        limit = limit_of(self.noise, margin, run_length, LASTS * least)
        total = self.total.after(min(excess, ONE * limit))
        total = Sum(min(total.value, CAP * limit), total.windows)
        alarm = total.value >= limit or (self.alarm and total.value > 0)
        return Detection(total, self.noise, limit, alarm)

    @property
    def sound(self) -> bool:
        """True while no fault may teach what is usual."""
        return self.total.value <= self.limit / 2

    def learned(self, value: float) -> Detection:
        """Learn the noise of a sound window."""
        return replace(self, noise=self.noise.after(value))


def limit_of(noise: Noise, margin: float, run_length: float, least: float) -> float:
    """The limit of a cumulative sum with ``run_length`` windows between false alarms on average, at least ``least``.

    ``margin``: how far the mean of a sound window lies below the allowance. A sum of n windows passes a limit with the
    chance that a normal variable passes (limit + n margin) / spread of n windows, once in n windows.
    """
    limits = [normal(b.length, run_length) * b.spread - b.length * margin for b in noise.blocks]
    # Sums of more windows than the longest block spread as independent blocks of it: their highest limit, where there
    # is one, is that of a parabola in the root of their number.
    longest = noise.blocks[-1]
    side = normal(longest.length, run_length) * longest.spread / math.sqrt(longest.length)
    if side / (2.0 * margin) > math.sqrt(longest.length):
        limits.append(side * side / (4.0 * margin))
    return max(least, *limits)


@cache
def normal(length: int, run_length: float) -> float:
    """Standard deviations that a sum of ``length`` windows passes by chance once in ``run_length`` windows, and
    :data:`UNLIKE_NORMAL` times as seldom."""
    return NormalDist().inv_cdf(1.0 - min(length / run_length / UNLIKE_NORMAL, 0.5))


def windows_to_detect(limit: float, excess: float) -> float:
    """Windows until a lasting ``excess`` over the allowance passes the limit; infinite where it never does."""
    return limit / excess if excess > 0 else math.inf
