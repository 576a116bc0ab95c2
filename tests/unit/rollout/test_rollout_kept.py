"""An old arm that is kept for an instant way back: dying at every boundary, arms that end with the traffic on them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rolling import BESIDE, ROUTE, SCALING, RollingWorld, crashes, guard
from test_rollout_traffic import check, kept, rollback, unmeasured, wanted  # noqa: F401
from world import BASELINE_TEXT, CANDIDATE_TEXT, FASTER, Crash, changed, plan

from mpctl.errors import MpctlError
from mpctl.rollout import runner
from mpctl.rollout.operation import Ending, unfinished_operation
from mpctl.rollout.plan import Kind, Strategy
from mpctl.rollout.ports import Arm, Phase
from mpctl.rollout.steps.promote import RetentionResult


def test_the_old_arm_is_started_again_and_a_rollback_moves_the_route_first():
    memory = guard(RollingWorld(FASTER))
    kept(memory)
    check(memory, CANDIDATE_TEXT, kept=True)
    assert memory.disk.engines[BESIDE].manifest == BASELINE_TEXT
    assert memory.disk.sent == []
    writes = len(memory.trail)
    rollback(memory)
    check(memory, BASELINE_TEXT)
    assert memory.disk.sent == [100]
    acted = [w for w in memory.trail[writes:] if w.startswith("before") and w != "before append"]
    assert acted[0] == "before shift"
    assert next(iter(memory.operations()[-1].done)) == "redirect"


def test_died_anywhere_while_it_is_kept_the_same_command_goes_on():
    for boundary, left in crashes(FASTER, kept):
        again = guard(left.again())
        kept(again)
        check(again, CANDIDATE_TEXT, kept=True)
        assert set(again.endings()) == {"promoted"}, f"boundary {boundary}"


@pytest.mark.parametrize("way_on", ["rollback", "resume", "abandon"])
def test_died_anywhere_on_the_instant_way_back_it_goes_on(way_on):
    promoted = RollingWorld(FASTER)
    kept(promoted)
    boundary = 0
    while True:
        boundary += 1
        memory = guard(promoted.again())
        memory.die_at(boundary)
        try:
            rollback(memory)
        except Crash:
            pass
        else:
            break
        again = guard(memory.again())
        if way_on == "rollback":
            rollback(again)
        elif again.unfinished() is not None and way_on == "resume":
            runner.run(again.context, again.unfinished())
        elif way_on == "abandon":
            runner.abandon(again.context, why="by hand")
            assert again.disk.share == 0
            assert again.unfinished() is None
            continue
        if again.disk.ledger != promoted.disk.ledger:
            check(again, BASELINE_TEXT)
    assert boundary > 30


def test_a_kept_arm_that_does_not_serve_any_more_is_no_obstacle():
    memory = guard(RollingWorld(FASTER))
    kept(memory)
    plan_back = memory.decide_back().plan
    del memory.disk.engines[BESIDE]
    changed_plan_back = changed(
        plan_back, scaling=SCALING, route=ROUTE, uses_retained_baseline=True
    )
    runner.run(memory.context, runner.open_plan(memory.context, changed_plan_back))
    check(memory, BASELINE_TEXT)
    assert memory.disk.sent == []
    assert any("does not serve" in line for line in memory.progress.lines)


def test_a_kept_arm_that_ended_after_it_got_the_traffic_loses_it_again():
    promoted = guard(RollingWorld(FASTER))
    kept(promoted)
    memory = promoted.again()
    memory.watch = lambda where: (
        memory.die_at(len(memory.trail)) if where == "after shift" else None
    )
    with pytest.raises(Crash):
        rollback(memory)
    again = memory.again()
    assert again.disk.share == 100
    again.disk.engines[BESIDE] = replace(again.disk.engines[BESIDE], phase=Phase.FAILED)
    rollback(again)
    check(again, BASELINE_TEXT)
    assert any("does not serve" in line for line in again.progress.lines)


@pytest.mark.parametrize("gone", [True, False], ids=["removed", "failed"])
def test_a_kept_arm_that_ends_while_the_service_is_restored_leaves_the_traffic_to_it(gone):
    memory = RollingWorld(FASTER)
    kept(memory)
    memory.behaviours = {**FASTER, BASELINE_TEXT: replace(FASTER[BASELINE_TEXT], failures=1000)}
    with pytest.raises(MpctlError, match="did not start"):
        rollback(memory)  # the service cannot be restored; users are on the kept arm meanwhile
    assert memory.disk.share == 100
    beside = memory.disk.engines[BESIDE]
    memory.disk.engines |= {BESIDE: replace(beside, phase=Phase.FAILED)}
    if gone:
        del memory.disk.engines[BESIDE]
    with pytest.raises(MpctlError, match="did not start"):
        rollback(memory)
    assert memory.disk.share == 0
    assert memory.disk.engines[memory.disk.routed].manifest == CANDIDATE_TEXT
    assert any("the route is restored before" in line for line in memory.progress.lines)
    memory.behaviours = FASTER
    del memory.disk.engines[Arm(BASELINE_TEXT).id]
    memory.context.platform._start(Arm(BASELINE_TEXT))  # as KServe does of itself
    rollback(memory)
    check(memory, BASELINE_TEXT)


def test_the_kept_arm_is_looked_at_while_the_service_starts():
    memory = RollingWorld(FASTER)
    kept(memory)
    looks = 0

    def watch(where):
        nonlocal looks
        present = unfinished_operation(memory.context.store.entries())
        if where == "state" and present and present.begun == "settle":
            looks += 1
            beside = memory.disk.engines[BESIDE]
            if looks == 1:
                memory.disk.engines[BESIDE] = replace(beside, phase=Phase.FAILED)
            else:
                assert memory.disk.share == 0, "users wait for an arm that is not there"

    memory.watch = watch
    rollback(memory)
    assert looks > 1
    check(memory, BASELINE_TEXT)


def test_an_old_arm_that_cannot_be_kept_does_not_undo_the_promotion():
    memory = guard(RollingWorld(FASTER))
    memory.disk.failed = {}
    calls = memory.context.platform.start_retained

    def keep(arm, route):
        memory.behaviours = {**FASTER, BASELINE_TEXT: replace(FASTER[BASELINE_TEXT], failures=1000)}
        calls(arm, route)

    memory.context.platform.start_retained = keep
    kept(memory)
    check(memory, CANDIDATE_TEXT)
    assert memory.endings() == ["promoted"]
    assert memory.operations()[0].result("keep-baseline", RetentionResult).arm is None
    assert any("a rollback takes an engine start" in line for line in memory.progress.lines)


def test_an_old_arm_that_can_neither_be_kept_nor_stopped_does_not_undo_the_promotion():
    memory = guard(RollingWorld(FASTER))

    def refuse(*_):
        raise MpctlError("the API server does not answer")

    memory.context.platform.start_retained = memory.context.platform.stop = refuse
    kept(memory)
    check(memory, CANDIDATE_TEXT)
    assert memory.endings() == ["promoted"]
    assert any(
        "still runs beside the service: the API server" in line for line in memory.progress.lines
    )


def test_a_next_rollout_ends_the_kept_arm_first_and_retire_ends_it_alone():
    memory = guard(RollingWorld(FASTER))
    kept(memory)
    other = memory.again()
    live = memory.disk.text
    retire = plan(Strategy.SIDE_BY_SIDE, kind=Kind.RETIRE, baseline=live, goal=live)
    done = runner.run(memory.context, runner.open_plan(memory.context, retire))
    assert done.ending is Ending.RETIRED
    check(memory, CANDIDATE_TEXT)
    back = wanted(
        baseline=CANDIDATE_TEXT,
        goal=BASELINE_TEXT,
        deletes_retained_baseline=True,
        traffic_steps=(),
    )
    runner.run(other.context, runner.open_plan(other.context, back))
    check(other, BASELINE_TEXT)
    assert list(other.operations()[-1].done)[:3] == ["record", "pin", "release"]
