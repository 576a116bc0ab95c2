"""Confidence bounds of a quantile from order statistics; the only assumption: requests are independent and alike.

The i-th smallest of n values lies below the q-quantile with the probability that fewer than i of n fall below it, which
is binomial (David and Nagaraja, Order Statistics, 2003, 7.1). An upper bound for the 99th percentile at 95 % exists
from 299 values on, since 0.99 ** 298 > 0.05.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mpctl.stats.interval import Interval

METHOD = "requests, order statistics"


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
    return Interval(cand / base, low, high, min(len(candidate), len(baseline)), METHOD, 1 - 2 * alpha)
