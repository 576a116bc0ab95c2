"""How an operation ended, as an error with an exit code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpctl.app.operate.outcome import OperationOutcome
from mpctl.errors import GateRejected, MpctlError, RolledBack, Undecided
from mpctl.experiment.cell import Cell
from mpctl.gate.rule import Outcome as GateOutcome
from mpctl.gate.rule import RuleResult
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.methods import Spec
from mpctl.rollout.operation import Ending, Operation
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.revision import Manifest

PLAN = Plan(Kind.ROLLOUT, Strategy.IN_PLACE, Manifest.of("a"), Manifest.of("b"), Spec("ngram"))


def ended(ending, **changes):
    operation = Operation(
        "rollout-1", PLAN, "2026-01-01", "x", ending=ending, detail="boom", **changes
    )
    return OperationOutcome("svc", "chat", "service chat/svc", operation)


def test_failed_before_anything_was_changed_is_an_error_and_no_rollback():
    error = ended(Ending.FAILED).error
    assert (type(error), error.exit_code) == (MpctlError, 1)
    assert error.message == "rollout-1 failed and service chat/svc was not changed: boom"


def test_failed_and_restored():
    error = ended(Ending.FAILED, done={"record": {"revision": 1}}).error
    assert (type(error), error.exit_code) == (RolledBack, 7)
    assert error.message == "rollout-1 failed and service chat/svc was restored: boom"


@pytest.mark.parametrize(
    ("ending", "kind", "code", "message"),
    [
        (Ending.REJECTED, GateRejected, 5, "gate rejected the candidate: boom"),
        (Ending.UNDECIDED, Undecided, 6, "gate is undecided: boom"),
    ],
)
def test_a_verdict_that_is_no_promotion_is_an_error_that_says_so(ending, kind, code, message):
    outcome = ended(ending)
    assert (type(outcome.error), outcome.exit_code, outcome.error.message) == (kind, code, message)


@pytest.mark.parametrize(
    "ending", [Ending.PROMOTED, Ending.ROLLED_BACK, Ending.RETIRED, Ending.UNDONE]
)
def test_an_operation_that_ended_as_meant_is_no_error(ending):
    assert ended(ending).exit_code == 0


def test_a_verdict_is_told_by_its_rules_whose_messages_are_in_the_table():
    rules = (
        RuleResult(GateOutcome.PASS, "fine", rule="errors"),
        RuleResult(GateOutcome.FAIL, "0.80x, 97.5% CI 0.7x to 0.9x", rule="time per token"),
        RuleResult(GateOutcome.UNDECIDED, "TTFT 1.1x", rule="TTFT"),
    )
    cell = CellVerdict(Cell("edits", 1, 0.0), 1.0, GateOutcome.REJECT, rules)
    rejected = replace(ended(Ending.REJECTED), verdict=Verdict(GateOutcome.REJECT, (cell,)))
    assert rejected.error.message == "gate rejected the candidate: time per token failed"
    undecided = replace(ended(Ending.UNDECIDED), verdict=Verdict(GateOutcome.UNDECIDED, (cell,)))
    assert undecided.error.message == "gate is undecided: TTFT could not decide"
