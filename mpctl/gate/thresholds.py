"""Compare a confidence interval with a limit.

A rule passes when the whole interval is on the good side of its limit, fails when the whole of it is on the bad side,
and is undecided while the limit lies inside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpctl import formatting
from mpctl.gate.case import Case
from mpctl.gate.estimates import SETTLED_FROM
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.stats.interval import Interval
from mpctl.stats.power import rounds_to_show


@dataclass(frozen=True)
class Threshold:
    """A limit for a figure. ``figure``: the name of its interval; ``label``: its name in messages; ``least``: the limit
    is a minimum; ``strictly``: the limit itself does not pass; ``unit``: of :func:`mpctl.formatting.in_unit`;
    ``detail``: printed after the value."""

    label: str
    figure: str
    limit: float
    least: bool
    unit: str = "x"
    detail: str = ""
    strictly: bool = False

    @property
    def text(self) -> str:
        """The limit in words: ``at least 0.95x``."""
        side = ("above" if self.least else "below") if self.strictly else ("at least" if self.least else "at most")
        return f"{side} {formatting.limit(self.limit, self.unit)}"


def assess_threshold(case: Case, threshold: Threshold) -> RuleResult:
    """Judge the interval of a threshold's figure."""
    c = case.comparison
    interval = c.intervals.get(threshold.figure)
    n = min(c.baseline.requests, c.candidate.requests)
    limit, unit = threshold.limit, threshold.unit
    if interval is None or not math.isfinite(interval.value):
        message = f"{threshold.label} was not measured on both arms"
        return RuleResult(Outcome.MISSING, message, None, limit, None, n, unit)
    outcome = place(interval, threshold)
    needed, advice = (None, "") if outcome is not Outcome.UNDECIDED else more_needed(case, threshold, interval)
    pooled = _contradicting_mean(case, threshold) if outcome is Outcome.PASS else None
    if pooled is not None:
        outcome = Outcome.UNDECIDED
        advice = f"; with its stalls and extreme rounds it is {formatting.in_unit(pooled, unit)}"
    text = (
        f"{threshold.label} {formatting.in_unit(interval.value, unit)}{threshold.detail}, "
        f"{formatting.confidence(interval, unit)} over {interval.n} rounds of {c.round_requests:.3g} prompts "
        f"({threshold.text}){_not_in_turns(case)}{advice}"
    )
    return RuleResult(outcome, text, interval.value, limit, interval, n, unit, needed)


def _not_in_turns(case: Case) -> str:
    if not case.comparison.separate:
        return ""
    most = formatting.limit(case.policy.max_drift, "share")
    return f"; widened by {most}, for what the machine may have changed between the arms"


def _contradicting_mean(case: Case, threshold: Threshold) -> float | None:
    """The figure with every stall and round, where that is beyond the limit: stalls of one arm alone are no noise."""
    figure = case.comparison.figures.get(threshold.figure)
    pooled = figure.pooled if figure is not None else None
    if pooled is None:
        return None
    beyond = pooled < threshold.limit if threshold.least else pooled > threshold.limit
    return pooled if beyond else None


def place(interval: Interval, threshold: Threshold) -> Outcome:
    """Return on which side of the limit the interval lies: pass, fail or undecided."""
    limit, strictly = threshold.limit, threshold.strictly
    good, bad = (interval.above, interval.below) if threshold.least else (interval.below, interval.above)
    if good(limit, strictly=strictly):
        return Outcome.PASS
    return Outcome.FAIL if bad(limit, strictly=True) else Outcome.UNDECIDED


def place_estimate(value: float | None, interval: Interval | None, limit: float) -> Outcome:
    """Judge a figure that passes by its estimate: at or above the limit it passes, and it fails only when its whole
    interval lies below."""
    if value is None:
        return Outcome.MISSING
    if value >= limit:
        return Outcome.PASS
    below = interval is not None and interval.below(limit, strictly=True)
    return Outcome.FAIL if below else Outcome.UNDECIDED


def more_needed(case: Case, threshold: Threshold, interval: Interval) -> tuple[int | None, str]:
    """Return the requests per arm that would probably decide, and the advice in words."""
    c, policy = case.comparison, case.policy
    figure = c.figures.get(threshold.figure)
    if figure is None or not math.isfinite(figure.trimmed.spread):
        return None, "; one round does not show how much rounds differ"
    limit = threshold.limit
    gap = math.log(interval.value / limit) if figure.ratio and limit > 0 else interval.value - limit
    stage = case.stages.higher if threshold.least else case.stages.lower
    alpha = stage.below if gap > 0 else stage.above
    rounds = rounds_to_show(
        figure.gap(abs(gap)),
        figure.trimmed.spread,
        alpha,
        policy.power,
        trim=figure.trim,
        settled=SETTLED_FROM,
    )
    if rounds is None and abs(gap) <= figure.allowance:
        most = formatting.limit(c.margin, "share")
        return None, f"; equal engines may differ by {most} for as long as both live, so more rounds decide nothing"
    if rounds is None:
        return None, "; too close to the limit to tell on which side it is"
    made = max(c.rounds, interval.n)
    needed = math.ceil(max(rounds - made, 1) * c.round_requests)
    if case.last:  # no error is left to spend on further rounds of this measurement
        return needed, f"; a new measurement with --repeats {max(rounds, made + 1)} would probably decide"
    return needed, f"; about {needed} more prompts would decide (--repeats {max(rounds, made + 1)})"
