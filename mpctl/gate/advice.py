"""Advice: how much more would decide an undecided measurement."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mpctl.gate.analysis import SETTLED_FROM, Analysis, Comparison
from mpctl.gate.rule import Direction, Outcome, RuleResult, more_to_pass
from mpctl.gate.rules import rule_named
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.stats.sequential import rounds_to_show


@dataclass(frozen=True)
class MoreData:
    """What would probably decide an undecided measurement: ``requests`` more per arm, the ``seconds`` that they take on
    both arms at the present rate, and the rounds, ``repeats``, of a new measurement: its plan has rounds of two prompts
    where this one has one."""

    requests: int
    seconds: float
    repeats: int


def more_to_decide(analysis: Analysis, verdict: Verdict) -> MoreData | None:
    """Return what would probably decide; None for a verdict that stands, and where a cell may need more than
    requests."""
    cells = zip(analysis.cells, verdict.cells, strict=False)  # answers alone have no rounds
    undecided = [both for both in cells if both[1].outcome is Outcome.UNDECIDED]
    rounds = [_more_rounds(comparison, cell, analysis) for comparison, cell in undecided]
    slowest = [(needed, both[0]) for needed, both in zip(rounds, undecided, strict=True) if needed]
    if verdict.outcome is not Outcome.UNDECIDED or not slowest or len(slowest) < len(rounds):
        return None
    return MoreData(
        max(math.ceil(needed * c.round_requests) for needed, c in slowest),
        math.fsum(needed * c.round_seconds for needed, c in slowest),
        math.ceil(
            max(c.rounds + needed for needed, c in slowest) / (1 + analysis.in_single_prompts)
        ),
    )


def _more_rounds(c: Comparison, cell: CellVerdict, analysis: Analysis) -> float | None:
    """The further rounds with which every open rule of a cell would probably decide; None where one never may."""
    if not c.round_requests or any(r.outcome is Outcome.MISSING for r in cell.rules):
        return None
    rounds = [_rounds_of(r, c, analysis) for r in cell.rules if r.outcome is Outcome.UNDECIDED]
    return None if None in rounds else max(filter(None, rounds), default=None)


def _rounds_of(result: RuleResult, c: Comparison, analysis: Analysis) -> float | None:
    rule, interval, limit = rule_named(result.rule), result.interval, result.limit
    if rule is None or interval is None or limit is None:
        return None
    if rule.name == "errors":
        prompts = more_to_pass(*c.failed_alone, result.n, limit)
        return prompts and prompts / c.round_requests
    if rule.direction is Direction.EITHER_WAY and interval.value < 1.0:
        limit = 1.0 / limit
    figure = c.figures.get(f"{rule.figure}_ms" if result.unit == "ms" else rule.figure)
    if figure is None or interval.below(limit) or interval.above(limit):
        return None  # the figure has decided; something else holds the rule open
    gap = figure.distance(interval.value, limit)
    rounds = math.isfinite(figure.trimmed.spread) and rounds_to_show(
        figure.gap(abs(gap)),
        figure.trimmed.spread,
        figure.stage.below if gap > 0 else figure.stage.above,
        analysis.policy.power,
        trim=figure.trim,
        settled=SETTLED_FROM,
    )
    return max(rounds - max(c.rounds, interval.n), 1) if rounds else None
