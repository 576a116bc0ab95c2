"""Advice: how much more would decide an undecided measurement, and what to do with each variant of a class: speculate,
limit the draft's length, or route its requests elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mpctl import formatting
from mpctl.experiment.variants import Variant
from mpctl.gate.analysis import SETTLED_FROM, Analysis, Comparison
from mpctl.gate.decomposition import step_times
from mpctl.gate.rule import Direction, Outcome, RuleResult, more_to_pass
from mpctl.gate.rules import rule_named
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.stats.sequential import rounds_to_show


@dataclass(frozen=True)
class MoreData:
    """What would probably decide an undecided measurement: ``requests`` more per arm, the ``seconds`` that they take on
    both arms at the present rate, and the rounds, ``repeats``, of a new measurement."""

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
        max(c.rounds + math.ceil(needed) for needed, c in slowest),
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


def with_advice(cells: tuple[CellVerdict, ...], analysis: Analysis) -> tuple[CellVerdict, ...]:
    """Return the verdicts with what to do, where their classes are variants."""
    if not any(known.variant for known in analysis.prompts.values()):
        return cells
    return tuple(replace(cell, advice=_advice(cell, cells, analysis)) for cell in cells)


def _advice(cell: CellVerdict, cells: tuple[CellVerdict, ...], analysis: Analysis) -> str:
    if cell.outcome is Outcome.PROMOTE:
        return "speculate"
    variant = _variant(analysis, cell)
    if variant is None:
        return ""
    if cell.outcome is Outcome.REJECT:
        limited = "" if cell.broken else _limited(cell, analysis)
        return limited or _routed(variant, [v for c in cells if (v := _variant(analysis, c))])
    settings = {
        "contexts": variant.context,
        "thinking": {True: "on", False: "off", None: ""}[variant.thinking],
        "adapters": variant.adapter,
    }
    words = [f"MPCTL_{name.upper()}={value}" for name, value in settings.items() if value]
    return f"measure it alone: {' '.join(words)}"


def _variant(analysis: Analysis, cell: CellVerdict) -> Variant | None:
    prompts = analysis.prompts.get(cell.cell.traffic)
    return prompts.variant if prompts is not None else None


def _limited(cell: CellVerdict, analysis: Analysis) -> str:
    """The draft's length that is predicted to pay for every variant, where this one loses by the length of drafts."""
    predicted = [_predicted(c) for c in analysis.cells]
    mine = _predicted(analysis.of_cell(cell.cell))
    if not mine or mine[-1] < 1.0:  # it loses by something else
        return ""
    best, gain = 0, 0.0
    for k in range(1, min(map(len, predicted))):
        logs = [math.log(ratios[k - 1]) for ratios in predicted]
        if max(logs) < 0 and math.fsum(logs) < gain:
            best, gain = k, math.fsum(logs)
    if not best:
        return ""
    return (
        f"limit the draft's length for all: --set num_speculative_tokens={best} "
        f"(predicted time per token {formatting.ratio(mine[best - 1])})"
    )


def _predicted(comparison: Comparison) -> list[float]:
    """The time per token of decoding, candidate over baseline, if drafts had 1, 2, ... tokens: by the acceptance at
    each position, and with steps that get longer by each drafted token alike. Empty where that was not measured."""
    window, before = comparison.candidate.window, comparison.baseline.window
    base, cand = step_times(comparison.baseline, comparison.candidate)
    if window is None or before is None or before.speculating or not base or not cand:
        return []
    rates, coverage = window.position_rates, window.coverage or 0.0
    return [
        (1.0 + (cand / base - 1.0) * k / len(rates)) / (1.0 + coverage * math.fsum(rates[:k]))
        for k in range(1, len(rates) + 1)
    ]


def _routed(variant: Variant, every: list[Variant]) -> str:
    """The requests that a service without speculation is to answer, by what tells them from those of other variants."""
    lengths = sorted({v.context for v in every})
    words = []
    if len(lengths) > 1:
        shorter = lengths.index(variant.context)
        words.append(
            f"longer than {lengths[shorter - 1]} tokens"
            if shorter
            else f"of up to {lengths[0]} tokens"
        )
    if len({v.thinking for v in every}) > 1:
        words.append(f"with thinking {'on' if variant.thinking else 'off'}")
    if len({v.adapter for v in every}) > 1:
        words.append(f"for {variant.adapter}")
    start = "exclude the adapter: " if words == [f"for {variant.adapter}"] else ""
    return (
        f"{start}route requests {' '.join(words)} to a service without speculation"
        if words
        else "do not speculate"
    )
