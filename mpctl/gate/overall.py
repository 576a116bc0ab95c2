"""All cells together: the gain is shown once, for the service, and every cell must be no worse.

Asking each of eight cells for a gain of its own promotes a candidate that is 20 % faster everywhere in 4 of 10
measurements. Gate-keeping asks for both without more error: the gain over all cells at the full level, and in each cell
that throughput, TPOT, TTFT and queue wait are within their limits, each at the full level, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mpctl.gate.estimates import Figure
from mpctl.stats.confidence import Stage, ratio_interval
from mpctl.stats.interval import Interval


def cell_shares(traffic: Sequence[str], shares: Mapping[str, float]) -> list[float]:
    """Return each cell's share of the traffic, given the class of each: a class's share is divided evenly among its
    cells; without shares all classes weigh the same."""
    given = {name: shares.get(name, 0.0) for name in set(traffic)}
    if not math.fsum(given.values()):
        given = dict.fromkeys(given, 1.0)
    total = math.fsum(given.values())
    return [given[name] / total / traffic.count(name) for name in traffic]


def overall_gain(figures: Sequence[Figure | None], weights: Sequence[float], stage: Stage) -> Interval | None:
    """Return the weighted geometric mean of the cells' ratios, round by round; None where the cells' rounds differ."""
    known = [figure for figure in figures if figure is not None]
    counts = {len(figure.values) for figure in known}
    if len(known) != len(figures) or len(counts) != 1:
        return None
    rounds = zip(*(figure.values for figure in known), strict=True)
    joint = ratio_interval([math.fsum(w * v for w, v in zip(weights, r, strict=True)) for r in rounds], stage)
    return known[0].allowed(joint)
