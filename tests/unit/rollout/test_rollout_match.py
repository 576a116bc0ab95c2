"""The warm-up check as a step: a draft that does not fit stops the rollout, and the service comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from world import BASELINE_TEXT, CANDIDATE_TEXT, FASTER, Behaviour, Crash, MemoryWorld, plan

from mpctl.methods import Spec
from mpctl.rollout import runner
from mpctl.rollout.ledger import Event
from mpctl.rollout.operation import Ending
from mpctl.rollout.plan import Strategy
from mpctl.rollout.ports import Arm, Phase

both = pytest.mark.parametrize("strategy", list(Strategy))
FITS, WRONG, BARELY = (60, 45), (200, 3), (60, 15)

EAGLE3 = Spec("eagle3", {"num_speculative_tokens": 3, "model": "/models/head"})


class Drafting(MemoryWorld):
    """A world whose candidate drafts so often per answer, with so many first tokens accepted."""

    def __init__(self, each, behaviours=FASTER, disk=None):
        super().__init__(behaviours, disk)
        self.each = each
        real = self.meter.run

        def run(endpoint, *asked):
            result = real(endpoint, *asked)
            arm_id = endpoint.base_url.removeprefix("http://")
            engine = self.disk.engines[arm_id]
            if engine.manifest == CANDIDATE_TEXT:
                count = len(result.requests)
                self.disk.engines[arm_id] = replace(
                    engine, counters=self._drafted(engine.counters, count)
                )
            return result

        self.meter.run = run

    def _drafted(self, counters, answers):
        drafts, accepted = (
            (engine_total or 0.0) for engine_total in self.disk.failed.get("drafted", (0.0, 0.0))
        )
        drafts, accepted = drafts + self.each[0] * answers, accepted + self.each[1] * answers
        self.disk.failed["drafted"] = (drafts, accepted)
        return replace(
            counters,
            generation_tokens=(counters.generation_tokens or 0.0) + 300.0 * answers,
            drafts=drafts,
            draft_tokens=2 * drafts,
            accepted=accepted,
            per_position=(accepted,),
        )

    def again(self):
        return Drafting(self.each, self.behaviours, self.disk.copy())


def eagle(strategy):
    return plan(strategy, spec=EAGLE3, draft="/models/head", target_model="/models/target")


def rollout(memory, strategy):
    return runner.run(memory.context, runner.open_plan(memory.context, eagle(strategy)))


def entry(memory, event, step):
    return next(e for e in memory.disk.ledger if e.event is event and e.step == step)


@both
def test_a_mismatched_draft_stops_the_rollout_and_the_service_comes_back(strategy):
    memory = Drafting(WRONG)
    done = rollout(memory, strategy)
    assert done.ending is Ending.FAILED
    for name in (
        "draft /models/head does not match target /models/target",
        "1.5% of 1800 drafts",
        "at least 30%",
        "likely causes",
    ):
        assert name in done.detail
    assert memory.disk.text == BASELINE_TEXT
    assert {i: e.phase for i, e in memory.disk.engines.items()} == {
        Arm(BASELINE_TEXT).id: Phase.READY
    }
    assert memory.endings() == ["failed", "rolled back"]
    assert "1.5% of 1800 drafts" in entry(memory, Event.FAILED, "match").data["reason"]


@both
def test_a_draft_that_fits_is_recorded_and_measured(strategy):
    memory = Drafting(FITS)
    rollout(memory, strategy)
    data = entry(memory, Event.DONE, "match").data
    assert data == {
        "drafts": 60,
        "accepted": 45,
        "rate": 0.75,
        "limit": 0.3,
        "outcome": "pass",
        "prompts": 1,
    }


@both
def test_a_draft_in_doubt_is_left_to_the_measurement(strategy):
    memory = Drafting(BARELY)
    rollout(memory, strategy)
    assert entry(memory, Event.DONE, "match").data["outcome"] == "undecided"
    assert any("the measurement decides" in line for line in memory.progress.lines)


def test_only_warm_up_prompts_are_sent_before_the_measurement():
    memory = Drafting(FITS)
    seen = []
    memory.watch = lambda where: seen.append(tuple(memory.meter.sent))
    rollout(memory, Strategy.SIDE_BY_SIDE)
    prompts = [prompt for manifest, prompt in memory.meter.sent if manifest == CANDIDATE_TEXT]
    assert prompts[0] == prompts[1]  # the check's warm-up, then the measurement's own
    assert len(prompts[1:]) == len(set(prompts[1:]))


@both
def test_without_weights_of_its_own_there_is_no_such_step(strategy):
    memory = MemoryWorld(FASTER)
    runner.run(memory.context, runner.open_plan(memory.context, plan(strategy)))
    assert "match" not in {e.step for e in memory.disk.ledger}


@both
def test_an_engine_without_counters_is_left_to_the_gate(strategy):
    memory = MemoryWorld({**FASTER, CANDIDATE_TEXT: Behaviour()})
    done = rollout(memory, strategy)
    assert entry(memory, Event.DONE, "match").data["outcome"] == "missing"
    assert done.ending is not Ending.PROMOTED


@both
@pytest.mark.parametrize("each", [FITS, WRONG])
def test_died_at_every_boundary_of_the_check_it_ends_the_same(strategy, each):
    undisturbed = Drafting(each)
    rollout(undisturbed, strategy)
    trail = undisturbed.trail
    ready = trail.index("complete")
    for boundary in range(ready, min(ready + 16, len(trail))):
        memory = Drafting(each)
        memory.die_at(boundary)
        with pytest.raises(Crash):
            rollout(memory, strategy)
        again = memory.again()
        runner.run(again.context, again.unfinished())
        endings = [op.ending.value for op in again.operations() if op.plan.kind.value == "rollout"]
        assert endings == [undisturbed.operations()[0].ending.value]
        assert again.disk.text == undisturbed.disk.text
        again.check_ledger()
