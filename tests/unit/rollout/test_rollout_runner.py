"""Operations carried out in memory: what fails, what is refused, and what stays untouched."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest
from world import (
    BASELINE_TEXT,
    BROKEN,
    CANDIDATE_TEXT,
    FASTER,
    NGRAM,
    OTHER_TEXT,
    PROMPTS,
    SLOWER,
    WORKLOAD,
    Behaviour,
    MemoryWorld,
    plan,
)

from mpctl.errors import Conflict, InputError, MpctlError
from mpctl.experiment.counters import Counters
from mpctl.gate.policy import Policy
from mpctl.methods import Spec
from mpctl.rollout import runner, sequences
from mpctl.rollout.decide import Act
from mpctl.rollout.ledger import Event
from mpctl.rollout.operation import Ending
from mpctl.rollout.plan import Strategy
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.watch.reference import Reference

BASELINE, CANDIDATE = Arm(BASELINE_TEXT).id, Arm(CANDIDATE_TEXT).id
both = pytest.mark.parametrize("strategy", list(Strategy))


def rollout(memory, strategy, **changes):
    return runner.run(memory.context, runner.open_plan(memory.context, plan(strategy, **changes)))


def ask_back(memory):
    """What ``mpctl rollback`` decides."""
    return memory.decide_back()


def interfere(memory, where, action):
    """Let ``action`` happen once, at the first boundary of that name."""
    pending = [action]

    def watch(name):
        if pending and name == where:
            pending.pop()(memory)

    memory.watch = watch


@both
def test_every_step_is_written_down_before_it_acts(strategy):
    memory = MemoryWorld(FASTER)
    rollout(memory, strategy)
    events = [(e.event, e.step, e.then) for e in memory.disk.ledger]
    names = [step.name for step in sequences.sequence(plan(strategy), replaces_pods=False)]
    steps_written = [
        (Event.DONE, name, then) for name, then in zip(names, (*names[1:], ""), strict=True)
    ]
    assert events == [(Event.OPENED, "", names[0]), *steps_written, (Event.CLOSED, "", "")]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_step_that_changes_nothing_is_written_with_the_next_one(strategy):
    memory = MemoryWorld(FASTER)
    rollout(memory, strategy)
    appends = memory.trail.count("after append")
    ends = [entry.step for entry in memory.disk.ledger if entry.event is Event.DONE]
    steps = {step.name: step for step in sequences.sequence(plan(strategy), replaces_pods=False)}
    together = [
        step for step, after in pairwise([*ends, ""]) if steps[step].ends_together(steps.get(after))
    ]
    together += [] if steps[ends[0]].changes else ["opened"]
    assert len(memory.disk.ledger) - appends == len(together)
    assert {"measure", "measure-candidate"} & set(together)
    assert not {"record", "ready", "judge"} & set(together)  # what follows them acts
    assert appends <= 5


def test_a_baked_rollout_keeps_the_old_engine_until_the_end_of_the_bake():
    memory = MemoryWorld(FASTER)
    rollout(memory, Strategy.SIDE_BY_SIDE, bake_s=30.0)
    steps = list(memory.operations()[0].done)
    assert "retire" not in steps
    assert steps[-3:] == ["verify", "bake", "retire-baked"]
    assert len(memory.disk.engines) == 1


@both
@pytest.mark.parametrize("speeds", [FASTER, SLOWER])
def test_a_promotion_leaves_the_reference_of_the_watch(strategy, speeds):
    memory = MemoryWorld(speeds)
    operation = rollout(memory, strategy)
    record = memory.context.store.load(operation.id, "reference")
    if operation.ending is not Ending.PROMOTED:
        assert record is None
        return
    reference = Reference.from_record(record)
    assert (reference.operation, reference.method, reference.spec) == (
        operation.id,
        "ngram",
        NGRAM.describe(),
    )
    (band,) = reference.bands
    assert (band.traffic, band.rounds) == ("edits", 2)
    assert band.tokens_per_step.value == pytest.approx(
        10 / 6
    )  # five of ten tokens accepted, one first step


def test_blocks_go_round_by_round_and_each_arm_is_sent_each_prompt_once():
    memory = MemoryWorld(FASTER)
    rollout(memory, Strategy.SIDE_BY_SIDE)
    arms = [
        manifest for manifest, prompt in memory.meter.sent if prompt in (PROMPTS[1], PROMPTS[5])
    ]
    assert set(arms[:2]) == set(arms[2:]) == {BASELINE_TEXT, CANDIDATE_TEXT}
    for manifest in (BASELINE_TEXT, CANDIDATE_TEXT):
        assert sorted(p for m, p in memory.meter.sent if m == manifest) == sorted(PROMPTS)


@both
def test_the_gate_is_asked_with_the_plans_own_policy(strategy):
    memory = MemoryWorld(FASTER)
    done = rollout(memory, strategy, policy=Policy(max_time_per_token_ratio=0.1))
    assert done.ending is Ending.REJECTED
    assert "below 0.10x" in done.detail
    assert memory.disk.text == BASELINE_TEXT


@both
def test_too_few_samples_leave_it_undecided_and_restored(strategy):
    memory = MemoryWorld(FASTER)
    few = replace(WORKLOAD, requests=WORKLOAD.requests - 1)
    memory.disk.records["workload-1", "workload"] = few.to_record()
    done = rollout(memory, strategy)
    assert done.ending is Ending.UNDECIDED
    assert "6 prompts were answered by both arms with text (at least 8)" in done.detail
    assert memory.disk.routed == BASELINE


@both
def test_a_failing_engine_is_named_with_its_own_last_words(strategy):
    memory = MemoryWorld(BROKEN)
    done = rollout(memory, strategy)
    assert done.ending is Ending.FAILED
    assert "the candidate did not start: the engine exited with code 3" in done.detail
    assert "ValueError: scripted" in done.detail
    assert list(memory.disk.engines) == [BASELINE]


@both
def test_an_engine_with_other_arguments_than_its_manifest_is_not_measured(strategy):
    behaviours = {**FASTER, CANDIDATE_TEXT: Behaviour(speculates=True, matches=False)}
    memory = MemoryWorld(behaviours)
    done = rollout(memory, strategy)
    assert done.ending is Ending.FAILED
    assert "other arguments than its manifest" in done.detail
    assert CANDIDATE_TEXT not in {manifest for manifest, _ in memory.meter.sent}


@both
def test_an_engine_that_is_never_ready_times_out(strategy):
    memory = MemoryWorld(FASTER)
    asked = memory.context.platform.state

    def mute(arm):
        state = asked(arm)
        return ArmState(arm.id, Phase.STARTING) if arm.id == CANDIDATE else state

    memory.context.platform.state = mute
    done = rollout(memory, strategy, ready_timeout_s=3.0)
    assert done.ending is Ending.FAILED
    assert "was not ready within 3 s" in done.detail
    assert memory.disk.text == BASELINE_TEXT


def test_a_candidate_that_ends_while_it_is_measured_fails_the_rollout():
    memory = MemoryWorld(FASTER)
    interfere(memory, "after save", lambda m: m.disk.engines.pop(CANDIDATE))
    done = rollout(memory, Strategy.SIDE_BY_SIDE)
    assert done.ending is Ending.FAILED
    assert "the candidate stopped while it was measured" in done.detail
    assert memory.disk.routed == BASELINE


def test_the_last_lines_of_an_engine_that_ends_while_it_is_measured_are_recorded_without_the_prompts():
    memory = MemoryWorld(FASTER)
    interfere(memory, "after save", lambda m: m.disk.engines.pop(CANDIDATE))
    prompt = PROMPTS[0]
    memory.context.platform.describe_failure = lambda _arm: f"ValueError: bad request: {prompt!r}"
    done = rollout(memory, Strategy.SIDE_BY_SIDE)
    assert done.ending is Ending.FAILED
    assert "ValueError: bad request: '... (a prompt is left out)" in done.detail
    assert prompt not in str(memory.disk.ledger)


@both
def test_counters_that_contradict_each_other_fail_the_rollout(strategy):
    memory = MemoryWorld(FASTER)
    readings = iter(range(100, 0, -1))
    memory.meter.counters = lambda endpoint: Counters(generation_tokens=float(next(readings)))
    done = rollout(memory, strategy)
    assert done.ending is Ending.FAILED
    assert (
        "cannot be used: vllm:generation_tokens_total went back from 98 to 97" in done.detail
    )  # after the warm-up


def test_a_lost_workload_fails_the_rollout_and_names_the_way_back():
    memory = MemoryWorld(FASTER)
    memory.disk.records.clear()
    done = rollout(memory, Strategy.SIDE_BY_SIDE)
    assert done.ending is Ending.FAILED
    assert "the workload of rollout-1 is gone" in done.detail


@both
def test_a_service_changed_before_the_first_step_is_left_alone(strategy):
    memory = MemoryWorld(FASTER)
    memory.disk.text = OTHER_TEXT
    done = rollout(memory, strategy)
    assert done.ending is Ending.FAILED
    assert (
        "was changed by somebody; step record failed: service svc was changed after the plan was made"
        in done.detail
    )
    assert memory.disk.text == OTHER_TEXT
    assert memory.endings() == ["failed"]
    assert memory.disk.text == OTHER_TEXT
    assert list(memory.disk.engines) == [BASELINE]
    assert memory.meter.sent == []


@both
@pytest.mark.parametrize("behaviours", [FASTER, SLOWER], ids=["promoted", "rejected"])
def test_a_service_changed_by_somebody_else_meanwhile_is_not_overwritten(strategy, behaviours):
    memory = MemoryWorld(behaviours)
    interfere(memory, "after run", lambda m: setattr(m.disk, "text", OTHER_TEXT))
    with pytest.raises(Conflict, match="changed by somebody else"):
        rollout(memory, strategy)
    assert memory.disk.text == OTHER_TEXT
    assert memory.live_revisions() == [BASELINE_TEXT]
    memory.check_ledger()
    # Still so when it is tried again, and free once the other's change is taken back by whoever made it.
    again = memory.again()
    with pytest.raises(Conflict):
        runner.run(again.context, again.unfinished())
    assert again.disk.text == OTHER_TEXT
    again.disk.text = BASELINE_TEXT
    runner.run(again.context, again.unfinished())
    assert again.disk.text == BASELINE_TEXT
    assert list(again.disk.engines) == [BASELINE]
    assert None not in again.endings()


@both
def test_a_way_back_that_failed_goes_on_and_starts_its_engine_again(strategy):
    """The engine of the way back fails at its first starts; the same call again must not stay stuck on that."""
    behaviours = {**FASTER, BASELINE_TEXT: Behaviour(failures=3)}
    memory = MemoryWorld(behaviours)
    assert rollout(memory, strategy).ending is Ending.PROMOTED
    decision = memory.decide_back(strategy=strategy)
    operation = runner.open_plan(memory.context, decision.plan)
    attempts = 0
    while operation.ending is None:
        attempts += 1
        assert attempts < 6
        try:
            operation = runner.run(memory.context, operation)
        except MpctlError as error:
            assert "did not start" in error.message
            operation = memory.unfinished()
    assert operation.ending is Ending.ROLLED_BACK
    assert attempts > 1
    assert memory.disk.text == BASELINE_TEXT
    assert {i: e.phase for i, e in memory.disk.engines.items()} == {BASELINE: Phase.READY}
    memory.check_ledger()


def test_verify_compares_byte_for_byte():
    memory = MemoryWorld(FASTER)
    interfere(
        memory,
        "after stop_all_except",
        lambda m: setattr(m.disk, "text", CANDIDATE_TEXT.replace("\r\n", "\n")),
    )
    with pytest.raises(Conflict):
        rollout(memory, Strategy.SIDE_BY_SIDE)
    failed = next(e for e in memory.disk.ledger if e.event is Event.FAILED)
    assert failed.step == "verify"
    assert (
        "was changed by somebody; step verify failed: verification failed" in failed.data["reason"]
    )


def test_a_kept_baseline_is_found_again_on_the_way_back():
    memory = MemoryWorld(FASTER)
    rollout(memory, Strategy.SIDE_BY_SIDE, keep_baseline=True)
    engine = memory.disk.engines[BASELINE]
    decision = memory.decide_back()
    runner.run(memory.context, runner.open_plan(memory.context, decision.plan))
    assert memory.disk.engines == {BASELINE: engine}


@both
def test_a_rollback_repeated_does_not_go_forward_again(strategy):
    memory = MemoryWorld(FASTER)
    rollout(memory, strategy)
    runner.run(memory.context, runner.open_plan(memory.context, ask_back(memory).plan))
    assert memory.disk.text == BASELINE_TEXT
    assert ask_back(memory).act is Act.ALREADY


@both
def test_a_rollback_after_a_refused_rollout_takes_back_the_one_before_it(strategy):
    memory = MemoryWorld({**FASTER, OTHER_TEXT: Behaviour(seconds=0.2, speculates=True)})
    rollout(memory, strategy)
    rollout(
        memory,
        strategy,
        baseline=CANDIDATE_TEXT,
        goal=OTHER_TEXT,
        spec=Spec("eagle3"),
        baseline_spec=NGRAM,
    )
    assert memory.endings() == ["promoted", "rejected", "rolled back"]
    assert memory.disk.text == CANDIDATE_TEXT
    decision = ask_back(memory)
    assert decision.act is Act.OPEN
    runner.run(memory.context, runner.open_plan(memory.context, decision.plan))
    assert memory.disk.text == BASELINE_TEXT
    assert ask_back(memory).act is Act.ALREADY


def test_the_same_service_is_recorded_once():
    memory = MemoryWorld(SLOWER)
    for _ in range(3):
        rollout(memory, Strategy.SIDE_BY_SIDE)
    assert [r.text for r in memory.disk.revisions] == [BASELINE_TEXT, CANDIDATE_TEXT]
    assert memory.live_revisions() == [BASELINE_TEXT]
    assert memory.endings() == ["rejected", "rolled back"] * 3


def failing(memory, name, error, *, times=1):
    """The platform's method raises at its first calls."""
    real, errors = getattr(memory.context.platform, name), [error] * times

    def act(*arguments, **named):
        if errors:
            raise errors.pop()
        return real(*arguments, **named)

    setattr(memory.context.platform, name, act)


@both
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), BrokenPipeError(32, "Broken pipe")], ids=str
)
def test_what_the_system_refuses_in_a_step_takes_the_way_back(strategy, error):
    memory = MemoryWorld(FASTER)
    failing(memory, "promote", error)
    done = rollout(memory, strategy)
    assert done.ending is Ending.FAILED
    assert f"step promote of rollout-1: {error}" in done.detail
    assert memory.endings() == ["failed", "rolled back"]
    assert memory.disk.text == BASELINE_TEXT
    assert list(memory.disk.engines) == [BASELINE]


@both
def test_a_rollback_that_the_cluster_refuses_is_no_input_error_and_continues(strategy):
    memory = MemoryWorld(FASTER)
    rollout(memory, strategy)
    failing(
        memory,
        "promote",
        InputError("InferenceService chat/svc was refused by an admission webhook: no"),
        times=2,
    )
    for attempt in (
        lambda: runner.open_plan(memory.context, ask_back(memory).plan),
        memory.unfinished,
    ):
        with pytest.raises(
            MpctlError, match=r"could not restore the service: .*admission webhook"
        ) as caught:
            runner.run(memory.context, attempt())
        assert caught.value.exit_code == 1
        assert caught.value.hint.startswith("'mpctl rollback' continues")
        assert memory.disk.text == CANDIDATE_TEXT
    runner.run(memory.context, memory.unfinished())
    assert memory.disk.text == BASELINE_TEXT


@both
def test_a_way_back_that_fails_says_so_and_how_to_go_on(strategy):
    memory = MemoryWorld(SLOWER)
    failing(memory, "promote", OSError(28, "No space left on device"), times=2)
    for attempt in (
        lambda: rollout(memory, strategy),
        lambda: runner.run(memory.context, memory.unfinished()),
    ):
        with pytest.raises(
            MpctlError, match=r"^rollback-2 could not restore the service: step restore"
        ) as caught:
            attempt()
        assert "rollout-1 rejected" in caught.value.message
        assert caught.value.hint.startswith("'mpctl rollback' continues")
        assert caught.value.exit_code == 1
    runner.run(memory.context, ask_back(memory).operation)
    assert memory.endings() == ["rejected", "rolled back"]
    assert list(memory.disk.engines) == [BASELINE]


def test_another_writers_change_comes_before_what_it_broke():
    memory = MemoryWorld(FASTER)

    def send(*_arguments, **_options):
        memory.disk.text += "# theirs\n"
        raise MpctlError(
            "vllm bench serve in load Job chat/x failed: OSError",
            hint="its last lines:\nsent to ...",
        )

    memory.context.meter.send = send
    with suppress(MpctlError):  # these manifests cannot be merged
        rollout(memory, Strategy.SIDE_BY_SIDE)
    failed = next(entry for entry in memory.disk.ledger if entry.event is Event.FAILED)
    assert failed.data["reason"] == (
        "service chat/svc was changed by somebody; step measure failed: "
        "vllm bench serve in load Job chat/x failed: OSError"
    )


@pytest.mark.parametrize("lost", [("pod svc-1 was deleted",), ()])
def test_a_measured_pod_that_was_deleted_is_the_cause_and_not_what_the_client_said(lost):
    memory = MemoryWorld(FASTER)
    memory.lost_pods = lost

    def send(*_arguments, **_options):
        raise MpctlError(
            "vllm bench serve in load Job chat/x failed: OSError",
            hint="its last lines:\nsent to ...",
        )

    memory.context.meter.send = send
    done = rollout(memory, Strategy.SIDE_BY_SIDE)
    client = "vllm bench serve in load Job chat/x failed: OSError"
    assert done.detail == (
        f"{lost[0]}; step measure failed: {client}"
        if lost
        else f"{client}; its last lines:\nsent to ..."
    )
    assert memory.disk.text == BASELINE_TEXT
