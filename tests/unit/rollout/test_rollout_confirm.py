"""The engine that serves after a promotion is another start of the manifest that was measured: is it as fast?"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from rolling import BESIDE, ROUTE, RollingDisk, RollingWorld, guard
from world import CANDIDATE_TEXT, FASTER, FEW, Crash, MemoryMeter, plan

from mpctl.errors import MpctlError
from mpctl.experiment.users import Placement, UserLoad
from mpctl.experiment.workload import Traffic, Workload
from mpctl.report import operation_record
from mpctl.rollout import runner
from mpctl.rollout.operation import Ending
from mpctl.rollout.plan import Strategy
from mpctl.rollout.ports import Arm
from mpctl.rollout.steps.confirm import Confirmation

SERVES = Arm(CANDIDATE_TEXT).id
PROMPTS = tuple(f"question {i}" for i in range(65))
WORKLOAD = Workload((Traffic("edits", PROMPTS),), repeats=16, requests=4, warmup=1)
USERS = UserLoad(2.0, 1, seen=True, window_s=10.0, answer_s=1.0)


class Starts(MemoryMeter):
    """Every request has noise of its own. ``slow``: by the engine's key, factor of its times from the promotion on;
    ``foreign``: tokens of users in each block then; ``fault``: what is raised then."""

    def __init__(self, world, seed, slow, foreign=0, fault=None):
        super().__init__(world)
        self.noise, self.slow, self.foreign, self.fault = random.Random(seed), slow, foreign, fault

    def send(self, endpoint, order):
        key, disk = endpoint.base_url.removeprefix("http://"), self._world.disk
        promoted = disk.text == CANDIDATE_TEXT
        if promoted and self.fault:
            raise self.fault
        sent = super().send(endpoint, order)
        factor = self.slow.get(key, 1.0) if promoted else 1.0
        requests = tuple(
            replace(
                r, gaps_s=tuple(factor * self.noise.lognormvariate(0, 0.05) * g for g in r.gaps_s)
            )
            for r in sent.result.requests
        )
        duration = sum(r.ttft_s + sum(r.gaps_s) for r in requests)
        result = replace(sent.result, requests=requests, duration_s=duration)
        tokens = (sent.after.generation_tokens or 0) + (self.foreign if promoted else 0)
        return replace(sent, result=result, after=replace(sent.after, generation_tokens=tokens))


def world(seed=1, slow=None, prompts=PROMPTS, **faults):
    memory = guard(RollingWorld(FASTER, RollingDisk()))
    memory.disk.records["workload-1", "workload"] = WORKLOAD.to_record()
    return metered(memory, seed, slow, prompts, **faults)


def metered(memory, seed=1, slow=None, prompts=PROMPTS, **faults):
    meter = Starts(memory, seed, slow or {}, **faults)
    memory.context = replace(memory.context, meter=meter, prompts={"edits": prompts})
    return memory


def promoted(memory, **changes):
    planned = plan(Strategy.SIDE_BY_SIDE, policy=FEW, **changes)
    operation = runner.run(memory.context, runner.open_plan(memory.context, planned))
    assert operation.ending is Ending.PROMOTED
    return operation


def confirmation(operation):
    return operation.result("confirm", Confirmation)


def said(memory):
    (line,) = [line for line in memory.progress.lines if line.startswith("the engine that serves")]
    return line


@pytest.mark.parametrize("seed", range(10))
def test_a_second_start_1_3_times_slower_is_named_with_the_way_on(seed):
    memory = world(seed, {SERVES: 1.3})
    operation = promoted(memory)
    gap = confirmation(operation).gap
    assert gap.slow
    assert 1.2 < gap.ratio.value < 1.4
    assert "another start, is slower than the candidate that was measured" in said(memory)
    assert "mpctl restart" in said(memory)
    record = operation_record(operation, None)["status"]["secondStart"]
    assert record["gap"]["slow"]
    assert record["gap"]["ratio"]["value"] == pytest.approx(gap.ratio.value, rel=1e-5)


@pytest.mark.parametrize("seed", range(10))
def test_an_equal_second_start_is_not_named(seed):
    memory = world(seed)
    assert not confirmation(promoted(memory)).gap.slow
    assert "as fast as the candidate that was measured" in said(memory)
    assert "restart" not in said(memory)


def test_a_slower_machine_is_no_slower_start_where_the_baseline_is_retained():
    beside = {"keep_baseline": True, "route": ROUTE}
    drifted = {SERVES: 1.3, BESIDE: 1.3}
    gap = confirmation(promoted(world(slow=drifted), **beside)).gap
    assert gap.paired
    assert not gap.slow
    assert confirmation(promoted(world(slow={SERVES: 1.3}), **beside)).gap.slow


def test_nothing_of_it_is_part_of_what_the_gate_judged():
    memory = world(slow={SERVES: 1.3})
    promoted(memory)
    blocks = [name for _, name in memory.disk.records if name.startswith("block-")]
    assert len(blocks) == len({*blocks}) <= 2 * WORKLOAD.repeats
    salts = {salt for manifest, salt in memory.context.meter.salts if manifest == CANDIDATE_TEXT}
    assert len(salts) == 2  # the engine that serves shares no cached prefix with the measurement


@pytest.mark.parametrize(
    ("changes", "faults", "reason"),
    [
        ({"placement": Placement.PAIR, "users": USERS}, {}, "users load the engine"),
        ({}, {"foreign": 1000}, "users sent requests meanwhile"),
        ({}, {"fault": MpctlError("the load client stopped")}, "the load client stopped"),
        ({}, {"fault": OSError("no route to host")}, "no route to host"),
    ],
)
def test_where_it_cannot_be_done_one_note_says_why_and_the_promotion_stands(
    changes, faults, reason
):
    memory = world(slow={SERVES: 1.3}, **faults)
    if changes:  # a copy of the arm that serves is not modelled
        memory.context.platform.state = with_copies(memory.context.platform.state)
    operation = promoted(memory, **changes)
    assert confirmation(operation).gap is None
    assert said(memory) == f"the engine that serves is not confirmed: {reason}"


def with_copies(state):
    return lambda arm: state(replace(arm, copy=False))


def test_few_measured_rounds_confirm_nothing():
    memory = world()
    memory.disk.records["workload-1", "workload"] = replace(WORKLOAD, repeats=3).to_record()
    promoted(memory)
    assert "fewer than 3 measured rounds count" in said(memory)


def test_an_engine_that_is_many_times_slower_is_named_when_the_time_is_over():
    memory = world(slow={SERVES: 20.0})
    result = confirmation(promoted(memory))
    assert result.gap.slow
    assert "; cut after 3 times the measured time; " in result.text


def test_died_in_it_and_resumed_it_is_repeated_with_prompts_and_left_out_without():
    memory = world(slow={SERVES: 1.3})
    memory.watch = lambda where: (
        memory.die_at(len(memory.trail))
        if where == "before run" and memory.disk.text == CANDIDATE_TEXT
        else None
    )
    with pytest.raises(Crash):
        promoted(memory)
    again = metered(memory.again(), slow={SERVES: 1.3})
    assert confirmation(runner.run(again.context, again.unfinished())).gap.slow
    bare = metered(memory.again(), slow={SERVES: 1.3}, prompts=())
    assert confirmation(runner.run(bare.context, bare.unfinished())).gap is None
    assert said(bare).endswith("prompts of edits are not at hand, and no record keeps them")
