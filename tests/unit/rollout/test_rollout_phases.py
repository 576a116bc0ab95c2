"""Phases of an operation: the steps of each, the seconds by the ledger, and what earlier operations took."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from world import plan

from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.operation import operations
from mpctl.rollout.phases import expected_seconds, phase_of, phase_seconds, phases_of
from mpctl.rollout.plan import Kind, Strategy
from mpctl.rollout.ports import PhaseState
from mpctl.rollout.sequences import sequence

STEPS = ("record", "start", "ready", "answers", "measure", "judge", "promote", "verify", "bake")
OPENED = {"plan": plan(Strategy.SIDE_BY_SIDE).to_record()}
PROMOTED = (Event.CLOSED, "", "", 0, {"ending": "promoted"})
REJECTED = (Event.CLOSED, "", "", 7, {"ending": "rejected"})


def ledger(*rows, operation="rollout-1"):
    """The entries of an operation. A row: event, step, the next step, seconds since the entry before, data."""
    entries, at = [], datetime(2026, 1, 1, tzinfo=UTC)
    for event, step, then, seconds, data in ((Event.OPENED, "", "record", 0, OPENED), *rows):
        at += timedelta(seconds=seconds)
        last = entries[-1] if entries else None
        entries.append(
            Entry.after(
                last,
                at=at,
                operation=operation,
                event=event,
                who="x",
                step=step,
                data=data,
                then=then,
            )
        )
    return entries


def done(*seconds, last=""):
    """Rows that end the first steps, each after its seconds; then ``last`` is begun."""
    steps = (*STEPS[: len(seconds)], last)
    return [
        (Event.DONE, step, then, s, {})
        for step, then, s in zip(steps, steps[1:], seconds, strict=False)
    ]


def of(*rows):
    (operation,) = operations(ledger(*rows))
    return operation


def test_seconds_are_those_between_the_entries_and_belong_to_the_step_that_was_begun():
    operation = of(*done(1, 4, 90, 25, 300, 1, 2, 1, 60), PROMOTED)
    assert phase_seconds(operation) == {
        "engines": 95,
        "answers": 25,
        "rounds": 301,
        "promotion": 3,
        "bake": 60,
    }


def test_after_a_verdict_that_rejects_and_after_a_failure_the_service_is_restored():
    assert phase_seconds(of(*done(1, 4, 90, 25, 300, 1), REJECTED))["restoration"] == 7
    failed = (Event.FAILED, "ready", "", 40, {"reason": "no"})
    closed = (Event.CLOSED, "", "", 9, {"ending": "failed"})
    assert phase_seconds(of(*done(1, 4, last="ready"), failed, closed)) == {
        "engines": 45,
        "restoration": 9,
    }


def test_a_clock_that_was_set_back_takes_no_time_away():
    assert phase_seconds(of(*done(1, 4, 90, -50))) == {"engines": 95, "answers": 0}


def test_the_median_of_earlier_rollouts_with_a_result_is_expected_and_nothing_without_any():
    earlier = [
        of(*done(0, 0, seconds, 25, 300, 1), REJECTED) for seconds in (900, 900, 10, 20, 30, 40, 50)
    ]
    failed = of(*done(0, 0, 1), (Event.CLOSED, "", "", 1, {"ending": "failed"}))
    expected = expected_seconds([*earlier, failed, of(*done(0, 0, 1))], Kind.ROLLOUT)
    assert expected == {"engines": 30, "answers": 25, "rounds": 301, "restoration": 7}
    assert expected_seconds([failed], Kind.ROLLOUT) == {}
    assert expected_seconds(earlier, Kind.ROLLBACK) == {}


@pytest.mark.parametrize(
    ("rows", "states"),
    [
        (done(1, last="start"), "running waiting waiting waiting waiting"),
        (done(1, 4, 90, 25, last="measure"), "done done running waiting waiting"),
        (done(1, 4, 90, 25, 300, 1), "done done done waiting waiting"),
        (done(1, 4, 90, 25, 300, 1, 2, 1, 60), "done done done done done"),
        (
            [*done(1, 4, last="ready"), (Event.FAILED, "ready", "", 40, {"reason": "no"})],
            "failed waiting waiting waiting waiting",
        ),
    ],
)
def test_the_state_of_each_phase(rows, states):
    phases = phases_of(of(*rows), STEPS, {"rounds": 300.0})
    assert [phase.name for phase in phases] == ["engines", "answers", "rounds", "promotion", "bake"]
    assert [phase.state for phase in phases] == [PhaseState(state) for state in states.split()]
    assert [phase.expected_s for phase in phases] == [None, None, 300.0, None, None]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("replaces_pods", [True, False])
def test_the_steps_of_a_rollout_come_phase_by_phase_and_a_rollback_is_one(strategy, replaces_pods):
    steps = [step.name for step in sequence(plan(strategy), replaces_pods=replaces_pods)]
    names = list(dict.fromkeys(phase_of(step, Kind.ROLLOUT) for step in steps))
    order = ["engines", "answers", "rounds", "users", "promotion", "bake"]
    assert names == [name for name in order if name in names]
    assert {phase_of(step, Kind.ROLLBACK) for step in steps} == {"restoration"}
