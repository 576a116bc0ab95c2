"""The gate: a measurement and a policy in, a verdict with its reasons out.

Rules are joint: TPOT may improve while throughput falls and requests queue (published raw data holds such a cell: TPOT
1.60x better, throughput 0.60x, because the draft took the KV cache), so no single figure promotes. A rule without data
leaves the verdict undecided and never passes; one failed rule outweighs any number of missing ones, except that no
figure of speed rejects while the rule *comparable* has no data.
"""

from __future__ import annotations

import math
from dataclasses import replace

from mpctl.experiment.answers import AnswerRule
from mpctl.experiment.cell import Cell
from mpctl.experiment.run import Run
from mpctl.experiment.users import UsersTraffic
from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.policy import Policy
from mpctl.gate.pooling import borrow
from mpctl.gate.rule import Case, Direction, Outcome, Rule, RuleResult
from mpctl.gate.rules import RULES, rule_named
from mpctl.gate.rules.figures import is_beyond
from mpctl.gate.rules.users import judge_traffic
from mpctl.gate.verdict import CellVerdict, Verdict, distorts_speed, join, judge_cell
from mpctl.stats.confidence import chance_to_decide
from mpctl.stats.sequential import FEWEST

LEAST_CHANCE = 0.125  # of a verdict by the last planned round; below it a measurement ends
FUTILE_FROM = (
    0.3  # of the planned rounds, from which on a measurement that would hardly decide ends
)
_ANSWERS = Cell("answers", 1)  # of a pass of answers without rounds
_FEWEST_PLANNED = 8  # rounds; fewer are over before a forecast is worth anything


def describe_rules() -> dict[str, tuple[str, str]]:
    """Return what each rule asks in a sentence, and the number that no policy changes of a rule without a limit, by its
    name, in the order in which they are listed."""
    return {rule.name: (rule.asks, rule.fixed) for rule in RULES}


def assess(analysis: Analysis) -> Verdict:
    """Judge every cell by every rule, and all cells together by their shares of the traffic."""
    cases = [Case(comparison, analysis) for comparison in analysis.cells]
    cells = tuple(judge_cell(case, _judge_rules(case)) for case in cases)
    return join(cells, analysis)


def _judge_rules(case: Case) -> tuple[RuleResult, ...]:
    """Judge every rule. Where users set the load their requests are judged for speed, and prompts for answers alone."""
    if not case.analysis.run.placement.users_set_load:
        return tuple(rule(case) for rule in RULES)
    on_prompts = tuple(rule(case) for rule in RULES if not rule.needs_idle_engines)
    return (*on_prompts, *judge_traffic(case.analysis.run.traffic or UsersTraffic(), case.policy))


def answers_decided(verdict: Verdict) -> bool:
    """Return whether the rules that prompts answer beside users have all decided, or one of them has failed."""
    beside_users = {rule.name for rule in RULES if not rule.needs_idle_engines}
    outcomes = {rule.outcome for rule in verdict.rules if rule.rule in beside_users}
    return Outcome.FAIL in outcomes or not outcomes & {Outcome.UNDECIDED, Outcome.MISSING}


def judge_run(
    run: Run, policy: Policy | None = None, *, rounds: int | None = None, planned: int | None = None
) -> tuple[Analysis, Verdict]:
    """Analyse a run and judge it, by its own policy unless another is given; ``rounds`` and ``planned`` as in
    :meth:`Analysis.of`. A run without a round is judged by the rules about its answers, as one cell.

    Raises:
        InputError: the run's policy has an unknown limit, or one that it cannot have.
    """
    policy = policy or Policy.from_record(run.policy)
    analysis = Analysis.of(run, policy, rounds=rounds, planned=planned)
    if not run.blocks and run.answers is not None:
        analysis = replace(analysis, cells=(Comparison.of(_ANSWERS, (), policy),))
        case = Case(analysis.cells[0], analysis)
        results = tuple(rule(case) for rule in RULES if rule.name in frozenset(AnswerRule))
        verdict = join((judge_cell(case, results),), analysis)
        if verdict.outcome is Outcome.PROMOTE:  # right answers alone promote nothing
            verdict = Verdict(Outcome.UNDECIDED, verdict.cells, "no speed was measured")
        return analysis, verdict
    return analysis, assess(analysis)


def is_futile(analysis: Analysis, verdict: Verdict) -> bool:
    """Return whether an undecided measurement is unlikely to decide: past FUTILE_FROM of its plan, or from the eighth
    round on while something distorts its speed.

    It then ends undecided even if the truth is one standard error better than it looks (stochastic curtailment; Lan,
    Simon and Halperin 1982). The stop is not binding: it promotes and rejects nothing, so it costs no error, and going
    on by hand costs none either.
    """
    decided = verdict.outcome is not Outcome.UNDECIDED
    if decided or analysis.planned < _FEWEST_PLANNED or analysis.rounds >= analysis.planned:
        return False
    if analysis.rounds >= FEWEST and any(map(distorts_speed, verdict.rules)):
        return True
    if analysis.rounds < max(FUTILE_FROM * analysis.planned, FEWEST):
        return False
    return decision_chance(analysis, verdict) < LEAST_CHANCE


def decision_chance(analysis: Analysis, verdict: Verdict) -> float:
    """Return an optimistic chance, 0..1, that the last planned round ends with a verdict."""
    chances = [
        _chances_of_cell(c, v, analysis) for c, v in zip(analysis.cells, verdict.cells, strict=True)
    ]
    if not chances:
        return 1.0
    # Either every cell decides, or one cell rejects, which is enough.
    every_decides = min(max(promoted, rejected) for promoted, rejected in chances)
    return max(every_decides, *(rejected for _, rejected in chances))


def _chances_of_cell(
    comparison: Comparison, verdict: CellVerdict, analysis: Analysis
) -> tuple[float, float]:
    """The chances to promote and to reject a cell: the least likely pass, and the most likely failure."""
    promoted, rejected = 1.0, 0.0
    for result in verdict.rules:
        rule = rule_named(result.rule)
        if result.outcome is Outcome.MISSING or (
            result.outcome is Outcome.UNDECIDED and rule is not None and rule.guards_speed
        ):
            promoted = 0.0
        elif (
            rule is not None
            and rule.forecast
            and result.interval is not None
            and result.limit is not None
        ):
            passes, fails = _chances_of_rule(comparison, rule, result, analysis)
            rejected = max(rejected, fails)
            if not rule.over_all_cells or analysis.overall is None or analysis.shared:
                promoted = min(promoted, passes)  # else all cells together may show the gain
        elif result.outcome is Outcome.UNDECIDED and _looks_bad(rule, result):
            rejected = max(rejected, LEAST_CHANCE)  # no forecast is made of it
    return promoted, rejected


def _looks_bad(rule: Rule | None, result: RuleResult) -> bool:
    """Return whether an undecided rule's estimate is beyond its limit."""
    if result.value is None or result.limit is None:
        return False
    direction = rule.direction if rule is not None else Direction.MAXIMUM
    return is_beyond(direction, result.value, result.limit)


def _chances_of_rule(
    comparison: Comparison, rule: Rule, result: RuleResult, analysis: Analysis
) -> tuple[float, float]:
    """The chances that a rule about a mean over rounds passes, and that it fails, by the last planned round."""
    name = f"{rule.figure}_ms" if result.unit == "ms" else rule.figure
    figure = comparison.figures.get(name)
    if figure is None or result.limit is None or (figure.ratio and result.limit <= 0):
        return 1.0, 1.0
    mean, limit = figure.trimmed, math.log(result.limit) if figure.ratio else result.limit
    sign, to_pass, to_fail = 1.0, figure.stage.above, figure.stage.below
    if rule.direction is Direction.MINIMUM:
        sign, to_pass, to_fail = -1.0, figure.stage.below, figure.stage.above
    borrowed = borrow(analysis, comparison, name)
    passing = (
        borrowed.mean if borrowed is not None else mean
    )  # other cells help to pass, not to fail
    return (
        chance_to_decide(
            figure.gap(sign * (limit - passing.mean)), passing, analysis.planned, to_pass
        ),
        chance_to_decide(figure.gap(sign * (mean.mean - limit)), mean, analysis.planned, to_fail),
    )
