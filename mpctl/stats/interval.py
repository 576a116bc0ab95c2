"""A point estimate with its confidence interval."""

from __future__ import annotations

from dataclasses import dataclass


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
