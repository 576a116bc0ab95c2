"""The gate: a measurement and a policy in, a verdict with its reasons out.

Rules are joint: TPOT may improve while throughput falls and requests queue (published raw data holds such a cell: TPOT
1.60x better, throughput 0.60x, because the draft took the KV cache), so no single figure promotes. A rule without data
leaves the verdict undecided and never passes; one failed rule outweighs any number of missing ones.
"""

from __future__ import annotations

from mpctl.experiment.run import Run
from mpctl.experiment.traffic import UsersTraffic
from mpctl.gate.analysis import Analysis
from mpctl.gate.case import Case
from mpctl.gate.outcome import Outcome, RuleResult
from mpctl.gate.policy import Policy
from mpctl.gate.rules import RULES
from mpctl.gate.users_traffic import JUDGED_ON_USERS, USERS_RULES, judge_traffic
from mpctl.gate.verdict import CellVerdict, Verdict, join, judge_cell

__all__ = [
    "RULES",
    "CellVerdict",
    "Outcome",
    "RuleResult",
    "Verdict",
    "answers_decided",
    "assess",
    "describe_rules",
    "judge_run",
]


def describe_rules() -> dict[str, str]:
    """Return what each rule asks, by its name, in the order in which they are listed."""
    return {rule.name: rule.asks for rule in RULES}


def assess(analysis: Analysis) -> Verdict:
    """Judge every cell by every rule, and all cells together by their shares of the traffic."""
    cases = [Case(comparison, analysis) for comparison in analysis.cells]
    return join(tuple(judge_cell(case, _judge_rules(case)) for case in cases), analysis)


def _judge_rules(case: Case) -> tuple[RuleResult, ...]:
    """Judge every rule. Where users set the load their requests are judged for speed, and prompts for answers alone."""
    if not case.analysis.placement.users_set_load:
        return tuple(rule(case) for rule in RULES)
    on_prompts = tuple(rule(case) for rule in RULES if rule.name not in JUDGED_ON_USERS)
    return (*on_prompts, *judge_traffic(case.analysis.traffic or UsersTraffic(), case.policy))


def answers_decided(verdict: Verdict) -> bool:
    """Return whether the rules that users' requests do not answer have all decided, or one of them has failed."""
    outcomes = {rule.outcome for rule in verdict.rules if rule.rule not in USERS_RULES}
    return Outcome.FAIL in outcomes or not outcomes & {Outcome.UNDECIDED, Outcome.MISSING}


def judge_run(
    run: Run, policy: Policy, *, rounds: int | None = None, planned: int | None = None
) -> tuple[Analysis, Verdict]:
    """Analyse a run and judge it; ``rounds`` and ``planned`` as in :meth:`Analysis.of`."""
    analysis = Analysis.of(run, policy, rounds=rounds, planned=planned)
    return analysis, assess(analysis)
