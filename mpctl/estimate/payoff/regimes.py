"""Regimes of load, in which the model errs by different amounts."""

from __future__ import annotations

from mpctl.estimate.payoff.cell import LOOKUPS, Cell

LOOKUP, POOL, BEYOND, NEAR, BELOW = "n-gram", "pool-bound", "beyond the knee", "up to the knee", "below a quarter knee"
REGIMES = (BELOW, NEAR, BEYOND, POOL, LOOKUP)


def regime_of(cell: Cell, load: float, *, bound: bool) -> str:
    """The regime of a cell; ``load``: tokens per step over the knee."""
    if cell.method in LOOKUPS:
        return LOOKUP
    if bound:
        return POOL
    if load > 1:
        return BEYOND
    return NEAR if load > 0.25 else BELOW
