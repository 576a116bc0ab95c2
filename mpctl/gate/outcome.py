"""The outcome of a gate rule."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mpctl.stats.interval import Interval


class Outcome(StrEnum):
    """Of a rule: pass, fail, undecided (more data would decide), missing (data is absent, and more requests would not
    bring it) or skip (the rule does not apply). Of a cell or a verdict: promote, reject or undecided."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"
    MISSING = "missing"
    SKIP = "skip"
    PROMOTE = "promote"
    REJECT = "reject"


@dataclass(frozen=True)
class RuleResult:
    """``message``: a sentence with value, limit, interval and n; the same as figures beside it, in ``unit``.

    ``limit`` is the policy's, None where the rule has none; ``n`` counts requests per arm; ``needed``: requests per arm
    that would probably decide, None where unknown or where more requests would not help.
    """

    outcome: Outcome
    message: str
    value: float | None = None
    limit: float | None = None
    interval: Interval | None = None
    n: int = 0
    unit: str = ""
    needed: int | None = None
    rule: str = ""
