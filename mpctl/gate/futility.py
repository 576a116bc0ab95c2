"""Futility: whether going on is likely to decide anything.

From half of the planned rounds on, a measurement ends undecided when the chance to decide by the last round is small,
even if the truth is one standard error better than it looks (stochastic curtailment; Lan, Simon and Halperin 1982). The
stop is not binding: it promotes and rejects nothing, so it costs no error, and going on by hand costs none either.
"""

from __future__ import annotations

import math

from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.estimates import Stages
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.stats.confidence import chance_to_decide

LEAST_CHANCE = 0.1
_FEWEST = 8  # planned rounds; fewer are over before a forecast is worth anything
_LEAST = ("samples", "tokens per step", "first position", "coverage")  # rules whose limit is a minimum
_FIGURES = {
    "time per token": ("time_per_token_ratio",),
    "throughput": ("throughput_ratio",),
    "TPOT": ("tpot",),
    "TTFT": ("ttft", "ttft_ms"),
    "queue wait": ("queue_wait", "queue_wait_ms"),
}


def is_futile(analysis: Analysis, verdict: Verdict) -> bool:
    """Return whether an undecided measurement is past half of its plan and unlikely to decide."""
    if verdict.outcome is not Outcome.UNDECIDED or analysis.planned < _FEWEST:
        return False
    if not analysis.planned / 2 <= analysis.rounds < analysis.planned:
        return False
    return decision_chance(analysis, verdict) < LEAST_CHANCE


def decision_chance(analysis: Analysis, verdict: Verdict) -> float:
    """Return an optimistic chance, 0..1, that the last planned round ends with a verdict."""
    stages = Stages.of(
        analysis.policy, rounds=max(analysis.rounds, 1), planned=analysis.planned, cells=len(analysis.cells)
    )
    chances = [_of_cell(c, v, analysis, stages) for c, v in zip(analysis.cells, verdict.cells, strict=True)]
    if not chances:
        return 1.0
    return max(min(max(both) for both in chances), *(rejected for _, rejected in chances))


def _of_cell(c: Comparison, verdict: CellVerdict, analysis: Analysis, stages: Stages) -> tuple[float, float]:
    """The chances to promote and to reject a cell."""
    promoted, rejected = 1.0, 0.0
    for rule in verdict.rules:
        if rule.outcome is Outcome.MISSING:
            promoted = 0.0
        elif rule.rule in _FIGURES and rule.interval is not None and rule.limit is not None:
            passes, fails = _of_rule(c, rule, stages, analysis.planned)
            shown = rule.rule == "time per token" and analysis.overall is not None  # by all cells together
            promoted, rejected = promoted if shown else min(promoted, passes), max(rejected, fails)
        elif rule.outcome is Outcome.UNDECIDED and _looks_bad(rule):
            rejected = max(rejected, LEAST_CHANCE)  # no forecast is made of it
    return promoted, rejected


def _looks_bad(rule: RuleResult) -> bool:
    """Return whether an undecided rule's estimate is beyond its limit."""
    if rule.value is None or rule.limit is None:
        return False
    if rule.rule == "length":
        return not 1.0 / rule.limit <= rule.value <= rule.limit
    return rule.value < rule.limit if rule.rule in _LEAST else rule.value > rule.limit


def _of_rule(c: Comparison, rule: RuleResult, stages: Stages, planned: int) -> tuple[float, float]:
    names = _FIGURES[rule.rule]
    figure = c.figures.get(names[-1] if rule.unit == "ms" else names[0])
    if figure is None or rule.limit is None:
        return 1.0, 1.0
    limit = rule.limit
    if figure.ratio:
        if limit <= 0:
            return 1.0, 1.0
        limit = math.log(limit)
    made = figure.trimmed
    higher = rule.rule == "throughput"
    gap = made.mean - limit if higher else limit - made.mean
    promote = stages.higher.below if higher else stages.lower.above
    reject = stages.higher.above if higher else stages.lower.below
    return (
        chance_to_decide(figure.gap(gap), made, planned, promote),
        chance_to_decide(figure.gap(-gap), made, planned, reject),
    )
