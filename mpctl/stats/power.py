"""Statistical power of a group-sequential test, before anything is measured.

The chance that one of the interim analyses shows a mean to be beyond a limit follows from the same recursion as their
levels, with a drift (Jennison and Turnbull, Group Sequential Methods, 2000, 19.2). The boundaries are those of
Student's t; that the spread is estimated is accounted for by averaging over its distribution half-way. Simulated
t-tests of 5 to 60 rounds agree within 4 in 100, and tests/unit/gate compares the result with the gate itself.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from mpctl.stats.alpha_spending import FIRST_LOOK, MOST_LOOKS, convolved, nominal_levels, normal_density, trimmed

_STEP = 0.1  # of the grid, in standard deviations of one round; halving it moves no power by 0.3 %
_REACH = 8.0
_SPREADS = 5  # estimates of the spread, each as likely as the others
_COUNTED = 80  # rounds up to which the recursion is followed; beyond, they grow with the square of the spread
_GRAIN = 0.03  # of the logarithm of a difference for which rounds are counted; the next smaller one is taken


@lru_cache(maxsize=1024)
def chance_to_show(gap: float, spread: float, rounds: int, alpha: float, *, trim: float = 0.0, omit: int = 0) -> float:
    """Return the probability, 0..1, that an analysis after one of ``rounds`` rounds shows a mean to be beyond a limit.

    ``gap``: how far the mean truly is beyond it; ``spread``: standard deviation of one round, in the same unit;
    ``alpha``: the one-sided error of all analyses together; ``trim``: the share of the rounds left out at each end;
    ``omit``: first rounds that do not count.
    """
    from scipy.special import chdtri, stdtrit

    if spread <= 0 or not math.isfinite(gap / spread):
        return float(gap > 0)
    levels = nominal_levels(rounds, alpha)
    counts = range(1, rounds - omit + 1)
    freedoms = [count - 2 * int(trim * count) - 1 for count in counts]
    reaches = [
        float(stdtrit(freedom, 1.0 - level)) if level and freedom > 0 else math.inf
        for freedom, level in zip(freedoms, levels[omit:], strict=True)
    ]
    half = max((rounds - omit) // 2, FIRST_LOOK) - 1
    estimates = [math.sqrt(float(chdtri(half, 1 - (i + 0.5) / _SPREADS)) / half) for i in range(_SPREADS)]
    return _crossing(gap / spread, reaches, estimates)


def rounds_to_show(
    gap: float, spread: float, alpha: float, power: float, *, trim: float = 0.0, settled: int = 0
) -> int | None:
    """Return the fewest planned rounds whose :func:`chance_to_show` is ``power``; None above MOST_LOOKS.

    From ``settled`` planned rounds on the first does not count; 0: it always does.
    """
    if gap <= 0:
        return None
    if spread <= 0:
        return FIRST_LOOK
    steps = math.floor(math.log(gap / spread) / _GRAIN)
    return _rounds_to_show(math.exp(_GRAIN * steps), alpha, power, trim, settled)


@lru_cache(maxsize=4096)
def _rounds_to_show(drift: float, alpha: float, power: float, trim: float, settled: int) -> int | None:
    from scipy.special import ndtri

    single = (float(ndtri(1.0 - alpha) + ndtri(power)) / drift) ** 2  # rounds of a single analysis at the end
    scale = max(single / _COUNTED, 1.0)
    counted = drift * math.sqrt(scale)

    def enough(rounds: int) -> bool:
        omit = int(0 < settled <= rounds)
        return chance_to_show(counted, 1.0, rounds, alpha, trim=trim, omit=omit) >= power

    rounds = fewest_rounds(enough, MOST_LOOKS, int(single / scale))
    return None if rounds is None or rounds * scale > MOST_LOOKS else round(rounds * scale)


def fewest_rounds(enough: Callable[[int], bool], most: int, least: int = FIRST_LOOK) -> int | None:
    """Return the smallest number of planned rounds, from ``least`` on, that is ``enough``; None above ``most``."""
    low = high = max(least, FIRST_LOOK)
    while high < most and not enough(high):
        low, high = high + 1, min(high + high // 4 + 2, most)
    if high > most or not enough(high):
        return None
    return bisect.bisect_left(range(high), True, lo=low, key=enough)


def _crossing(drift: float, reaches: Sequence[float], estimates: Sequence[float]) -> float:
    """The probability that a sum of standard normal steps with a drift is above ``estimate * reach * sqrt(n)`` after
    one of its steps n = 1, 2, ..., on average over the estimates."""
    import numpy as np

    kernel = normal_density(np.arange(-_REACH, _REACH + _STEP / 2, _STEP, dtype=np.float64)) * _STEP
    density, start, crossed = np.full((len(estimates), 1), 1.0 / _STEP), 0.0, 0.0
    for count, reach in enumerate(reaches, start=1):
        density = convolved(density, kernel)
        density, start = trimmed(density, start - _REACH, _REACH * count**0.5, _STEP)
        if math.isinf(reach):
            continue
        boundaries = np.array(estimates) * reach * count**0.5 - drift * count  # the grid follows the drift
        above = np.arange(density.shape[1]) >= np.rint((boundaries - start) / _STEP)[:, None]
        crossed += float(density[above].sum()) * _STEP / len(estimates)
        density = np.where(above, 0.0, density)
    return min(crossed, 1.0)
