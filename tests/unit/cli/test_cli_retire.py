"""What ``mpctl retire`` ends, and when it does not."""

from types import SimpleNamespace

import pytest

from mpctl.cli.retire import planned
from mpctl.errors import Conflict
from mpctl.rollout.operation import Kind, Plan, Strategy
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.rollout.records import Entry, Event

LIVE, OLD = Arm("new"), Arm("old")


def session(*arms, entries=()):
    status = SimpleNamespace(arms=[ArmState(a.id, Phase.READY) for a in arms], routed=LIVE.id, spec="ngram")
    return SimpleNamespace(
        store=SimpleNamespace(entries=lambda: entries),
        status=lambda: status,
        text=lambda: LIVE.manifest,
        title="service ns/demo",
    )


def test_the_arm_beside_the_service_ends_and_the_service_stays():
    plan = planned(session(LIVE, OLD))
    assert (plan.kind, plan.baseline, plan.text) == (Kind.RETIRE, "new", "new")
    assert plan.why == f"{OLD.id} beside service ns/demo ends"


def test_with_nothing_beside_there_is_nothing_to_end():
    assert planned(session(LIVE)) is None


def test_an_unfinished_operation_keeps_its_arms():
    from datetime import UTC, datetime

    plan = Plan(Kind.ROLLOUT, Strategy.SIDE_BY_SIDE, baseline="old", text="new", spec="ngram")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    data = {"plan": plan.to_record()}
    opened = Entry.after(None, at=at, operation="rollout-1", event=Event.OPENED, who="ann", data=data)
    with pytest.raises(Conflict, match=r"rollout-1 of service ns/demo is unfinished \(ngram\)"):
        planned(session(LIVE, OLD, entries=(opened,)))
