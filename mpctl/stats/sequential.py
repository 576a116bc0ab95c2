"""Group-sequential tests: the significance level of each interim analysis, and what a plan would show.

Alpha spending: an interim analysis after a round is called a look here, as in the literature. The allowed error is
spent over the looks from the eighth on (at the last where fewer are planned): evenly, or by a :class:`Spending`. A coin
decides in each round which arm goes first, and four coins agree in one of eight measurements: whatever the place in the
round costs is then a difference without spread. Equal engines whose first block is 10 % slower were told apart in 14 of
100 measurements that could end at the fifth round, in 4 of those that end at the eighth or later (scripts/gate-table).
The error spent at a look becomes a nominal level by following the distribution of the sum over rounds from look to look
(Lan and DeMets, Biometrika 70, 1983; the recursion: Armitage, McPherson and Rowe, JRSS A 132, 1969). The levels are
used with Student's t, because the variance is estimated (Jennison and Turnbull, Group Sequential Methods, 2000, 3.8);
tests/unit/stats counts the resulting errors.

Kept by hand: confidence sequences need no planned number of looks, but at four rounds the anytime-valid t-test (Wang
and Ramdas, 2025) decides at t > 6.5 and this at 3.7, and the libraries (confseq, ville, expectation) have no t
boundaries for a handful of rounds.

Power: the chance that one of the interim analyses shows a mean to be beyond a limit follows from the same recursion,
with a drift (Jennison and Turnbull, 19.2). That the spread is estimated is accounted for by averaging over its
distribution half-way. Simulated t-tests of 5 to 60 rounds agree within 4 in 100, and tests/unit/gate compares the
result with the gate itself.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mpctl.stats.numerics import Floats, fft, np, special


@dataclass(frozen=True)
class Spending:
    """An error, 0..1, and how much of it is spent by when: the share ``first`` at the first look that decides, and of
    the rest the ``power``-th power of the share of looks that are over (Kim and DeMets, Biometrika 74, 1987; 1 is
    even). More at the first look finds large differences early, a higher power small ones at the end."""

    alpha: float
    first: float = 0.0
    power: float = 1.0

    def by_look(self, looks: int) -> tuple[float, ...]:
        """The error spent at each of ``looks`` looks that decide."""
        over = [
            self.first + (1.0 - self.first) * (look / looks) ** self.power
            for look in range(1, looks + 1)
        ]
        return tuple(
            self.alpha * (now - before) for before, now in itertools.pairwise((0.0, *over))
        )


FIRST_LOOK = 8
FEWEST = 5  # values whose spread is judged
MOST_LOOKS = 1000  # rounds that can be planned
_STEP = 0.02  # of the grid, in standard deviations of one round; halving it moves no level by more than 1 %
_REACH = 8.0  # standard deviations followed on either side; 1e-15 lie beyond
_COARSE_STEP = (
    0.1  # of the grid, in standard deviations of one round; halving it moves no power by 0.3 %
)
_SPREADS = 5  # estimates of the spread, each as likely as the others
_COUNTED = 80  # rounds up to which the recursion is followed; beyond, they grow with the square of the spread
_GRAIN = 0.03  # of the logarithm of a difference for which rounds are counted; the next smaller one is taken


@lru_cache(maxsize=512)
def nominal_levels(
    looks: int, alpha: float | Spending, first_look: int = FIRST_LOOK
) -> tuple[float, ...]:
    """Return the one-sided level of look 1, 2, ..., ``looks`` with a total error of ``alpha``, 0..1, of which none is
    spent before ``first_look``. A number is spent evenly.

    Looks that may not decide have level 0.
    """
    first = min(first_look, looks)
    shares = spending_of(alpha).by_look(looks - first + 1)
    kernel = normal_density(np.arange(-_REACH, _REACH + _STEP / 2, _STEP, dtype=np.float64)) * _STEP
    levels: list[float] = []
    density, start = np.array([1.0 / _STEP]), 0.0
    for look in range(1, looks + 1):
        density = convolved(density, kernel)
        start -= _REACH
        density, start = trimmed(density, start, _REACH * look**0.5)
        if look < first:
            levels.append(0.0)
            continue
        share = shares[look - first]
        tail = np.cumsum(density[::-1])[::-1] * _STEP
        boundary = int(np.searchsorted(-tail, -share))
        above, below = tail[boundary - 1], tail[boundary]
        crossing = start + _STEP * (boundary - 0.5 - (share - below) / (above - below))
        levels.append(float(special.ndtr(-crossing / look**0.5)))
        density = density.copy()
        density[boundary:] = 0.0
    return tuple(levels)


def spending_of(alpha: float | Spending) -> Spending:
    """An error that is spent evenly, unless it says how."""
    return alpha if isinstance(alpha, Spending) else Spending(alpha)


def convolved(first: Floats, second: Floats) -> Floats:
    """Convolve along the last axis by Fourier transform: for hundreds of looks a direct sum would take minutes."""
    length = first.shape[-1] + second.shape[-1] - 1
    size = fft.next_fast_len(length, real=True)
    return np.asarray(fft.irfft(fft.rfft(first, size) * fft.rfft(second, size), size)[..., :length])


def trimmed(
    density: Floats, start: float, reach: float, step: float = _STEP
) -> tuple[Floats, float]:
    """Cut a density that begins at ``start``, along the last axis, beyond ``reach`` on either side of zero."""
    cut = max(0, int((-reach - start) / step))
    return density[..., cut : density.shape[-1] - cut], start + cut * step


def normal_density(x: Floats) -> Floats:
    """The standard normal density."""
    return np.asarray(np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi))


@lru_cache(maxsize=1024)
def chance_to_show(
    gap: float,
    spread: float,
    rounds: int,
    alpha: float | Spending,
    *,
    trim: float = 0.0,
    omit: int = 0,
) -> float:
    """Return the probability, 0..1, that an analysis after one of ``rounds`` rounds shows a mean to be beyond a limit.

    ``gap``: how far the mean truly is beyond it; ``spread``: standard deviation of one round, in the same unit;
    ``alpha``: the one-sided error of all analyses together; ``trim``: the share of the rounds left out at each end;
    ``omit``: first rounds that do not count.
    """
    if spread <= 0 or not math.isfinite(gap / spread):
        return float(gap > 0)
    levels = nominal_levels(rounds, alpha)
    counts = range(1, rounds - omit + 1)
    freedoms = [count - 2 * int(trim * count) - 1 for count in counts]
    reaches = [
        float(special.stdtrit(freedom, 1.0 - level)) if level and freedom > 0 else math.inf
        for freedom, level in zip(freedoms, levels[omit:], strict=True)
    ]
    half = max((rounds - omit) // 2, FEWEST) - 1
    estimates = [
        math.sqrt(float(special.chdtri(half, 1 - (i + 0.5) / _SPREADS)) / half)
        for i in range(_SPREADS)
    ]
    return _crossing(gap / spread, reaches, estimates)


def rounds_to_show(
    gap: float,
    spread: float,
    alpha: float | Spending,
    power: float,
    *,
    trim: float = 0.0,
    settled: int = 0,
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
def _rounds_to_show(
    drift: float, alpha: float | Spending, power: float, trim: float, settled: int
) -> int | None:
    single = (
        float(special.ndtri(1.0 - spending_of(alpha).alpha) + special.ndtri(power)) / drift
    ) ** 2  # rounds of a single analysis at the end
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
    kernel = (
        normal_density(
            np.arange(-_REACH, _REACH + _COARSE_STEP / 2, _COARSE_STEP, dtype=np.float64)
        )
        * _COARSE_STEP
    )
    density, start, crossed = np.full((len(estimates), 1), 1.0 / _COARSE_STEP), 0.0, 0.0
    for count, reach in enumerate(reaches, start=1):
        density = convolved(density, kernel)
        density, start = trimmed(density, start - _REACH, _REACH * count**0.5, _COARSE_STEP)
        if math.isinf(reach):
            continue
        boundaries = (
            np.array(estimates) * reach * count**0.5 - drift * count
        )  # the grid follows the drift
        beyond = (
            np.arange(density.shape[1]) >= np.rint((boundaries - start) / _COARSE_STEP)[:, None]
        )
        crossed += float(density[beyond].sum()) * _COARSE_STEP / len(estimates)
        density = np.where(beyond, 0.0, density)
    return min(crossed, 1.0)
