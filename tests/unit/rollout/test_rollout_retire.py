"""A retirement that is killed: it goes on, and is never taken for the change that a rollback undoes."""

from __future__ import annotations

from dataclasses import replace

from rolling import BESIDE, RollingWorld, guard
from test_rollout_traffic import check, kept, rollback, rollout, unmeasured  # noqa: F401
from world import BASELINE_TEXT, CANDIDATE_TEXT, FASTER, Crash, plan

from mpctl.rollout import runner
from mpctl.rollout.decide import Act, decide_retire
from mpctl.rollout.operation import Operation, unfinished_retirement
from mpctl.rollout.plan import Kind, Strategy
from mpctl.rollout.revision import Manifest


def retire(memory):
    """What ``mpctl retire`` does after it has read the service."""
    live = memory.live()
    request = plan(Strategy.SIDE_BY_SIDE, kind=Kind.RETIRE, baseline=live.text, goal=live.text)
    beside = request if BESIDE in memory.disk.engines else None
    decision = decide_retire(
        beside, live, memory.unfinished(), unfinished_retirement(memory.disk.ledger)
    )
    if decision.act is not Act.ALREADY:
        runner.run(
            memory.context, decision.operation or runner.open_plan(memory.context, decision.plan)
        )


def retired_and_died():
    """What is left of a retirement that died, for every boundary it passes."""
    promoted = RollingWorld(FASTER)
    kept(promoted)
    memories = []
    while True:
        memory = guard(promoted.again())
        memory.die_at(len(memories) + 1)
        try:
            retire(memory)
        except Crash:
            memories.append(memory)
        else:
            return memories


def test_a_rollback_after_an_interrupted_retirement_undoes_the_rollout():
    left = retired_and_died()
    for boundary, memory in enumerate(left, start=1):
        again = guard(memory.again())
        rollback(again)
        check(again, BASELINE_TEXT)
        assert unfinished_retirement(again.disk.ledger) is None, f"boundary {boundary}"
        rollback(again)
        check(again, BASELINE_TEXT)  # the same command again is already done
    assert len(left) > 5


def test_an_interrupted_retirement_goes_on_with_the_same_command_and_stops_no_rollout():
    for memory in retired_and_died():
        again = guard(memory.again())
        retire(again)
        check(again, CANDIDATE_TEXT)
        assert again.endings() == ["promoted", "retired"]  # the same operation, not another one
        other = guard(memory.again())
        rollout(
            other,
            baseline=CANDIDATE_TEXT,
            goal=BASELINE_TEXT,
            deletes_retained_baseline=True,
            traffic_steps=(),
            route=None,
        )
        check(other, BASELINE_TEXT)
        assert None not in other.endings()


def test_a_retirement_of_a_service_that_was_changed_since_is_not_gone_on_with():
    request = plan(Strategy.SIDE_BY_SIDE, kind=Kind.RETIRE, baseline="old", goal="old")
    stale = Operation("retire-2", request, opened_at="2026-01-01T00:00:00+00:00", who="ann")
    live = RollingWorld(FASTER).live()
    assert decide_retire(None, live, None, stale).act is Act.ALREADY
    assert (
        decide_retire(replace(request, goal=Manifest.of(live.text)), live, None, stale).act
        is Act.OPEN
    )
