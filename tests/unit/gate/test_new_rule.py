"""A rule that is added to the gate: its row and its limit, and every part of the gate knows it."""

from __future__ import annotations

import json
from pathlib import Path

from package_copy import PackageCopy

SUPPORT = Path(__file__).parents[1] / "support"
LIMIT = """
    min_round_requests: float = _term(100, "round size", "prompts", "a small round shows little", _OWN)
    max_repeated: float ="""
RULE = """
def _judge_round_size(case: Case, rule: Rule) -> RuleResult:
    size, limit = case.comparison.round_requests, case.policy.min_round_requests
    outcome = Outcome.PASS if size >= limit else Outcome.UNDECIDED
    return RuleResult(outcome, f"{size:g} prompts in a round", size, limit)


RULES = (
    Rule(
        "round size",
        _judge_round_size,
        "min_round_requests",
        "Rounds must be large.",
        direction=Direction.MINIMUM,
    ),"""
PROGRAM = f"""
import json
import sys
sys.path.append({str(SUPPORT)!r})
from run_samples import make_run
from mpctl.gate.assess import LEAST_CHANCE, decision_chance, describe_rules, judge_run
from mpctl.gate.rule import Outcome, RuleResult
from mpctl.gate.verdict import CellVerdict, Verdict

analysis, verdict = judge_run(make_run(), planned=30)
(judged,) = [rule for rule in verdict.rules if rule.rule == "round size"]
missing = RuleResult(Outcome.MISSING, "no data", rule="comparable")
cell = CellVerdict(verdict.cells[0].cell, 1.0, Outcome.UNDECIDED, (missing, judged))
chance = decision_chance(analysis, Verdict(Outcome.UNDECIDED, (cell,)))
print(json.dumps([verdict.outcome, judged.outcome, describe_rules()["round size"][0], chance == LEAST_CHANCE]))
"""


def test_a_new_minimum_rule_is_a_row_and_a_limit(tmp_path):
    """The stop for futility asks the row on which side of its limit a figure is bad."""
    copy = PackageCopy(tmp_path)
    copy.edit("gate/policy.py", "\n    max_repeated: float =", LIMIT)
    copy.edit("gate/rules/evidence.py", "\nRULES = (", RULE)
    assert json.loads(copy.run(PROGRAM)) == [
        "undecided",
        "undecided",
        "Rounds must be large.",
        True,
    ]
    assert len(copy.touched) <= 2  # and its row on the page of the gate
