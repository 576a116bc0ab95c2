"""What one rule says."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mpctl.stats.interval import Interval


class Outcome(StrEnum):
    """Of one rule: pass, fail, undecided (more of the same would decide), missing (a datum is not there, and more of
    the same would not bring it), skip (the rule does not apply). Of a cell or the whole: promote, reject, undecided."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"
    MISSING = "missing"
    SKIP = "skip"
    PROMOTE = "promote"
    REJECT = "reject"


@dataclass(frozen=True)
class RuleResult:
    """``message``: the sentence with value, limit, interval and n; the same as figures beside it, in ``unit``.

    ``limit`` is the policy's, None where the rule has none; ``n`` counts requests per arm; ``needed``: about how many
    more of them, per arm, would decide, None where that is not known or not the trouble.
    """

    rule: str
    outcome: Outcome
    message: str
    value: float | None = None
    limit: float | None = None
    interval: Interval | None = None
    n: int = 0
    unit: str = ""
    needed: int | None = None

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        interval = self.interval.to_record() if self.interval else None
        return {**self.__dict__, "outcome": self.outcome.value, "interval": interval}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> RuleResult:
        """The value :meth:`to_record` wrote."""
        interval = Interval.from_record(record["interval"]) if record["interval"] else None
        return cls(**{**record, "outcome": Outcome(record["outcome"]), "interval": interval})
