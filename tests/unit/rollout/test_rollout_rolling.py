"""A platform that replaces serving engines by itself (as KServe does) and has an autoscaler: dying at every boundary,
foreign edits, abandoning. The autoscaler is always put back, and something always serves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rolling import FOUND, HELD, SCALING, RollingWorld, crashes, guard, leave_out_the_measurement
from world import (
    BASELINE_TEXT,
    BROKEN,
    CANDIDATE_TEXT,
    FASTER,
    OTHER_TEXT,
    SLOWER,
    Behaviour,
    Crash,
    plan,
)

from mpctl.errors import Conflict
from mpctl.rollout import runner
from mpctl.rollout.decide import Act, decide_rollout
from mpctl.rollout.plan import Strategy
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.rollout.revision import Manifest


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch):
    leave_out_the_measurement(monkeypatch)


def wanted(strategy):
    return plan(strategy, scaling=SCALING)


def rollout(memory, strategy):
    decision = decide_rollout(wanted(strategy), memory.live(), memory.unfinished())
    if decision.act is not Act.ALREADY:
        runner.run(
            memory.context, decision.operation or runner.open_plan(memory.context, decision.plan)
        )


def rollback(memory, *, exact=False):
    decision = memory.decide_back(exact=exact)
    if decision.plan is not None:
        found = (
            decision.plan
            if decision.plan.rollback.undoes
            else replace(decision.plan, scaling=SCALING)
        )
        runner.run(memory.context, runner.open_plan(memory.context, found))
    elif decision.operation is not None:
        runner.run(memory.context, decision.operation)


def check(memory, *texts):
    disk = memory.disk
    assert disk.text in texts
    assert disk.limits == FOUND
    assert set(disk.engines) == {Arm(disk.text).id} == {disk.routed}
    assert memory.unfinished() is None
    memory.check_ledger()


each = pytest.mark.parametrize("strategy", list(Strategy))


@each
@pytest.mark.parametrize(
    ("behaviours", "ending", "text"),
    [
        (FASTER, "promoted", CANDIDATE_TEXT),
        (SLOWER, "rejected", BASELINE_TEXT),
        (BROKEN, "failed", BASELINE_TEXT),
    ],
    ids=["promoted", "rejected", "failed"],
)
def test_died_anywhere_and_run_again_it_ends_the_same_with_the_autoscaler_back(
    strategy, behaviours, ending, text
):
    whole = guard(RollingWorld(behaviours))
    rollout(whole, strategy)
    check(whole, text)
    assert whole.endings()[0] == ending
    count = 0
    for _, left in crashes(behaviours, lambda m: rollout(m, strategy)):
        again = guard(left.again())
        rollout(again, strategy)
        check(again, text)
        count += 1
    assert count > 20


@each
def test_died_anywhere_a_rollback_leads_back_and_frees_the_autoscaler(strategy):
    for _, left in crashes(FASTER, lambda m: rollout(m, strategy)):
        back = guard(left.again())
        if not back.disk.ledger:
            continue  # nothing was begun
        rollback(back)
        check(back, BASELINE_TEXT)


def test_the_autoscaler_is_held_from_before_the_first_engine_until_after_the_last():
    memory = RollingWorld(FASTER)
    rows = []
    memory.watch = lambda where: rows.append((where, memory.disk.limits == HELD))
    rollout(memory, Strategy.SIDE_BY_SIDE)
    acting = [where for where, is_held in rows if not is_held]
    assert not [
        w for w in acting if w.split()[-1] in ("start", "run", "promote", "stop_all_except")
    ]


def edited(memory):
    """Somebody writes the service while a rollout of ours is unfinished."""
    memory.die_at(len(memory.trail) + 16)
    with pytest.raises(Crash):
        rollout(memory, Strategy.SIDE_BY_SIDE)
    left = memory.again()
    left.behaviours = {**FASTER, OTHER_TEXT: Behaviour()}
    disk = left.disk
    disk.text = OTHER_TEXT
    engine = disk.engines.pop(disk.routed)
    disk.routed = Arm(OTHER_TEXT).id
    disk.engines[disk.routed] = replace(engine, manifest=OTHER_TEXT)
    return left


def test_a_foreign_edit_stops_resume_and_rollback_and_is_kept_by_abandon():
    left = edited(RollingWorld(FASTER))
    with pytest.raises(Conflict):
        runner.run(left.context, left.unfinished())
    with pytest.raises(Conflict):
        rollback(left)
    ended = runner.abandon(left.context, why="by hand")
    check(left, OTHER_TEXT)
    assert {op.ending.value for op in ended} == {"abandoned"}
    assert left.disk.revisions[-1].text == OTHER_TEXT


def test_abandon_tries_the_update_strategy_of_every_text_that_an_operation_may_have_written(
    monkeypatch,
):
    """A rollback around another writer's change writes a text that the rollout's plan does not have."""
    memory = RollingWorld(FASTER)
    memory.die_at(len(memory.trail) + 16)
    with pytest.raises(Crash):
        rollout(memory, Strategy.SIDE_BY_SIDE)
    left = memory.again()
    merged = replace(left.decide_back().plan, goal=Manifest.of(OTHER_TEXT))
    runner.open_plan(left.context, merged)
    restored = []
    monkeypatch.setattr(left.context.platform, "restore_strategy", restored.append)
    ended = runner.abandon(left.context, why="by hand")
    assert len(ended) == 2
    assert restored[0].manifest == OTHER_TEXT
    assert {arm.manifest for arm in restored} == {OTHER_TEXT, CANDIDATE_TEXT, BASELINE_TEXT}


def test_a_foreign_edit_is_kept_as_a_revision_by_an_exact_rollback():
    left = edited(RollingWorld(FASTER))
    with pytest.raises(Conflict):
        runner.run(left.context, left.unfinished())
    rollback(left, exact=True)
    check(left, BASELINE_TEXT)
    assert OTHER_TEXT in [r.text for r in left.disk.revisions]
    assert None not in left.endings()


def test_an_edit_after_the_rollout_is_kept_as_a_revision_by_a_rollback():
    memory = RollingWorld({**FASTER, OTHER_TEXT: Behaviour()})
    rollout(memory, Strategy.SIDE_BY_SIDE)
    disk = memory.disk
    engine = disk.engines.pop(disk.routed)
    disk.text, disk.routed = OTHER_TEXT, Arm(OTHER_TEXT).id
    disk.engines[disk.routed] = replace(engine, manifest=OTHER_TEXT)
    rollback(memory)
    check(memory, BASELINE_TEXT, CANDIDATE_TEXT)
    assert OTHER_TEXT in [r.text for r in disk.revisions]


def test_state_is_asked_by_arm():
    memory = RollingWorld(FASTER)
    assert memory.context.platform.state(Arm("other")) == ArmState(Arm("other").id, Phase.ABSENT)
