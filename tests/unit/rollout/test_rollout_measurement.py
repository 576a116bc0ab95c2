"""Rounds, looks, and what is kept: in memory, with an engine that always takes the same time."""

from __future__ import annotations

import base64
import gzip
import json
import math
import random
from collections import Counter
from dataclasses import replace

import pytest
from world import (
    BASELINE_TEXT,
    CANDIDATE_TEXT,
    FASTER,
    PROMPTS,
    SLOWER,
    TOKENS,
    WORKLOAD,
    Crash,
    MemoryWorld,
    plan,
)

from mpctl.errors import InputError, MpctlError
from mpctl.experiment.answers import Answer
from mpctl.experiment.prompt_files import body_of, built_in_prompts
from mpctl.experiment.run import Calibration, Run
from mpctl.experiment.workload import Traffic
from mpctl.gate.assess import judge_run
from mpctl.gate.policy import Policy
from mpctl.records import encode
from mpctl.rollout import runner
from mpctl.rollout.ledger import Event
from mpctl.rollout.measurement import MeasuredRounds
from mpctl.rollout.operation import Ending
from mpctl.rollout.plan import Strategy
from mpctl.rollout.ports import BlockLost
from mpctl.rollout.steps.measure import records_of, verdict_of
from mpctl.stats.sequential import FIRST_LOOK

LONG = replace(
    WORKLOAD,
    traffic=(
        Traffic("edits", tuple(f"edit {i}" for i in range(200)), share=3.0),
        Traffic("chat", tuple(f"talk {i}" for i in range(200))),
    ),
    repeats=12,
    concurrency=(1, 2),
)
both = pytest.mark.parametrize("strategy", list(Strategy))


def world_with(workload, behaviours=FASTER):
    memory = MemoryWorld(behaviours, prompts={kind.name: kind.prompts for kind in workload.traffic})
    memory.disk.records["workload-1", "workload"] = workload.to_record()
    return memory


def rollout(memory, strategy=Strategy.SIDE_BY_SIDE, **changes):
    return runner.run(memory.context, runner.open_plan(memory.context, plan(strategy, **changes)))


def sent_to(memory, manifest):
    return [p for m, p in memory.meter.sent if m == manifest]


@both
@pytest.mark.parametrize(
    ("behaviours", "ending"), [(FASTER, Ending.PROMOTED), (SLOWER, Ending.REJECTED)]
)
def test_a_clear_case_ends_before_the_last_round(strategy, behaviours, ending):
    memory = world_with(replace(LONG, concurrency=(1,)), behaviours)
    done = rollout(memory, strategy)
    assert done.ending is ending
    result = done.result(
        "measure" if strategy is Strategy.SIDE_BY_SIDE else "measure-candidate", MeasuredRounds
    )
    assert result.rounds < 12
    assert result.ended == f"the gate decided after {result.rounds} of 12 rounds"
    looks = [
        name for op, name in memory.disk.records if op == done.id and name.startswith("interim-")
    ]
    assert looks == [f"interim-{n}" for n in range(1, result.rounds + 1)]
    assert len(sent_to(memory, CANDIDATE_TEXT)) < len(set(sent_to(memory, BASELINE_TEXT))) or (
        strategy is Strategy.SIDE_BY_SIDE
    )


@pytest.mark.parametrize("damage", [{}, {"other": 1}, {"cell": [], "argv": 7, "traffic": 7}])
@pytest.mark.parametrize("kind", ["block-", "conditions-baseline", "calibration", "workload"])
def test_a_damaged_record_is_named(kind, damage):
    memory = world_with(replace(LONG, concurrency=(1,)))
    done = rollout(memory)
    memory.disk.records[done.id, "calibration"] = {}
    of, name = next(key for key in memory.disk.records if key[1].startswith(kind))
    memory.disk.records[of, name] = damage
    with pytest.raises(MpctlError, match=f"^record {name} of {of} is damaged: ") as caught:
        records_of(memory.context, done).run()
    assert "restore it" in caught.value.hint


def test_what_an_emptied_ledger_has_lost_is_not_judged_again():
    memory = world_with(replace(LONG, concurrency=(1,)), SLOWER)
    assert rollout(memory).ending is Ending.REJECTED
    memory.disk.ledger.clear()
    memory.meter.sent.clear()
    assert rollout(memory).id == "rollout-2"
    assert sent_to(memory, CANDIDATE_TEXT)


def test_an_interim_analysis_says_the_same_when_it_is_repeated():
    memory = world_with(replace(LONG, concurrency=(1,)))
    done = rollout(memory)
    measured = records_of(memory.context, done)
    for number in range(1, done.result("measure", MeasuredRounds).rounds + 1):
        assert (
            encode(measured.interim(number)[1]) == memory.disk.records[done.id, f"interim-{number}"]
        )


@both
def test_what_is_shown_later_is_what_was_judged(strategy):
    """In place the baseline has all its rounds before the candidate ends early: figures over the rest of them would be
    of prompts that the candidate never saw."""
    memory = world_with(replace(LONG, concurrency=(1,)))
    done = rollout(memory, strategy)
    measured = records_of(memory.context, done)
    run = measured.judged()
    counts = {
        arm: sum(len(b.samples) for b in run.blocks if b.arm == arm)
        for arm in ("baseline", "candidate")
    }
    assert counts["baseline"] == counts["candidate"] > 0
    _, verdict = judge_run(run, rounds=measured.rounds(), planned=run.planned)
    assert verdict == verdict_of(done)
    if strategy is Strategy.IN_PLACE:
        assert len(measured.run().blocks) > len(run.blocks)


@both
def test_after_each_round_the_progress_names_time_and_intervals(strategy):
    memory = world_with(replace(LONG, concurrency=(1,), traffic=LONG.traffic[:1], max_time_s=30.0))
    done = rollout(memory, strategy)
    judged = [p for p in memory.progress.rounds if p.figures]
    assert [p.number for p in judged] == list(range(1, len(judged) + 1))
    assert all(
        p.at_most == 12 and p.elapsed_s > 0 and 0 <= p.remaining_s <= 30 - p.elapsed_s
        for p in judged
    )
    assert [name for name, _, _ in judged[-1].figures] == [
        "throughput ratio",
        "time-per-token ratio",
    ]
    assert judged[-1].open == ()
    assert done.ending is Ending.PROMOTED


def test_from_the_first_look_on_the_progress_names_the_rules_that_are_open():
    little = FASTER | {CANDIDATE_TEXT: replace(FASTER[CANDIDATE_TEXT], seconds=0.094)}
    workload = replace(LONG, concurrency=(1,), traffic=LONG.traffic[:1], repeats=24)
    memory = world_with(workload, little)
    assert rollout(memory).ending is Ending.UNDECIDED
    *before, last = memory.progress.rounds
    assert last.number == FIRST_LOOK
    assert last.open == ("time per token",)
    assert {p.open for p in before} == {()}


@both
def test_no_round_begins_after_the_time_is_over(strategy):
    # A block of four takes 0.4 s on the baseline, and half the time is each arm's when one follows the other.
    memory = world_with(replace(LONG, concurrency=(1,), traffic=LONG.traffic[:1], max_time_s=1.0))
    done = rollout(memory, strategy)
    name = "measure" if strategy is Strategy.SIDE_BY_SIDE else "measure-baseline"
    assert done.result(name, MeasuredRounds).rounds == 2
    assert (
        "1 s of measuring are over" in done.result(name, MeasuredRounds).ended
        or "the gate decided" in done.result(name, MeasuredRounds).ended
    )


def test_every_cell_is_measured_with_prompts_of_its_own_class():
    memory = world_with(LONG)
    done = rollout(memory)
    run = records_of(memory.context, done).run()
    assert [c.key for c in run.cells] == ["chat-c1-t0", "chat-c2-t0", "edits-c1-t0", "edits-c2-t0"]
    for manifest in (BASELINE_TEXT, CANDIDATE_TEXT):
        counted = [p for p in sent_to(memory, manifest) if p not in ("edit 0", "talk 0")]
        assert len(counted) == len(set(counted))
    # One prompt warms each arm in each of two cells.
    assert sent_to(memory, BASELINE_TEXT).count("edit 0") == 2
    assert run.shares == {"edits": 0.75, "chat": 0.25}


def test_the_run_holds_what_is_needed_to_repeat_it():
    memory = MemoryWorld(FASTER)
    done = rollout(memory)
    run = records_of(memory.context, done).run()
    assert Run.from_record(run.to_record()) == run
    assert (run.id, run.created, run.who) == (done.id, done.opened_at, "somebody@here")
    assert {name: (a.spec, a.engine_version, a.model) for name, a in run.arms.items()} == {
        "baseline": ("none", "0.32.0", "model"),
        "candidate": ("ngram K=4", "0.32.0", "model"),
    }
    assert run.calibration == Calibration(0.1, 0.2, 10, 1)
    assert run.prompts["edits"].count == 9
    assert run.prompts["edits"].repeated == 0
    assert Policy.from_record(run.policy) == done.plan.policy
    assert (run.planned, run.max_tokens) == (2, WORKLOAD.max_tokens)


def test_the_times_of_the_client_are_kept_without_its_texts():
    memory = MemoryWorld(FASTER)
    done = rollout(memory)
    packed = memory.disk.records[done.id, "bench-edits-c1-t0-candidate-1"]
    rows = json.loads(gzip.decompress(base64.b64decode(packed["data"])))
    assert [row[3] for row in rows] == [TOKENS] * 4
    everything = json.dumps(
        [list(memory.disk.records.items()), [e.to_record() for e in memory.disk.ledger]],
        default=str,
    )
    assert not any(prompt in everything for prompt in PROMPTS)


@both
@pytest.mark.parametrize("point", ["after save", "before run", "after run"])
def test_a_rollout_that_still_measures_is_resumed_with_the_same_prompts_only(strategy, point):
    memory = MemoryWorld(FASTER)

    def die(where):
        if where == point:
            raise Crash(where)

    memory.watch = die
    with pytest.raises(Crash):
        runner.run(memory.context, runner.open_plan(memory.context, plan(strategy)))
    for prompts in ({}, {"edits": (*PROMPTS, "one more")}, {"other": PROMPTS}):
        without = MemoryWorld(FASTER, memory.disk.copy(), prompts)
        with pytest.raises(
            InputError, match=r"its prompts of edits are stored as digests only"
        ) as caught:
            runner.run(without.context, without.unfinished())
        assert (
            "mpctl resume --prompts edits=FILE; mpctl rollback restores the service"
            in caught.value.hint
        )
        assert without.trail == []  # refused before anything was done
    again = memory.again()
    assert runner.run(again.context, again.unfinished()).ending is Ending.PROMOTED


def test_a_built_in_set_is_read_again_from_the_package():
    assert MemoryWorld(FASTER).context.prompts_of("edits") == PROMPTS
    context = replace(MemoryWorld(FASTER).context, prompts={})
    assert context.prompts_of("edits") == built_in_prompts("edits")[0]
    assert context.prompts_of("mine") is None


def test_each_arm_and_measurement_has_a_salt_of_its_own_and_a_resumed_one_another():
    """With the salt of an earlier measurement or of a broken block, prompts come from the prefix cache."""
    memory = world_with(replace(LONG, concurrency=(1,)), SLOWER)
    memory.die_at(60)
    with pytest.raises(Crash):
        rollout(memory)
    resumed = memory.again()
    runner.run(resumed.context, resumed.unfinished())
    again = resumed.again()
    rollout(again)
    salts = [set(world.meter.salts) for world in (memory, resumed, again)]
    for one in salts:
        assert len(one) == len({arm for arm, _ in one}) == 2
        assert all(one != other for other in salts if other is not one)
    assert len({salt for one in salts for _, salt in one}) == 6
    assert "" not in {salt for one in salts for _, salt in one}


class LosesOneBlock:
    """A meter whose load client loses a pod in the fifth block, and with ``always`` in every later one too."""

    def __init__(self, meter, *, always=False):
        self._meter, self._always, self.asked = meter, always, []

    def __getattr__(self, name):
        return getattr(self._meter, name)

    def send(self, endpoint, order):
        self.asked.append((order.prompts, order.salt))
        if len(self.asked) == 5 or (self._always and len(self.asked) > 5):
            raise BlockLost("load Job ns/x: pod-1 was deleted")
        return self._meter.send(endpoint, order)


def test_a_block_that_lost_a_pod_is_sent_again_as_new_to_the_prefix_cache():
    memory = MemoryWorld(FASTER)
    meter = LosesOneBlock(memory.meter)
    memory.context = replace(memory.context, meter=meter)
    done = rollout(memory)
    (lost, lost_salt), (again, again_salt) = meter.asked[4:6]
    assert lost == again
    assert lost_salt != again_salt
    assert [salt for _, salt in meter.asked].count(again_salt) == 1
    assert any(
        "pod-1 was deleted; the block is invalid and is sent again" in line
        for line in memory.progress.lines
    )
    assert records_of(memory.context, done).rounds() == WORKLOAD.repeats


def test_an_engine_that_moved_to_another_node_is_warmed_up_again_and_named():
    memory = MemoryWorld(FASTER)
    sent, real_send, real_state = [], memory.context.meter.send, memory.context.platform.state

    def send(endpoint, order):
        sent.append((endpoint.address, order.prompts))
        return real_send(endpoint, order)

    def state(arm):
        actual_real_state, pod = real_state(arm), "b" if len(sent) >= 4 else "a"
        endpoint = (
            None
            if actual_real_state.endpoint is None
            else replace(actual_real_state.endpoint, inside=f"http://{pod}-{arm.id}")
        )
        return replace(actual_real_state, endpoint=endpoint)

    memory.context.meter.send, memory.context.platform.state = send, state
    rollout(memory)
    (warmup,) = {prompts for address, prompts in sent[:1]}
    assert {address for address, prompts in sent if prompts == warmup} == {
        address for address, _ in sent
    }
    first = next(prompts for address, prompts in sent if address.startswith("http://b-"))
    assert first == warmup
    for arm in ("baseline", "candidate"):
        text = f"the {arm} is another engine since the last block; it is warmed up first"
        assert memory.progress.lines.count(text) == 1


def test_a_block_that_is_lost_twice_ends_the_measurement():
    memory = MemoryWorld(FASTER)
    memory.context = replace(memory.context, meter=LosesOneBlock(memory.meter, always=True))
    assert rollout(memory).ending is Ending.FAILED
    assert (
        memory.progress.lines.count(
            "load Job ns/x: pod-1 was deleted; the block is invalid and is sent again"
        )
        == 1
    )


def test_an_interrupted_measurement_keeps_its_order():
    whole = world_with(replace(LONG, concurrency=(1,)), SLOWER)
    done = rollout(whole)
    broken = world_with(replace(LONG, concurrency=(1,)), SLOWER)
    broken.die_at(60)
    with pytest.raises(Crash):
        rollout(broken)
    resumed = broken.again()
    runner.run(resumed.context, resumed.unfinished())

    def order(world):
        return [(b.arm, b.repeat) for b in records_of(world.context, done).blocks()]

    assert order(resumed) == order(whole)
    assert [repeat for _, repeat in order(whole)] == sorted(repeat for _, repeat in order(whole))


def test_a_sealed_block_is_never_sent_again():
    """Killed after every third write of records: a kill loses what was measured since the last seal, and no more."""
    memory = world_with(LONG)
    sealed, ending, attempts = set(), None, 0
    while ending is None:
        attempts += 1
        assert attempts < 12  # rounds: each attempt seals at least one
        victim = memory.again()

        def watch(where, victim=victim):
            if where == "after save" and victim.trail.count(where) == 3:
                raise Crash(where)

        victim.watch = watch
        open_one = victim.unfinished()
        try:
            done = runner.run(
                victim.context,
                open_one or runner.open_plan(victim.context, plan(Strategy.SIDE_BY_SIDE)),
            )
            ending = done.ending
        except Crash:
            memory = victim.again()
        assert not sealed & set(victim.meter.sent)
        blocks = records_of(victim.again().context, victim.operations()[0]).blocks()
        manifests = {"baseline": BASELINE_TEXT, "candidate": CANDIDATE_TEXT}
        now = {
            (manifests[b.arm], prompt) for b in blocks for prompt in LONG.slice(b.cell, b.repeat)
        }
        assert ending or len(now) > len(sealed)
        sealed = now
    assert attempts > 2
    assert ending is Ending.PROMOTED


@pytest.mark.parametrize(
    ("argv", "revision"), [((), ""), (("--revision", "abc"), "abc"), (("--revision=abc",), "abc")]
)
def test_where_the_load_client_is_elsewhere_the_platform_tells_the_device_and_the_arguments_the_revision(
    argv, revision
):
    memory = MemoryWorld(FASTER)
    meter, platform = memory.context.meter, memory.context.platform
    describe, state = meter.describe, platform.state
    meter.describe = lambda *asked: replace(describe(*asked), device="")
    platform.state = lambda arm: replace(state(arm), argv=argv)
    done = rollout(memory)
    arms = records_of(memory.context, done).run().arms
    assert {(arm.device, arm.model_digest) for arm in arms.values()} == {("L4", revision)}


def strict(memory, strategy=Strategy.SIDE_BY_SIDE, **changes):
    """A rollout whose policy asks for failures to be ruled out."""
    policy = Policy(**{"max_failed_excess": 0.05, **changes})
    return runner.run(
        memory.context, runner.open_plan(memory.context, plan(strategy, policy=policy))
    )


def errors_of(done):
    return next(rule for rule in verdict_of(done).rules if rule.rule == "errors")


def untimed(memory, manifest):
    """The requests before the rounds to an arm."""
    return sum(count for asked, count, _ in memory.meter.asked if asked == manifest)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_failures_are_ruled_out_by_untimed_requests_before_the_rounds(strategy):
    """Two rounds of four prompts leave 64 of the 72 requests that rule out 5 % of failures."""
    memory = MemoryWorld(FASTER)
    done = strict(memory, strategy)
    assert untimed(memory, BASELINE_TEXT) == untimed(memory, CANDIDATE_TEXT) == 64
    assert done.ending is Ending.PROMOTED
    assert errors_of(done).message.startswith(
        "0 of 72 requests failed, 0 of 72 on the baseline, 64 of them before"
    )


def test_engines_that_answered_untimed_requests_are_not_warmed_up_once_more():
    memory = MemoryWorld(FASTER)
    done = strict(memory)
    warm_up = records_of(memory.context, done).workload.traffic[0].prompts[0]
    for manifest in (BASELINE_TEXT, CANDIDATE_TEXT):
        assert warm_up not in sent_to(memory, manifest)


def test_a_policy_that_allows_every_failure_sends_nothing_before_the_rounds():
    memory = MemoryWorld(FASTER)
    strict(memory, max_failed_excess=1.0)
    assert not memory.meter.asked


def test_a_class_whose_prompts_are_all_measured_has_no_untimed_requests():
    measured = replace(WORKLOAD, traffic=(Traffic("edits", PROMPTS[:8]),), warmup=0)
    memory = world_with(measured)
    strict(memory)
    assert not memory.meter.asked and len(memory.meter.sent) == 16


def failing_every(memory, share):
    """Let the candidate fail one of so many of the requests before the rounds."""
    ask, numbers = memory.meter.ask, iter(range(10_000))

    def failing(endpoint, asks, **options):
        answers = ask(endpoint, asks, **options)
        if memory.meter.asked[-1][0] == BASELINE_TEXT:
            return answers
        return tuple(
            Answer(error="HTTP 500") if next(numbers) % share == 0 else answer for answer in answers
        )

    memory.meter.ask = failing


def test_a_candidate_that_answers_no_request_of_a_block_is_taken_back_with_the_engines_reason():
    memory = MemoryWorld(FASTER)
    send = memory.meter.send

    def failing(endpoint, order):
        sent = send(endpoint, order)
        if memory.meter.salts[-1][0] == BASELINE_TEXT:
            return sent
        requests = tuple(
            replace(request, error="HTTP 400: no such role") for request in sent.result.requests
        )
        return replace(sent, result=replace(sent.result, requests=requests))

    memory.meter.send = failing
    rollout(memory)
    assert memory.endings() == ["failed", "rolled back"]
    (reason,) = [
        entry.data["reason"] for entry in memory.disk.ledger if entry.event is Event.FAILED
    ]
    assert "of the candidate (" in reason
    assert "requests failed, the first with HTTP 400: no such role" in reason


def test_one_stray_failure_sends_more_and_is_promoted():
    memory = MemoryWorld(FASTER)
    failing_every(memory, 10_000)
    done = strict(memory)
    assert done.ending is Ending.PROMOTED
    assert errors_of(done).message.startswith("1 of 136 requests failed, 0 of 136 on the baseline")


def test_a_candidate_that_fails_one_request_in_ten_is_not_promoted():
    memory = MemoryWorld(FASTER)
    failing_every(memory, 10)
    assert strict(memory).ending is not Ending.PROMOTED


def warming(memory, tau):
    """Let the candidate's first requests take up to twice as long, by an excess that falls by 63 % in ``tau``."""
    ask, sent = memory.meter.ask, Counter()

    def slower(endpoint, asks, **options):
        answers = ask(endpoint, asks, **options)
        manifest = memory.meter.asked[-1][0]
        first, sent[manifest] = sent[manifest], sent[manifest] + len(asks)
        excess = 0.0 if manifest == BASELINE_TEXT else 1.0
        noise = random.Random(f"{first} {manifest}")
        return tuple(
            replace(
                answer,
                seconds=(1 + excess * math.exp(-number / tau)) * math.exp(noise.gauss(0.0, 0.02)),
            )
            for number, answer in enumerate(answers, start=first)
        )

    memory.meter.ask = slower


@pytest.mark.parametrize(("tau", "most"), [(1.0, 64), (25.0, 144), (100.0, 200)])
def test_an_arm_is_warmed_up_until_its_speed_is_level(tau, most):
    """64 requests rule out failures; more follow while the candidate still becomes faster, 200 at most."""
    memory = MemoryWorld(FASTER)
    warming(memory, tau)
    strict(memory)
    assert untimed(memory, BASELINE_TEXT) == most


def quick(memory, ratio):
    """Let the candidate's untimed requests take ``ratio`` as long as the baseline's."""
    ask = memory.meter.ask

    def timed(endpoint, asks, **options):
        answers = ask(endpoint, asks, **options)
        seconds = 1.0 if memory.meter.asked[-1][0] == BASELINE_TEXT else ratio
        return tuple(replace(answer, seconds=seconds) for answer in answers)

    memory.meter.ask = timed


@pytest.mark.parametrize(
    ("ratio", "changes", "size"),
    [
        (0.7, {}, 1),
        (0.89, {}, 1),
        (0.95, {}, 2),
        (0.7, {"requests": 4}, 4),
        (0.7, {"concurrency": (2,)}, 4),
    ],
)
def test_a_large_gain_of_the_untimed_requests_is_measured_in_rounds_of_one_prompt(
    ratio, changes, size
):
    """Killed and resumed, the rounds go on as they began: the choice is written with the first."""
    usual = replace(
        LONG, traffic=LONG.traffic[:1], **{"concurrency": (1,), "requests": 2} | changes
    )
    memory, notes = world_with(usual), []
    memory.context.progress.note = notes.append
    quick(memory, ratio)
    done = strict(memory)
    assert done.ending is Ending.PROMOTED
    records = records_of(memory.context, done)
    assert {len(block.samples) for block in records.blocks()} == {size}
    assert records.run().planned == usual.repeats * (2 if size == 1 else 1)
    assert any("rounds of one prompt" in note for note in notes) == (size == 1)
    broken = world_with(usual)
    quick(broken, ratio)
    broken.die_at(60)
    with pytest.raises(Crash):
        strict(broken)
    resumed = broken.again()
    quick(resumed, ratio)
    runner.run(resumed.context, resumed.unfinished())
    again = records_of(resumed.context, done)
    assert [block.samples for block in again.blocks()] == [b.samples for b in records.blocks()]


def test_what_neither_arm_answers_proves_nothing():
    memory = MemoryWorld(FASTER)
    ask = memory.meter.ask
    memory.meter.ask = lambda endpoint, asks, **options: tuple(
        Answer(error="HTTP 400") for _ in ask(endpoint, asks, **options)
    )
    assert strict(memory).ending is Ending.UNDECIDED


def test_untimed_requests_are_sent_in_an_order_that_is_drawn_for_both_arms():
    """In a sorted file a draft predicts one end better, which looked like an arm that warms up."""
    prompts = built_in_prompts("edits")[0]
    memory, sent = world_with(replace(WORKLOAD, traffic=(Traffic("edits", prompts),))), []
    ask = memory.meter.ask

    def asked(endpoint, asks, **options):
        answers = ask(endpoint, asks, **options)
        sent.extend((memory.meter.asked[-1][0], json.dumps(one.body)) for one in asks)
        return answers

    memory.meter.ask = asked
    done = strict(memory)
    workload = records_of(memory.context, done).workload
    spare = [json.dumps(body_of(p)) for p in workload.spare_prompts_of(workload.traffic[0])]
    baseline, candidate = (
        [body for manifest, body in sent if manifest == arm]
        for arm in (BASELINE_TEXT, CANDIDATE_TEXT)
    )
    assert baseline == candidate
    assert len(set(baseline)) == 64 and set(baseline) < set(spare)
    assert baseline != sorted(baseline, key=spare.index)
