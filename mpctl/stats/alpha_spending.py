"""Alpha spending for group-sequential tests: the significance level of each interim analysis.

An interim analysis after a round is called a look here, as in the literature. The allowed error is spent evenly over
the looks from the fifth on (at the last where fewer are planned): three or four rounds can agree by chance, and on a
machine with changing load equal engines were told apart in 2 of 10 measurements that could end after the third round
(docs/explanation/gate.md). The error spent at a look becomes a nominal level by following the distribution of the
sum over rounds from look to look (Lan and DeMets, Biometrika 70, 1983; the recursion: Armitage, McPherson and Rowe,
JRSS A 132, 1969). The levels are used with Student's t, because the variance is estimated (Jennison and Turnbull, Group
Sequential Methods, 2000, 3.8); tests/unit/stats counts the resulting errors.

Kept by hand: confidence sequences need no planned number of looks, but at four rounds the anytime-valid t-test (Wang
and Ramdas, 2025) decides at t > 6.5 and this at 3.7, and the libraries (confseq, ville, expectation) have no t
boundaries for a handful of rounds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FIRST_LOOK = 5
MOST_LOOKS = 1000  # rounds that can be planned
_STEP = 0.02  # of the grid, in standard deviations of one round; halving it moves no level by more than 1 %
_REACH = 8.0  # standard deviations followed on either side; 1e-15 lie beyond


@lru_cache(maxsize=512)
def nominal_levels(looks: int, alpha: float) -> tuple[float, ...]:
    """Return the one-sided level of look 1, 2, ..., ``looks`` with a total error of ``alpha``, 0..1.

    Looks that may not decide have level 0.
    """
    import numpy as np

    first = min(FIRST_LOOK, looks)
    share = alpha / (looks - first + 1)
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
        tail = np.cumsum(density[::-1])[::-1] * _STEP
        boundary = int(np.searchsorted(-tail, -share))
        above, below = tail[boundary - 1], tail[boundary]
        place = start + _STEP * (boundary - 0.5 - (share - below) / (above - below))
        levels.append(_normal_tail(place / look**0.5))
        density = density.copy()
        density[boundary:] = 0.0
    return tuple(levels)


def convolved(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convolve along the last axis by Fourier transform: for hundreds of looks a direct sum would take minutes."""
    import numpy as np
    from scipy.fft import irfft, next_fast_len, rfft

    length = first.shape[-1] + second.shape[-1] - 1
    size = next_fast_len(length, real=True)
    return np.asarray(irfft(rfft(first, size) * rfft(second, size), size)[..., :length])


def trimmed(
    density: NDArray[np.float64], start: float, reach: float, step: float = _STEP
) -> tuple[NDArray[np.float64], float]:
    """Cut a density that begins at ``start``, along the last axis, beyond ``reach`` on either side of zero."""
    cut = max(0, int((-reach - start) / step))
    return density[..., cut : density.shape[-1] - cut], start + cut * step


def normal_density(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard normal density."""
    import numpy as np

    return np.asarray(np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi))


def _normal_tail(x: float) -> float:
    from scipy.special import ndtr

    return float(ndtr(-x))
