"""The greedy answers of the rounds themselves: compared by token ids between rounds, and scored by the baseline."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from world import (
    BASELINE_TEXT,
    CANDIDATE_TEXT,
    FASTER,
    PROMPTS,
    TOKENS,
    WORKLOAD,
    Behaviour,
    Crash,
    MemoryWorld,
    cycled,
    plan,
)

from mpctl.experiment.answer_sets import FULL, OFF, QUICK
from mpctl.experiment.answers import AnswerCheck, Scored
from mpctl.experiment.prompt_files import Chat
from mpctl.experiment.users import Placement
from mpctl.experiment.workload import Traffic
from mpctl.gate.rule import Outcome
from mpctl.methods import Spec
from mpctl.rollout import runner
from mpctl.rollout.operation import Ending
from mpctl.rollout.plan import Strategy
from mpctl.rollout.steps.measure import verdict_of

RIGHT = cycled(Behaviour().tokens, TOKENS)
OTHER = (5, 99, *RIGHT[2:])
BESIDE = {"strategy": Strategy.SIDE_BY_SIDE}


class Rounds:
    """A world whose candidate answers every ``every``-th request of its rounds otherwise, and a pass right."""

    def __init__(self, *, every=1, ids=OTHER, text="other", margin=12.0, told=True):
        self.memory, self.answered, self.margin = MemoryWorld(FASTER), 0, margin
        self._every, self._ids, self._text, self._told = every, ids, text, told
        self._send, self._ask = self.memory.meter.send, self.memory.meter.ask
        self.memory.meter.send, self.memory.meter.ask, self.memory.meter.score = (
            self.send,
            self.ask,
            self.score,
        )
        self.scored = 0

    def send(self, endpoint, order):
        sent = self._send(endpoint, order)
        changes = [{} for _ in order.prompts]
        if order.token_ids and self._of_candidate(endpoint):
            for number in range(len(order.prompts)):
                self.answered += 1
                if self.answered % self._every == 0:
                    changes[number] = {
                        "prompt_ids": (1, 2),
                        "ids": tuple(self._ids),
                        "text": self._text,
                    }
        if not self._told:
            changes = [{**change, "prompt_ids": (), "ids": ()} for change in changes]
        requests = tuple(
            replace(request, **change)
            for request, change in zip(sent.result.requests, changes, strict=True)
        )
        return replace(sent, result=replace(sent.result, requests=requests))

    def ask(self, endpoint, asks, *, concurrency, **options):
        answers = self._ask(endpoint, asks, concurrency=concurrency, **options)
        if concurrency == 1 and self._of_candidate(endpoint):  # sent again alone
            return tuple(
                replace(answer, ids=self._ids, text=self._text, logprobs=(), best=())
                for answer in answers
            )
        return answers

    def score(self, endpoint, answers, **options):
        assert not self._of_candidate(endpoint)
        self.scored += len(answers)
        rows = []
        for answer in answers:
            right = cycled(Behaviour().tokens, len(answer.ids))
            owns = tuple(
                0.0 if a == b else -self.margin for a, b in zip(answer.ids, right, strict=True)
            )
            rows.append(Scored(owns, tuple((0.0, -12.0) for _ in owns), right))
        return tuple(rows)

    def _of_candidate(self, endpoint):
        return (
            self.memory.disk.engines[endpoint.base_url.removeprefix("http://")].manifest
            == CANDIDATE_TEXT
        )

    def rollout(self, *, fidelity=QUICK, strategy=Strategy.SIDE_BY_SIDE, **changes):
        planned = plan(strategy, fidelity=fidelity, **changes)
        return runner.run(self.memory.context, runner.open_plan(self.memory.context, planned))

    def check(self, operation):
        return AnswerCheck.from_record(self.memory.disk.records[operation.id, "answers-rounds"])


def outputs(operation):
    return next(rule for rule in verdict_of(operation).rules if rule.rule == "outputs")


@pytest.mark.parametrize(
    "changes", [BESIDE, {**BESIDE, "placement": Placement.TURNS}], ids=["together", "in turns"]
)
def test_a_wrong_token_of_a_round_refuses(changes):
    """The pass before the rounds met none of it."""
    world = Rounds(every=3)
    done = world.rollout(**changes)
    assert done.ending is Ending.REJECTED
    assert outputs(done).outcome is Outcome.FAIL
    assert "position 1, token 99 for 6, 12.0 nats" in outputs(done).message
    alone = changes.get("placement") is not Placement.TURNS
    assert ("it reproduces" in outputs(done).message) is alone


@pytest.mark.parametrize(("margin", "ending"), [(12.0, Ending.REJECTED), (0.3, Ending.PROMOTED)])
def test_the_first_token_that_differs_under_a_grammar_is_judged(margin, ending):
    world = Rounds(every=3, margin=margin)
    schema = {"response_format": {"type": "json_object"}}
    prompts = tuple(
        Chat.of({"messages": [{"role": "user", "content": p}], **schema}) for p in PROMPTS
    )
    world.memory.disk.records["workload-1", "workload"] = replace(
        WORKLOAD, traffic=(Traffic("own", prompts),)
    ).to_record()
    world.memory.context = replace(world.memory.context, prompts={"own": prompts})
    done = world.rollout()
    assert done.ending is ending
    assert ("the first token that differs is far from a tie" in outputs(done).message) is (
        ending is Ending.REJECTED
    )


def test_a_tie_is_none():
    world = Rounds(every=2, margin=0.3)
    done = world.rollout()
    assert done.ending is Ending.PROMOTED
    assert "differ by a tie" in outputs(done).message
    assert world.check(done).tied and not world.check(done).findings


def test_equal_tokens_with_another_text_refuse():
    done = Rounds(every=4, ids=RIGHT).rollout()
    assert done.ending is Ending.REJECTED
    assert "of the same tokens" in outputs(done).message


def test_equal_answers_cost_no_request():
    world = Rounds(every=10_000)
    before = world.rollout()
    passed = AnswerCheck.from_record(world.memory.disk.records[before.id, "answers"])
    check = world.check(before)
    assert before.ending is Ending.PROMOTED
    assert check.equal == check.requests and not check.scored and world.scored == passed.scored


@pytest.mark.parametrize(("fidelity", "every_answer"), [(QUICK, False), (FULL, True)])
def test_a_quick_measurement_scores_few_of_many_ties(fidelity, every_answer):
    world = Rounds(margin=0.3)
    many = replace(WORKLOAD, repeats=12, reuse=True)
    world.memory.disk.records["workload-1", "workload"] = many.to_record()
    done = world.rollout(fidelity=fidelity)
    check = world.check(done)
    assert check.requests == check.tied + check.unscored
    assert (check.unscored == 0) is every_answer
    if not every_answer:
        assert check.scored <= 4 + check.requests * 2 // 20
        assert f"{check.unscored} differ and were not scored" in outputs(done).message
    assert outputs(done).outcome is Outcome.PASS


def test_in_place_equal_answers_pass_and_others_say_that_the_baseline_left():
    for world, outcome in ((Rounds(every=10_000), Outcome.PASS), (Rounds(every=3), Outcome.SKIP)):
        done = world.rollout(strategy=Strategy.IN_PLACE)
        assert done.ending is Ending.PROMOTED
        assert outputs(done).outcome is outcome
    assert "the baseline had left the GPU" in outputs(done).message


def test_an_engine_whose_scores_are_of_other_tokens_is_not_asked_for_any():
    world = Rounds(every=3)
    done = world.rollout(baseline_spec=Spec("mtp", {"num_speculative_tokens": 1}))
    assert world.scored == 0
    rules = {rule.rule: rule for rule in verdict_of(done).rules}
    for name in ("outputs", "chosen tokens"):
        assert rules[name].outcome is Outcome.SKIP and "vllm #53488" in rules[name].message
    assert done.ending is Ending.PROMOTED


def test_texts_are_tokenized_where_the_client_gets_no_ids(monkeypatch):
    """One end token more than the text has is usual."""
    world = Rounds(every=3, told=False)
    words = {"other": OTHER}
    asked = []

    def tokenize(endpoint, asks, answers, *, concurrency):
        asked.extend(answer.text for answer in answers)
        return tuple(
            replace(answer, prompt_ids=(1, 2), ids=words.get(answer.text, RIGHT), tokenized=True)
            for answer in answers
        )

    monkeypatch.setattr(world.memory.meter, "tokenize", tokenize)
    done = world.rollout()
    assert "other" in asked
    assert done.ending is Ending.REJECTED
    assert "token 99 for 6" in outputs(done).message and "equal texts" in outputs(done).message


def test_nothing_is_compared_where_it_is_off():
    world = Rounds(every=3)
    done = world.rollout(fidelity=OFF)
    assert not world.answered and not world.scored
    assert (done.id, "answers-rounds") not in world.memory.disk.records


def test_no_record_or_line_holds_an_answer_or_its_tokens():
    world = Rounds(every=3, text="the user's own words", ids=(5, 314159, *RIGHT[2:]))
    done = world.rollout()
    records = {
        key: record
        for key, record in world.memory.disk.records.items()
        if key != (done.id, "answers-rounds")
    }
    kept = json.dumps(list(records.values()))
    lines = "\n".join(
        [*world.memory.progress.lines, *(e.to_line() for e in world.memory.disk.ledger)]
    )
    assert "the user's own words" not in kept + lines
    assert "token_ids" not in kept
    ids = json.dumps(list(RIGHT))
    assert ids not in kept and ids not in json.dumps(
        world.memory.disk.records[done.id, "answers-rounds"]
    )


def test_a_resumed_command_compares_what_it_still_has():
    """Ids of a block that an interrupted command measured are gone; its texts are known by digest."""
    memory = MemoryWorld({BASELINE_TEXT: Behaviour(), CANDIDATE_TEXT: FASTER[CANDIDATE_TEXT]})
    memory.die_at(60)
    planned = plan(Strategy.SIDE_BY_SIDE, fidelity=QUICK)
    with pytest.raises(Crash):
        runner.run(memory.context, runner.open_plan(memory.context, planned))
    again = memory.again()
    done = runner.run(again.context, again.unfinished())
    assert done.ending is Ending.PROMOTED
    assert outputs(done).outcome is Outcome.PASS


@pytest.mark.parametrize(("count", "outcome"), [(TOKENS, Outcome.PASS), (8, Outcome.UNDECIDED)])
def test_usage_records_of_sampled_answers_are_compared_with_their_token_ids(count, outcome):
    """The engine's counter agrees with usage in both cases."""
    world = Rounds(ids=RIGHT[:count])
    world.memory.disk.records["workload-1", "workload"] = replace(
        WORKLOAD, temperatures=(0.7,)
    ).to_record()
    done = world.rollout()
    rule = next(rule for rule in verdict_of(done).rules if rule.rule == "comparable")
    assert rule.outcome is outcome
    assert (done.ending is Ending.PROMOTED) == (outcome is Outcome.PASS)
    assert ("as many token ids have 25% more" in rule.message) == (outcome is Outcome.UNDECIDED)
