"""A figure with what it may be as well."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Interval:
    """``low <= value <= high``; the truth lies outside with a probability of at most ``1 - level``, at every look
    together. ``n``: what it rests on, in the unit that ``method`` names. An open side is infinite."""

    value: float
    low: float
    high: float
    n: int
    method: str
    level: float

    def to_record(self) -> dict[str, Any]:
        """A JSON object; an open side is null, since JSON knows no infinity."""
        return {**self.__dict__, "low": _finite(self.low), "high": _finite(self.high)}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Interval:
        """The value :meth:`to_record` wrote."""
        low = -math.inf if record["low"] is None else record["low"]
        high = math.inf if record["high"] is None else record["high"]
        return cls(**{**record, "low": low, "high": high})


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
