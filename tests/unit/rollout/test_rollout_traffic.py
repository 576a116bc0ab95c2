"""Users' traffic on a candidate, and an old arm that is kept: dying at every boundary, candidates that fail under
traffic, routes that somebody else writes. Nobody is sent to an arm that is not there, and the route is put back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rolling import BESIDE, FOUND, ROUTE, SCALING, RollingWorld, crashes, guard, leave_out_the_measurement
from world import BASELINE_TEXT, CANDIDATE_TEXT, FASTER, SLOWER, Crash, plan

from mpctl.errors import Conflict, MpctlError
from mpctl.measure.counters import CounterError, Window
from mpctl.measure.policy import Policy
from mpctl.rollout import machine, sequence
from mpctl.rollout.decide import Act, decide_rollback, decide_rollout
from mpctl.rollout.operation import Ending, Kind, Plan, Strategy, last_change
from mpctl.rollout.ports import Arm, Phase
from mpctl.rollout.records import Event
from mpctl.rollout.traffic import failing


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch):
    leave_out_the_measurement(monkeypatch)


def wanted(**changes):
    more = {"traffic_steps": (1, 10, 50), "step_duration_s": 1.0, "route": ROUTE, "scaling": SCALING}
    return plan(Strategy.SIDE_BY_SIDE, **more | changes)


def rollout(memory, **changes):
    decision = decide_rollout(wanted(**changes), memory.live(), memory.unfinished())
    if decision.act is not Act.ALREADY:
        machine.run(memory.world, decision.operation or machine.open_plan(memory.world, decision.plan))


def rollback(memory):
    decision = decide_rollback(
        memory.live(), memory.unfinished(), last_change(memory.disk.ledger), tuple(memory.disk.revisions), None
    )
    operation = decision.operation
    if decision.plan is not None:
        found = decision.plan
        if not found.undoes:
            kept = memory.world.platform.kept()
            instant = kept is not None and kept.arm == found.arm.id
            found = replace(found, scaling=SCALING, route=ROUTE if instant else None, instant=instant)
        operation = machine.open_plan(memory.world, found)
    if operation is not None:
        machine.run(memory.world, operation)


def check(memory, *texts, kept=False):
    disk = memory.disk
    assert disk.text in texts
    assert (disk.share, disk.limits) == (0, FOUND)
    assert set(disk.engines) == {disk.routed} | ({BESIDE} if kept else set())
    assert disk.routed == Arm(disk.text).id
    assert memory.unfinished() is None
    memory.check_ledger()


def test_each_share_is_held_after_the_gate_and_the_route_is_put_back_before_the_promotion():
    memory = guard(RollingWorld(FASTER))
    rollout(memory)
    check(memory, CANDIDATE_TEXT)
    assert memory.disk.sent == [1, 10, 50]
    (operation,) = memory.operations()
    steps = list(operation.done)
    shifts = ["shift-1", "shift-10", "shift-50", "unshift"]
    assert steps[steps.index("judge") + 1 : steps.index("promote")] == shifts
    assert operation.done["shift-10"]["percent"] == 10
    assert operation.done["shift-10"]["tokensPerStep"] == pytest.approx(1.8)


def test_a_candidate_that_the_gate_refuses_never_meets_a_user():
    memory = guard(RollingWorld(SLOWER))
    rollout(memory)
    check(memory, BASELINE_TEXT)
    assert memory.disk.sent == []


@pytest.mark.parametrize(
    ("changes", "world", "said"),
    [
        ({}, {"falls_at": 10}, "fell over under users' traffic: the engine exited with code 3"),
        ({}, {"accepted": 5}, "at 1 % of the traffic: tokens per step 1.05 (at least 1.10), over"),
        ({"draft": "a head"}, {"accepted": 15}, "position-0 acceptance 15.0% (at least 30%)"),
    ],
    ids=["falls over", "drafts for nothing", "a head that does not fit the traffic"],
)
def test_a_candidate_that_fails_on_users_traffic_is_taken_back(changes, world, said, monkeypatch):
    monkeypatch.setitem(sequence.STEPS[Kind.ROLLOUT, Strategy.SIDE_BY_SIDE], "match", lambda world, operation: {})
    memory = guard(RollingWorld(FASTER, **world))
    rollout(memory, **changes)
    check(memory, BASELINE_TEXT)
    assert memory.endings() == ["failed", "rolled back"]
    assert said in memory.operations()[0].detail
    back = memory.operations()[1]
    assert next(iter(back.done)) == "unshift"  # before anything else


def unreached(memory, looks, by, **changes):
    """From 10 % on, so many looks do not reach an engine whose pod is ready: at its address, or at its counters."""
    state, counters, left = memory.world.platform.state, memory.world.meter.counters, looks

    def lost():
        nonlocal left
        left -= memory.disk.share == 10
        return memory.disk.share == 10 and left >= 0

    def no_state(arm):
        found = state(arm)
        if arm.manifest == CANDIDATE_TEXT and lost():
            more = {"phase": Phase.STARTING, "pods_ready": 1, "message": "does not answer: Connection lost"}
            return replace(found, endpoint=None, **more | changes)
        return found

    def no_counters(endpoint):
        if lost():
            raise CounterError("Connection lost")
        return counters(endpoint)

    if by == "state":
        memory.world.platform.state = no_state
    else:
        memory.world.meter.counters = no_counters


@pytest.mark.parametrize("by", ["state", "counters"])
def test_a_connection_that_is_lost_for_a_moment_ends_no_step(by):
    memory = guard(RollingWorld(FASTER))
    unreached(memory, 50, by)
    rollout(memory)
    check(memory, CANDIDATE_TEXT)
    assert memory.disk.sent == [1, 10, 50]


@pytest.mark.parametrize(
    ("by", "changes", "said", "after_s"),
    [
        ("state", {}, "was not reached for 30 s under users' traffic: does not answer", 30),
        ("counters", {}, "was not reached for 30 s under users' traffic: its counters cannot be read", 30),
        ("state", {"pods_ready": 0}, "fell over under users' traffic", 0),
        ("state", {"restarts": 1}, "fell over under users' traffic: it restarted", 0),
    ],
)
def test_an_engine_that_is_not_reached_again_or_whose_pod_is_not_ready_is_taken_back(by, changes, said, after_s):
    memory = guard(RollingWorld(FASTER))
    unreached(memory, 10_000, by, **changes)
    rollout(memory)
    check(memory, BASELINE_TEXT)
    assert said in memory.operations()[0].detail
    ledger = {entry.event: entry.at for entry in memory.disk.ledger if entry.operation == "rollout-1"}
    begun = next(e.at for e in memory.disk.ledger if (e.event, e.step) == (Event.BEGUN, "shift-10"))
    waited = datetime.fromisoformat(ledger[Event.FAILED]) - datetime.fromisoformat(begun)
    assert after_s <= waited.total_seconds() < after_s + 3


@pytest.mark.parametrize("world", [{}, {"falls_at": 50}], ids=["promoted", "falls over at 50 %"])
def test_died_anywhere_and_run_again_it_ends_the_same(world):
    texts = (BASELINE_TEXT,) if world else (CANDIDATE_TEXT,)
    endings = {"failed", "rolled back"} if world else {"promoted"}
    count = 0
    for boundary, left in crashes(FASTER, rollout, **world):
        again = guard(left.again())
        rollout(again)
        check(again, *texts)
        assert set(again.endings()) == endings, f"boundary {boundary}"
        count += 1
    assert count > 60


def test_died_anywhere_a_rollback_puts_route_and_service_back():
    count = 0
    for _, left in crashes(FASTER, rollout):
        if left.disk.ledger:
            back = guard(left.again())
            rollback(back)
            check(back, BASELINE_TEXT)
            count += 1
    assert count > 60


def test_died_anywhere_abandoned_no_traffic_is_left_on_the_candidate():
    for _, left in crashes(FASTER, rollout):
        if left.unfinished() is not None:
            ended = guard(left.again())
            # What is abandoned while the service is being replaced is left to the platform to finish.
            machine.abandon(ended.world, why="by hand")
            assert (ended.disk.share, ended.disk.limits) == (0, FOUND)
            assert BESIDE not in ended.disk.engines
            assert ended.unfinished() is None


# An old arm that is kept


def kept(memory):
    rollout(memory, traffic_steps=(), keep_baseline=True)


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
            machine.run(again.world, again.unfinished())
        elif way_on == "abandon":
            machine.abandon(again.world, why="by hand")
            assert again.disk.share == 0
            assert again.unfinished() is None
            continue
        if again.disk.ledger != promoted.disk.ledger:
            check(again, BASELINE_TEXT)
    assert boundary > 30


def test_a_kept_arm_that_does_not_serve_any_more_is_no_obstacle():
    memory = guard(RollingWorld(FASTER))
    kept(memory)
    plan_back = decide_rollback(
        memory.live(), None, last_change(memory.disk.ledger), tuple(memory.disk.revisions), None
    ).plan
    del memory.disk.engines[BESIDE]
    found = replace(plan_back, scaling=SCALING, route=ROUTE, instant=True)
    machine.run(memory.world, machine.open_plan(memory.world, found))
    check(memory, BASELINE_TEXT)
    assert memory.disk.sent == []
    assert any("does not serve" in line for line in memory.progress.lines)


def test_a_kept_arm_that_ended_after_it_got_the_traffic_loses_it_again():
    promoted = guard(RollingWorld(FASTER))
    kept(promoted)
    memory = promoted.again()
    memory.watch = lambda where: memory.die_at(len(memory.trail)) if where == "after shift" else None
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
    assert any("the route is put back before" in line for line in memory.progress.lines)
    memory.behaviours = FASTER
    del memory.disk.engines[Arm(BASELINE_TEXT).id]
    memory.world.platform._start(Arm(BASELINE_TEXT))  # as KServe does of itself
    rollback(memory)
    check(memory, BASELINE_TEXT)


def test_the_kept_arm_is_looked_at_while_the_service_starts():
    memory = RollingWorld(FASTER)
    kept(memory)
    looks = 0

    def watch(where):
        nonlocal looks
        if where == "state" and memory.unfinished() and memory.unfinished().begun == "settle":
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
    calls = memory.world.platform.keep

    def keep(arm, route):
        memory.behaviours = {**FASTER, BASELINE_TEXT: replace(FASTER[BASELINE_TEXT], failures=1000)}
        calls(arm, route)

    memory.world.platform.keep = keep
    kept(memory)
    check(memory, CANDIDATE_TEXT)
    assert memory.endings() == ["promoted"]
    assert memory.operations()[0].done["keep-baseline"]["kept"] is None
    assert any("a rollback takes an engine start" in line for line in memory.progress.lines)


def test_an_old_arm_that_can_neither_be_kept_nor_stopped_does_not_undo_the_promotion():
    memory = guard(RollingWorld(FASTER))

    def refuse(*_):
        raise MpctlError("the API server does not answer")

    memory.world.platform.keep = memory.world.platform.stop = refuse
    kept(memory)
    check(memory, CANDIDATE_TEXT)
    assert memory.endings() == ["promoted"]
    assert any("left beside the service: the API server" in line for line in memory.progress.lines)


def test_a_next_rollout_ends_the_kept_arm_first_and_retire_ends_it_alone():
    memory = guard(RollingWorld(FASTER))
    kept(memory)
    other = memory.again()
    live = memory.disk.text
    retire = Plan(Kind.RETIRE, Strategy.SIDE_BY_SIDE, baseline=live, text=live, spec="ngram")
    done = machine.run(memory.world, machine.open_plan(memory.world, retire))
    assert done.ending is Ending.RETIRED
    check(memory, CANDIDATE_TEXT)
    back = wanted(baseline=CANDIDATE_TEXT, text=BASELINE_TEXT, releases=True, traffic_steps=())
    machine.run(other.world, machine.open_plan(other.world, back))
    check(other, BASELINE_TEXT)
    assert list(other.operations()[-1].done)[:3] == ["record", "pin", "release"]


# Somebody else writes the route


def edited_at(share):
    """A rollout that is killed at a share, and a route that somebody else wrote then."""
    memory = guard(RollingWorld(FASTER))
    inner = memory.watch

    def watch(where):
        inner(where)
        if memory.disk.share == share and where == "route":
            raise Crash(where)

    memory.watch = watch
    with pytest.raises(Crash):
        rollout(memory)
    left = memory.again()
    left.disk.edited = True
    return left


def test_a_route_that_somebody_else_wrote_is_left_and_no_traffic_loses_its_arm():
    left = edited_at(10)
    with pytest.raises(Conflict, match="gives Service svc-candidate-predictor traffic"):
        rollout(left)  # the step fails, its way back may not remove the arm
    assert left.disk.share == 10
    assert BESIDE in left.disk.engines
    assert left.unfinished() is not None
    left.disk.share = 0  # as the hint says: they take the backend out
    rollback(left)
    assert left.disk.edited
    check(left, BASELINE_TEXT)
    assert any("left as it is" in line for line in left.progress.lines)


def window(*, drafts, accepted, first, steps):
    return Window(
        generation_tokens=steps + accepted,
        preemptions=0.0,
        queue_seconds=0.0,
        queue_count=0.0,
        drafts=drafts,
        draft_tokens=3 * drafts,
        accepted=accepted,
        per_position=(first, accepted - first),
    )


def test_a_sample_that_a_sound_draft_could_have_given_fails_nobody():
    few = window(drafts=49, accepted=0, first=0, steps=1000)
    assert failing(few, Policy(), "head") == ""
    unlucky = window(drafts=60, accepted=40, first=12, steps=100)  # 20 %, but at most 41 %
    assert failing(unlucky, Policy(), "head") == ""
    poor = window(drafts=600, accepted=400, first=120, steps=1000)
    assert "position-0 acceptance 20.0%" in failing(poor, Policy(), "head")
    assert failing(poor, Policy(), "") == ""  # a lookup method has nothing to fit


@given(drafts=st.integers(0, 49), accepted=st.integers(0, 49), steps=st.integers(1, 10**6))
def test_fewer_drafts_than_fifty_never_judge(drafts, accepted, steps):
    accepted = min(accepted, drafts)
    assert failing(window(drafts=drafts, accepted=accepted, first=accepted, steps=steps), Policy(), "head") == ""


def test_a_plan_with_a_route_survives_the_ledger():
    one = wanted(keep_baseline=True, releases=True)
    assert Plan.from_record(one.to_record()) == one
    assert one.terms_other_than(wanted(step_duration_s=2.0)) == ("keep baseline", "step duration")
