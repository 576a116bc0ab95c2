"""Sequential detection: a cumulative sum per figure, whose limit follows from a stated rate of false alarms.

Each window gives one number: how far a figure is from where it should be, as a logarithm. A cumulative sum (Page,
Biometrika 41, 1954) adds what exceeds ``allowance`` and starts again at zero when it falls below; an alarm is a sum
above a limit. The limit comes from the mean number of windows between two false alarms that is wanted (Siegmund,
Sequential Analysis, 1985, 2.6), for the noise of this very service.

Windows resemble their neighbours, because a long request spans several and a mix of traffic lasts. The noise is
therefore that of means over :data:`BLOCK` windows, times the square root of their number, learned while nothing is
wrong. Values are clipped, so that neither one broken window nor a shift that was not seen yet teaches much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

BLOCK = 32  # windows of a block: eight minutes at the default interval, longer than a mix of traffic lasts
FIRST_NOISE = 0.12  # of the logarithm of one window, before anything was learned
LEAST_NOISE, MOST_NOISE = 0.05, 1.0
_FIRST_WEIGHT = 8.0  # blocks that FIRST_NOISE counts for
_MEMORY = 180.0  # blocks: a day at the default interval
_CLIP = 3.0  # noises


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of a figure in one window, such that sums over many windows spread as independent ones would.

    ``mean`` and ``variance`` are those of block means; ``weight``: blocks they were learned from, at most the memory.
    """

    mean: float = 0.0
    variance: float = FIRST_NOISE**2 / BLOCK
    weight: float = _FIRST_WEIGHT
    total: float = 0.0
    count: int = 0

    @property
    def deviation(self) -> float:
        """Long-run standard deviation of one window."""
        return min(max(math.sqrt(self.variance * BLOCK), LEAST_NOISE), MOST_NOISE)

    def after(self, value: float) -> Noise:
        """With one more window, as soon as its block is full."""
        if self.count + 1 < BLOCK:
            return Noise(self.mean, self.variance, self.weight, self.total + value, self.count + 1)
        block = (self.total + value) / BLOCK
        reach = _CLIP * math.sqrt(max(self.variance, LEAST_NOISE**2 / BLOCK))
        away = min(max(block - self.mean, -reach), reach)
        weight = min(self.weight + 1.0, _MEMORY)
        return Noise(
            mean=self.mean + away / weight,
            variance=self.variance + (away * away - self.variance) / weight,
            weight=weight,
        )


@dataclass(frozen=True, slots=True)
class Sum:
    """A cumulative sum and the number of windows since it was last zero."""

    value: float = 0.0
    windows: int = 0

    def after(self, excess: float) -> Sum:
        """With one more window; ``excess``: its value less the allowance."""
        value = self.value + excess
        return Sum(value, self.windows + 1) if value > 0 else NOTHING


NOTHING = Sum()
UNLEARNED = Noise()


def limit_of(deviation: float, margin: float, run_length: float) -> float:
    """The limit of a cumulative sum with ``run_length`` windows between false alarms on average.

    ``margin``: how far the mean of a sound window lies below the allowance, in the unit of ``deviation``.
    """
    drift = margin / deviation
    # Siegmund: run length = (exp(2 drift b) - 2 drift b - 1) / (2 drift^2), b = limit + 1.166; the linear term, which
    # only shortens it, is made up for by the doubling.
    bound = math.log(2.0 * (2.0 * drift * drift * run_length) + 1.0) / (2.0 * drift)
    return deviation * max(bound - 1.166, 1.0)


def windows_to_detect(limit: float, excess: float) -> float:
    """Windows until a lasting ``excess`` over the allowance passes the limit; infinite where it never does."""
    return limit / excess if excess > 0 else math.inf
