"""An interval held against a limit, and both in words.

A rule passes when the whole interval is on the good side, fails when the whole of it is on the bad side, and is
undecided while the limit lies inside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpctl.gate.case import Case
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.stats.confidence import rounds_needed
from mpctl.stats.interval import Interval


@dataclass(frozen=True)
class Bar:
    """A limit for the interval of one name: ``least`` or most; ``unit``: "x" for ratios, else one of
    :func:`show`, for differences and plain figures."""

    rule: str
    name: str
    limit: float
    least: bool
    unit: str
    before: str = ""


def hold(case: Case, bar: Bar, *, strictly: bool = False) -> RuleResult:
    """The interval of ``bar.name`` against its limit; ``strictly``: an end on the limit does not pass."""
    c = case.comparison
    found = c.intervals.get(bar.name)
    n = min(c.baseline.requests, c.candidate.requests)
    if found is None or not math.isfinite(found.value):
        message = f"{bar.rule} was not measured on both arms"
        return RuleResult(bar.rule, Outcome.MISSING, message, None, bar.limit, None, n, bar.unit)
    outcome = place(found, bar, strictly)
    needed, more = (None, "") if outcome is not Outcome.UNDECIDED else more_needed(case, bar, found)
    side = "at least" if bar.least else "at most"
    if strictly:
        side = "above" if bar.least else "below"
    text = (
        f"{bar.rule} {show(found.value, bar.unit)}{bar.before}, {range_of(found, bar.unit)} over {found.n} rounds of "
        f"{c.round_requests:.3g} prompts ({side} {show(bar.limit, bar.unit)}){more}"
    )
    return RuleResult(bar.rule, outcome, text, found.value, bar.limit, found, n, bar.unit, needed)


def place(found: Interval, bar: Bar, strictly: bool) -> Outcome:
    """On which side of the limit the interval lies."""
    good, bad = (found.low, found.high) if bar.least else (-found.high, -found.low)
    limit = bar.limit if bar.least else -bar.limit
    if good > limit or (good == limit and not strictly):
        return Outcome.PASS
    return Outcome.FAIL if bad < limit else Outcome.UNDECIDED


def more_needed(case: Case, bar: Bar, found: Interval) -> tuple[int | None, str]:
    """About how many requests per arm would decide, and the words for it."""
    c = case.comparison
    spread = c.spreads.get(bar.name, math.inf)
    ratio = bar.unit == "x"
    gap = abs(math.log(found.value / bar.limit) if ratio and bar.limit > 0 else found.value - bar.limit)
    if not math.isfinite(spread):
        return None, "; one round does not show how much rounds differ"
    rounds = rounds_needed(gap, spread, case.policy.side, case.policy.power)
    if rounds is None:
        return None, "; too close to the limit to tell on which side it is"
    needed = math.ceil(max(rounds - found.n, 1) * c.round_requests)
    return needed, f"; about {needed} more prompts would decide"


def range_of(found: Interval, unit: str) -> str:
    """An interval in words; an open end is a question mark."""
    low = show(found.low, unit) if math.isfinite(found.low) else "?"
    high = show(found.high, unit) if math.isfinite(found.high) else "?"
    return f"{100 * found.level:.3g}% interval {low} to {high}"


def show(value: float, unit: str) -> str:
    """A figure in its unit: "x", "ms" (a difference, with its sign), "share", or a plain number."""
    if unit == "x":
        return f"{value:.2f}x"
    if unit == "ms":
        return f"{'+' if value >= 0 else '-'}{in_ms(abs(value))}"
    return f"{value:.1%}" if unit == "share" else f"{value:.2f}"


def in_ms(value: float) -> str:
    """A time given in ms, for people."""
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 1 else f"{value:.2f} ms"
