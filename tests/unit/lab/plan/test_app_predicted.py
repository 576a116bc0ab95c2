"""A prediction is stored with a rollout before it measures, and compared with what it measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
import session as sessions
from session import MemorySession
from world import Crash

from mpctl.app.operate import rollback, rollout
from mpctl.app.requests import (
    MeasurementRequest,
    RollbackRequest,
    RolloutRequest,
    SpeculationRequest,
)
from mpctl.errors import Conflict, Refused
from mpctl.lab.plan.predicted import read_record

QUICK = MeasurementRequest(requests=5, rounds=6)
ASKED = RolloutRequest(SpeculationRequest("ngram", gpu="L4"), QUICK)
AUTO = replace(ASKED, speculation=SpeculationRequest("auto", gpu="L4"))


@pytest.fixture
def known_model(monkeypatch):
    """A service whose target is in the table of models."""
    monkeypatch.setattr(
        sessions, "MANIFEST", sessions.MANIFEST.replace("org/model", "Qwen/Qwen3-8B")
    )


def test_the_second_rollout_is_predicted_from_the_first_and_both_are_in_the_record(known_model):
    session = MemorySession()
    first = rollout.run(session, ASKED)
    assert first.operation.plan.prediction is None  # nothing was known of the acceptance
    rollback.run(session.again(), RollbackRequest())
    second = rollout.run(session.again(), ASKED)
    prediction = second.operation.plan.prediction
    assert prediction["level"] == "L2"
    assert [one["concurrency"] for one in prediction["answers"]] == [1]
    record = read_record(session.again()).to_record()
    assert record["withoutPrediction"] == [first.operation.id]
    throughput = record["history"][0]
    assert (throughput["operation"], throughput["level"]) == (second.operation.id, "L2")
    assert throughput["insideTheBand"] is True
    assert throughput["error"] < 0.05
    assert throughput["ending"] == "promoted"


def test_the_question_of_a_rollout_follows_its_prediction(known_model):
    session = MemorySession()
    rollout.run(session, ASKED)
    rollback.run(session.again(), RollbackRequest())
    again = session.again()
    rollout.run(again, ASKED)
    (line,) = [line for line in again.console.lines if "the plan predicts" in line]
    assert "(L2: gain)" in line


def test_auto_rolls_out_the_method_that_the_plan_puts_first(known_model):
    session = MemorySession()
    rollout.run(session, ASKED)
    rollback.run(session.again(), RollbackRequest())
    again = session.again()
    outcome = rollout.run(again, AUTO)
    assert outcome.operation.plan.spec.method in (
        "ngram",
        "eagle3",
        "p-eagle",
        "dflash",
        "dspark",
        "draft_model",
    )
    assert outcome.operation.plan.prediction is not None
    assert any(
        line.startswith(f"auto: {outcome.operation.plan.spec.method}")
        for line in again.console.lines
    )


def test_auto_refuses_where_nothing_has_a_figure():
    with pytest.raises(Refused) as caught:
        rollout.run(MemorySession(), AUTO)
    assert "the plan has no figure for any method" in caught.value.message
    assert "mpctl plan svc --spec all -n chat" in caught.value.hint


def test_auto_does_not_continue_another_rollout(known_model):
    session = MemorySession()

    def die(found):
        if found == "before promote":
            raise Crash(found)

    session.memory.watch = die
    with pytest.raises(Crash):
        rollout.run(session, ASKED)
    with pytest.raises(Conflict, match="is unfinished"):
        rollout.run(session.again(), AUTO)
