"""How much error may be made at each look, so that all looks together make no more than was allowed.

The allowed error is spent evenly over the looks, from the fifth on, or at the last where fewer are planned. A spread
that three or four rounds agree on by chance says little: on a machine whose load changes meanwhile, equal engines
were told apart in 2 of 10 measurements that were allowed to decide from the third (docs/explanation/gate.md). What a
look may spend becomes a nominal level by following the distribution of the sum over the rounds from look to look (Lan
and DeMets, Biometrika 70, 1983; the recursion: Armitage, McPherson and Rowe, JRSS A 132, 1969). The levels are then
used with Student's t, the variance being estimated (Jennison and Turnbull, Group Sequential Methods, 2000, 3.8);
tests/unit/gate counts what errors that makes.

A confidence sequence needs no planned number of looks and pays for it: at four rounds the anytime-valid t-test (Wang
and Ramdas, 2025) decides at t > 6.5, this, where four are planned, at 3.7. The libraries looked at (confseq, ville,
expectation) have confidence sequences of known variance or of large samples; none has t boundaries for a handful of
rounds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FIRST_LOOK = 5
MOST_LOOKS = 1000  # rounds that can be planned; what a thousand do not show is not worth showing
_STEP = 0.02  # of the grid, in standard deviations of one round; halving it moves no level by more than 1 %
_REACH = 8.0  # standard deviations on either side of what is followed; 1e-15 lie beyond


@lru_cache(maxsize=64)
def nominal_levels(looks: int, alpha: float) -> tuple[float, ...]:
    """The one-sided level to use at look 1, 2, ..., ``looks`` so that all together err with ``alpha``, 0..1.

    Looks that may not decide have level 0.
    """
    import numpy as np

    first = min(FIRST_LOOK, looks)
    share = alpha / (looks - first + 1)
    kernel = _normal_density(np.arange(-_REACH, _REACH + _STEP / 2, _STEP, dtype=np.float64)) * _STEP
    levels: list[float] = []
    density, start = np.array([1.0 / _STEP]), 0.0
    for look in range(1, looks + 1):
        density = _convolved(density, kernel)
        start -= _REACH
        density, start = _trim(density, start, _REACH * look**0.5)
        if look < first:
            levels.append(0.0)
            continue
        tail = np.cumsum(density[::-1])[::-1] * _STEP
        boundary = int(np.searchsorted(-tail, -share))
        above, below = tail[boundary - 1], tail[boundary]
        place = start + _STEP * (boundary - 0.5 - (share - below) / (above - below))
        levels.append(_normal_tail(place / look**0.5))
        density = density.copy()
        density[boundary:] = 0.0
    return tuple(levels)


def _convolved(one: NDArray[np.float64], two: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of hundreds of looks a direct sum would take minutes."""
    import numpy as np
    from scipy.fft import irfft, next_fast_len, rfft

    length = len(one) + len(two) - 1
    size = next_fast_len(length, real=True)
    return np.asarray(irfft(rfft(one, size) * rfft(two, size), size)[:length])


def _trim(density: NDArray[np.float64], start: float, reach: float) -> tuple[NDArray[np.float64], float]:
    cut = max(0, int((-reach - start) / _STEP))
    return (density[cut : len(density) - cut], start + cut * _STEP) if cut else (density, start)


def _normal_density(x: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    return np.asarray(np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi))


def _normal_tail(x: float) -> float:
    from scipy.special import ndtr

    return float(ndtr(-x))
