"""A restart that dies at every boundary: it goes on, or is undone; one engine always serves, and its spec stays."""

from __future__ import annotations

import pytest
from rolling import FOUND, SCALING, RollingWorld
from rolling import guard as guard_rolling
from test_rollout_crashes import BASELINE
from world import BASELINE_TEXT, NONE, Behaviour, Crash, MemoryWorld, plan

from mpctl.rollout import runner
from mpctl.rollout.plan import Kind, Strategy
from mpctl.rollout.ports import Arm, Phase

FRESH_TEXT = f"{BASELINE_TEXT}# restarted\n"
FRESH = Arm(FRESH_TEXT).id
SOUND = {BASELINE_TEXT: Behaviour(), FRESH_TEXT: Behaviour()}
BROKEN = {BASELINE_TEXT: Behaviour(), FRESH_TEXT: Behaviour(failures=1000)}


def planned(**more):
    words = {
        "kind": Kind.RESTART,
        "goal": FRESH_TEXT,
        "spec": NONE,
        "workload": "",
        "why": "restart",
    }
    return plan(Strategy.SIDE_BY_SIDE, **words, **more)


def local(behaviours):
    return MemoryWorld(behaviours)


def rolling(behaviours):
    return RollingWorld(behaviours)


def watched(memory):
    """At every moment something ready serves."""
    if isinstance(memory, RollingWorld):
        return guard_rolling(memory)

    def watch(where):
        serving = memory.disk.engines.get(memory.disk.routed)
        assert serving is not None, f"{where}: nothing serves"
        assert serving.phase is Phase.READY, f"{where}: nothing serves"

    memory.watch = watch
    return memory


def restart(memory):
    """What ``mpctl restart`` does after it has read the service; one that ended is not begun again."""
    done = [
        op for op in memory.operations() if op.plan.kind is Kind.RESTART and op.ending is not None
    ]
    if done:
        return
    scaling = SCALING if isinstance(memory, RollingWorld) else None
    begun = memory.unfinished() or runner.open_plan(memory.context, planned(scaling=scaling))
    runner.run(memory.context, begun)


def crashed(world, behaviours):
    """What is left of a restart that died, for every boundary it passes."""
    boundary = 0
    while True:
        boundary += 1
        memory = watched(world(behaviours))
        memory.die_at(boundary)
        try:
            restart(memory)
        except Crash:
            yield boundary, memory
        else:
            return


def check(memory, text, endings):
    disk = memory.disk
    assert (disk.text, disk.routed) == (text, Arm(text).id)
    assert {i: e.phase for i, e in disk.engines.items()} == {Arm(text).id: Phase.READY}
    assert memory.endings() == endings
    assert getattr(disk, "limits", FOUND) == FOUND
    assert memory.unfinished() is None
    memory.check_ledger()


each_world = pytest.mark.parametrize("world", [local, rolling])


@each_world
@pytest.mark.parametrize(
    ("behaviours", "text", "endings"),
    [(SOUND, FRESH_TEXT, ["restarted"]), (BROKEN, BASELINE_TEXT, ["failed", "rolled back"])],
    ids=["sound", "engine fails"],
)
def test_died_anywhere_and_run_again_it_ends_the_same(world, behaviours, text, endings):
    whole = watched(world(behaviours))
    restart(whole)
    check(whole, text, endings)
    scenarios = 0
    for _, left in crashed(world, behaviours):
        memory = watched(left.again())
        restart(memory)
        if memory.unfinished() is not None:  # its automatic rollback
            runner.run(memory.context, memory.unfinished())
        check(memory, text, endings)
        scenarios += 1
    assert scenarios > 20


@each_world
def test_died_anywhere_and_rolled_back_the_service_is_as_before_byte_for_byte(world):
    undone = 0
    for _, left in crashed(world, SOUND):
        if left.unfinished() is None:
            continue
        memory = watched(left.again())
        decision = memory.decide_back()
        runner.run(memory.context, runner.open_plan(memory.context, decision.plan))
        check(memory, BASELINE_TEXT, ["undone", "rolled back"])
        undone += 1
    assert undone > 15


def test_a_restart_is_no_change_that_a_rollback_takes_back():
    memory = local(SOUND)
    restart(memory)
    assert memory.history().last is None
    assert memory.live_revisions() == [BASELINE_TEXT, FRESH_TEXT]
    assert memory.disk.revisions[-1].why == "restarted by restart-1"


def test_a_retained_baseline_outlives_a_restart():
    memory = local(SOUND)
    retained = Arm("speculation: retained\n")
    memory.behaviours = {**SOUND, retained.manifest: Behaviour()}
    memory.context.platform.start(retained)
    restart(memory)
    assert set(memory.disk.engines) == {FRESH, retained.id}
    assert BASELINE not in memory.disk.engines
