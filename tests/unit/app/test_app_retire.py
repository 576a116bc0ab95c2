"""What ``mpctl retire`` ends, and when it does not."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from mpctl.app.operate.maintain import decide_retirement, retirement_plan
from mpctl.errors import Conflict
from mpctl.methods import Spec
from mpctl.rollout.decide import Act
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.ports import Arm, ArmState, Live, Phase
from mpctl.rollout.revision import Manifest

LIVE, OLD = Arm("new"), Arm("old")


def session(*arms, entries=()):
    status = SimpleNamespace(
        arms=[ArmState(a.id, Phase.READY) for a in arms], routed=LIVE.id, spec="ngram"
    )
    return SimpleNamespace(
        store=SimpleNamespace(entries=lambda: entries),
        status=lambda: status,
        text=lambda: LIVE.manifest,
        platform=SimpleNamespace(
            read=lambda: Live("demo", "ns", LIVE.manifest, "v", LIVE.id),
            engines=SimpleNamespace(state=lambda arm: ArmState(arm.id, Phase.READY)),
        ),
        title="service ns/demo",
    )


def test_the_arm_beside_the_service_ends_and_the_service_stays():
    plan = retirement_plan(session(LIVE, OLD))
    assert (plan.kind, plan.baseline.text, plan.goal.text) == (Kind.RETIRE, "new", "new")
    assert plan.why == f"retained baseline {OLD.id} of service ns/demo ends"


def test_with_nothing_beside_there_is_nothing_to_end():
    assert retirement_plan(session(LIVE)) is None


def opened(kind, *, text="new"):
    plan = Plan(kind, Strategy.SIDE_BY_SIDE, Manifest.of("old"), Manifest.of(text), Spec("ngram"))
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    data = {"plan": plan.to_record()}
    return (
        Entry.after(
            None, at=moment, operation=f"{kind}-1", event=Event.OPENED, who="ann", data=data
        ),
    )


def test_an_unfinished_operation_keeps_its_arms():
    with pytest.raises(Conflict, match=r"rollout-1 of demo is unfinished \(ngram\)"):
        decide_retirement(session(LIVE, OLD, entries=opened(Kind.ROLLOUT)))


@pytest.mark.parametrize("beside", [(OLD,), ()])
def test_an_interrupted_one_is_gone_on_with(beside):
    decision = decide_retirement(session(LIVE, *beside, entries=opened(Kind.RETIRE)))
    assert (decision.act, decision.operation.id) == (Act.RESUME, "retire-1")


def test_one_of_another_service_text_is_not():
    assert (
        decide_retirement(session(LIVE, OLD, entries=opened(Kind.RETIRE, text="older"))).act
        is Act.OPEN
    )
