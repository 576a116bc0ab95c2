"""The gate: a measurement and a policy in, a verdict with its reasons out.

Rules are joint: TPOT may improve while throughput falls and requests queue (published raw data holds such a cell: TPOT
1.60x better, throughput 0.60x, because the draft ate the KV pool), so no single figure promotes. A rule whose data is
missing makes the verdict undecided, never a pass; one rule that says no outweighs any number of missing ones.
"""

from __future__ import annotations

from collections.abc import Callable

from mpctl.experiment.cell import Cell
from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.case import Case
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.gate.policy import Policy
from mpctl.gate.rules import draft as rules_draft
from mpctl.gate.rules import evidence as rules_evidence
from mpctl.gate.rules import speed as rules_speed
from mpctl.gate.verdict import CellVerdict, Verdict, join, judge_cell

__all__ = ["RULES", "CellVerdict", "Outcome", "RuleResult", "Verdict", "assess", "describe_rules"]

RULES: tuple[Callable[[Case], RuleResult], ...] = (
    rules_evidence.assess_errors,
    rules_evidence.assess_samples,
    rules_evidence.assess_repeats,
    rules_evidence.assess_tokens,
    rules_evidence.assess_outputs,
    rules_draft.assess_tokens_per_step,
    rules_draft.assess_first_position,
    rules_draft.assess_coverage,
    rules_draft.assess_pool,
    rules_speed.assess_speedup,
    rules_speed.assess_throughput,
    rules_speed.assess_tpot,
    rules_speed.assess_ttft,
    rules_speed.assess_queue_wait,
    rules_speed.assess_ttft_p99,
    rules_speed.assess_tpot_p99,
    rules_speed.assess_e2e_p99,
)


def describe_rules() -> dict[str, str]:
    """What each rule asks, by its name, in the order in which they are listed."""
    nothing = Case(Comparison.of(Cell("nothing", 1), ()), Analysis.of((), Policy()))
    return {rule(nothing).rule: " ".join((rule.__doc__ or "").split()) for rule in RULES}


def assess(analysis: Analysis) -> Verdict:
    """Judge every cell by every rule, and all cells together by their shares of the traffic."""
    cells = []
    for comparison in analysis.cells:
        case = Case(comparison, analysis)
        cells.append(judge_cell(case, tuple(rule(case) for rule in RULES)))
    return join(tuple(cells), analysis)
