"""A way back that cannot go on lets the autoscaler go, so that the service can scale until somebody looks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rolling import SCALING, held
from test_rollout_rolling import FOUND, HELD, RollingWorld, check, rollback, rollout, unmeasured  # noqa: F401
from world import BASELINE_TEXT, CANDIDATE_TEXT, FASTER, Behaviour, Crash

from mpctl.errors import MpctlError
from mpctl.rollout import runner
from mpctl.rollout.decide import Act, Decision, accepting_downtime
from mpctl.rollout.plan import Strategy
from mpctl.rollout.ports import Arm, Phase


def stuck():
    """A rollback whose engine does not start."""
    memory = RollingWorld(FASTER)
    rollout(memory, Strategy.SIDE_BY_SIDE)
    memory.behaviours = {**FASTER, BASELINE_TEXT: Behaviour(failures=1000)}
    with pytest.raises(MpctlError, match="did not start"):
        rollback(memory)
    return memory


def test_it_is_free_while_nobody_goes_on():
    memory = stuck()
    assert memory.unfinished() is not None
    assert memory.disk.limits == FOUND


def test_going_on_holds_it_again_and_puts_it_back():
    memory = stuck().again()
    engine = memory.disk.engines[Arm(BASELINE_TEXT).id]
    memory.disk.engines[Arm(BASELINE_TEXT).id] = replace(engine, phase=Phase.READY)
    items = []
    memory.watch = lambda where: items.append(memory.disk.limits == HELD)
    rollback(memory)
    assert any(items)
    check(memory, BASELINE_TEXT)


def test_one_that_cannot_be_freed_is_said_and_the_cause_stays_the_message(monkeypatch):
    memory = RollingWorld(FASTER)
    rollout(memory, Strategy.SIDE_BY_SIDE)
    memory.behaviours = {**FASTER, BASELINE_TEXT: Behaviour(failures=1000)}

    def lost(scaling):
        raise MpctlError("the lease is lost")

    monkeypatch.setattr(memory.context.platform, "unpin", lost)
    notes = []
    monkeypatch.setattr(memory.context.progress, "note", notes.append)
    with pytest.raises(MpctlError, match="did not start"):
        rollback(memory)
    assert "the autoscaler is still pinned: the lease is lost" in notes


def grown():
    """A rollback that is stuck and lets the service scale, which it does; its engine would start now."""
    memory = stuck().again()
    engine = memory.disk.engines[Arm(BASELINE_TEXT).id]
    memory.disk.engines[Arm(BASELINE_TEXT).id] = replace(engine, phase=Phase.READY)
    memory.disk.pods = 6
    return memory


def never_smaller(memory):
    limits = []

    def watch(where):
        limits.append(memory.disk.limits)
        assert memory.disk.pods == 6, where

    memory.watch = watch
    return limits


def test_what_grew_while_it_was_free_is_held_at_its_size():
    memory = grown()
    limits = never_smaller(memory)
    rollback(memory)
    assert held(6) in limits
    assert HELD not in limits
    check(memory, BASELINE_TEXT)
    assert "the autoscaler started more meanwhile: 6, 2 before" in memory.progress.lines


@pytest.mark.parametrize("way_on", ["rollback", "abandon"])
def test_died_anywhere_after_it_grew_the_autoscaler_is_put_back(way_on):
    boundary = 0
    while True:
        boundary += 1
        memory = grown()
        never_smaller(memory)
        memory.die_at(boundary)
        try:
            rollback(memory)
        except Crash:
            again = memory.again()
            never_smaller(again)
        else:
            break
        if way_on == "rollback":
            if again.unfinished() is not None:
                rollback(again)
            check(again, BASELINE_TEXT)
        else:
            runner.abandon(again.context, why="by hand")
            assert again.disk.limits == FOUND
    assert boundary > 20


def test_one_that_grew_after_the_rollout_had_freed_it_is_held_at_its_size():
    memory = RollingWorld(FASTER)
    memory.watch = lambda where: (
        memory.die_at(len(memory.trail)) if "verify" in last_step(memory) else None
    )
    with pytest.raises(Crash):
        rollout(memory, Strategy.SIDE_BY_SIDE)
    left = memory.again()
    assert (left.disk.text, left.disk.limits) == (CANDIDATE_TEXT, FOUND)
    left.disk.pods = 6
    never_smaller(left)
    rollback(left)
    check(left, BASELINE_TEXT)


def last_step(memory):
    return memory.disk.ledger[-1].then or memory.disk.ledger[-1].step if memory.disk.ledger else ""


def test_another_way_back_in_its_place_knows_the_size():
    operation = replace(stuck().unfinished(), replicas=6)
    decision = accepting_downtime(Decision(Act.RESUME, operation=operation))
    assert decision.plan.scaling == {**SCALING, "replicas": 6}
    assert operation.undo_plan(why="").scaling == {**SCALING, "replicas": 6}


@pytest.mark.parametrize("ready", [2, 1])
def test_pods_that_the_freed_autoscaler_asks_for_undo_nothing(monkeypatch, ready):
    """Free again, it may ask for more at once; as many as were held must serve, and the others may take their time."""
    memory = RollingWorld(FASTER)
    platform = memory.context.platform
    state = platform.state

    def growing(arm):
        actual_state = state(arm)
        more = last_step(memory) == "verify" and arm.manifest == CANDIDATE_TEXT
        return (
            replace(actual_state, phase=Phase.STARTING, pods_ready=ready, message="3 wanted")
            if more
            else actual_state
        )

    monkeypatch.setattr(platform, "state", growing)
    rollout(memory, Strategy.SIDE_BY_SIDE)
    told = (
        "the autoscaler asks for more than the 2 pods that serve: 3 wanted" in memory.progress.lines
    )
    assert told == (ready == SCALING["replicas"])
    check(memory, CANDIDATE_TEXT if told else BASELINE_TEXT)


def test_a_deployment_that_its_controller_has_not_observed_again_yet_undoes_nothing(monkeypatch):
    """The moment the autoscaler is unpinned it may write the Deployment; until that is observed no pod is counted."""
    memory = RollingWorld(FASTER)
    platform = memory.context.platform
    state, looks = platform.state, []

    def unobserved(arm):
        actual_state = state(arm)
        if last_step(memory) != "verify" or arm.manifest != CANDIDATE_TEXT or len(looks) > 3:
            return actual_state
        looks.append(arm)
        return replace(
            actual_state,
            phase=Phase.STARTING,
            pods_ready=0,
            matches=False,
            message="not observed yet",
        )

    monkeypatch.setattr(platform, "state", unobserved)
    rollout(memory, Strategy.SIDE_BY_SIDE)
    assert len(looks) > 3
    check(memory, CANDIDATE_TEXT)
