"""The pass of answers as steps: asked before any speed, scored by the baseline, and recorded without texts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rolling import RollingWorld, guard
from test_rollout_traffic import check as left_clean
from test_rollout_traffic import wanted
from world import (
    BASELINE_TEXT,
    CANDIDATE_TEXT,
    FASTER,
    WORKLOAD,
    Behaviour,
    Crash,
    MemoryWorld,
    plan,
)

from mpctl.experiment.answer_sets import QUICK, SENTINELS, asks_of, sentinels_of
from mpctl.experiment.answers import Answer, AnswerCheck, Level
from mpctl.experiment.prompt_files import Chat
from mpctl.experiment.users import Placement
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome
from mpctl.rollout import runner
from mpctl.rollout.operation import Ending
from mpctl.rollout.plan import Strategy
from mpctl.rollout.ports import Phase
from mpctl.rollout.steps.answers import RestartAnswers
from mpctl.rollout.steps.measure import AnswersResult, verdict_of, workload_of
from mpctl.watch.sentinel import Sentinels, prefix_digest

WRONG = {
    BASELINE_TEXT: Behaviour(),
    CANDIDATE_TEXT: Behaviour(seconds=0.05, speculates=True, tokens=(5, 8, 7, 8, 9, 10, 11, 12)),
}
both = pytest.mark.parametrize("strategy", list(Strategy))


def rollout(memory, strategy, **changes):
    return runner.run(
        memory.context, runner.open_plan(memory.context, plan(strategy, fidelity=QUICK, **changes))
    )


def count(memory, operation):
    return len(asks_of(workload_of(memory.context, operation), QUICK, context_tokens=4096))


@both
def test_both_arms_answer_before_the_candidate_is_measured(strategy):
    memory = MemoryWorld(FASTER)
    done = rollout(memory, strategy)
    requests = count(memory, done)
    assert memory.meter.asked == [(BASELINE_TEXT, requests, 24), (CANDIDATE_TEXT, requests, 24)]
    answered = done.result("answers", AnswersResult)
    assert (answered.requests, answered.level, answered.verdict) == (requests, Level.IDS, None)
    steps = list(done.done)
    assert steps.index("answers") < steps.index(
        "measure" if "measure" in steps else "measure-candidate"
    )
    check = AnswerCheck.from_record(memory.disk.records[done.id, "answers"])
    assert check.requests == requests and not check.findings


def calls_of(memory, monkeypatch, *names):
    """The meter's calls of these names, as a rollout side by side makes them."""
    calls = []
    for name in names:
        call = getattr(memory.meter, name)
        monkeypatch.setattr(
            memory.meter,
            name,
            lambda *a, name=name, call=call, **k: calls.append(name) or call(*a, **k),
        )
    rollout(memory, Strategy.SIDE_BY_SIDE)
    return calls


def test_conditions_are_read_before_the_pass_adds_to_what_an_engine_has_generated(monkeypatch):
    """Suffix decoding remembers what it answered: the answers of the pass counted as earlier ones of the candidate."""
    calls = calls_of(MemoryWorld(FASTER), monkeypatch, "describe", "ask")
    assert calls == ["describe"] * 2 + [
        "ask",
        "describe",
        "ask",
    ]  # once more for the length of its context


def test_the_baseline_answers_while_the_candidate_starts(monkeypatch):
    assert calls_of(MemoryWorld(FASTER), monkeypatch, "ask", "complete")[:3] == [
        "ask",
        "complete",
        "ask",
    ]


def test_only_the_baseline_scores(monkeypatch):
    memory = MemoryWorld(WRONG)
    rollout(memory, Strategy.SIDE_BY_SIDE)
    assert {manifest for manifest, _, _ in memory.meter.scored} == {BASELINE_TEXT}


@pytest.mark.parametrize(("behaviours", "differ"), [(FASTER, False), (WRONG, True)])
def test_a_grammars_answers_of_the_baseline_are_scored_only_where_the_candidates_differ(
    behaviours, differ
):
    memory = MemoryWorld(behaviours)
    done = rollout(memory, Strategy.SIDE_BY_SIDE)
    asks = asks_of(workload_of(memory.context, done), QUICK, context_tokens=4096)
    under_grammar = sum(ask.greedy and ask.reshaped for ask in asks)
    plain, *later = [count for _, count, _ in memory.meter.scored]
    assert plain == sum(ask.greedy for ask in asks) - under_grammar
    assert (under_grammar in later) is differ


@pytest.mark.parametrize("argument", ["--enable-lora", "--lora-modules=sql=org/sql"])
def test_an_engine_with_lora_never_scores(monkeypatch, argument):
    """vLLM #29955: it dies of the request, with its users'."""
    memory = MemoryWorld(WRONG)
    state = memory.context.platform.state

    def with_lora(arm):
        seen = state(arm)
        return seen if seen.argv is None else replace(seen, argv=(*seen.argv, argument))

    monkeypatch.setattr(memory.context.platform, "state", with_lora)
    rollout(memory, Strategy.SIDE_BY_SIDE)
    assert memory.meter.asked and not memory.meter.scored


def test_an_answer_is_scored_behind_the_prompt_that_the_baseline_read(monkeypatch):
    """A gateway that returns the whole answer of another request returns its prompt ids as well."""
    memory, prompts = MemoryWorld(WRONG), set()
    ask, score = memory.meter.ask, memory.meter.score

    def other_prompt(endpoint, asks, **options):
        answers = ask(endpoint, asks, **options)
        return tuple(
            replace(answer, prompt_ids=(3,)) if answer.ids == (5, 8, 7) else answer
            for answer in answers
        )

    def noted(endpoint, answers, **options):
        prompts.update(answer.prompt_ids for answer in answers)
        return score(endpoint, answers, **options)

    monkeypatch.setattr(memory.meter, "ask", other_prompt)
    monkeypatch.setattr(memory.meter, "score", noted)
    assert rollout(memory, Strategy.SIDE_BY_SIDE).ending is Ending.REJECTED
    assert prompts == {(1, 2)}


def test_a_pass_that_is_off_sends_nothing():
    memory = MemoryWorld(FASTER)
    done = runner.run(memory.context, runner.open_plan(memory.context, plan(Strategy.SIDE_BY_SIDE)))
    assert not memory.meter.asked and "answers" not in done.done
    assert done.ending is Ending.PROMOTED


@both
def test_wrong_answers_are_refused_before_any_speed_and_the_service_comes_back(strategy):
    memory = MemoryWorld(WRONG)
    done = rollout(memory, strategy)
    assert done.ending is Ending.REJECTED
    assert "judge" not in done.done
    assert not [prompt for manifest, prompt in memory.meter.sent if manifest == CANDIDATE_TEXT]
    assert memory.disk.text == BASELINE_TEXT and len(memory.disk.engines) == 1
    assert memory.endings() == ["rejected", "rolled back"]


@both
def test_a_killed_pass_is_asked_again_or_says_that_it_could_not_be(strategy):
    whole = MemoryWorld(FASTER)
    rollout(whole, strategy)
    for boundary in range(1, len(whole.trail) + 1):
        memory = MemoryWorld(FASTER)
        memory.die_at(boundary)
        with pytest.raises(Crash):
            rollout(memory, strategy)
        if memory.unfinished() is None:
            continue
        again = memory.again()
        done = runner.run(again.context, again.unfinished())
        ended = again.operations()[0]
        assert ended.ending in (Ending.PROMOTED, Ending.UNDECIDED), boundary
        if strategy is Strategy.SIDE_BY_SIDE:
            assert ended.ending is Ending.PROMOTED, (boundary, done.detail)


@both
def test_sampled_traffic_is_decided_by_speed_also_where_the_baseline_has_left(strategy):
    """In place nothing can score what the candidate samples: the rule says so, and keeps no verdict open."""
    memory = MemoryWorld(FASTER)
    memory.disk.records["workload-1", "workload"] = replace(
        WORKLOAD, temperatures=(0.7,)
    ).to_record()
    done = rollout(memory, strategy)
    assert done.ending is Ending.PROMOTED
    law = next(rule for rule in verdict_of(done).rules if rule.rule == "sampled tokens")
    if strategy is Strategy.IN_PLACE:
        assert law.outcome is Outcome.SKIP and "the baseline had left the GPU" in law.message
    else:
        assert law.outcome is Outcome.PASS


def test_sampled_requests_are_asked_again_while_the_e_value_hints_at_a_fault(monkeypatch):
    memory = MemoryWorld(FASTER)
    monkeypatch.setattr(
        "mpctl.rollout.steps.answers.promises", lambda check: len(memory.meter.asked) < 6
    )
    done = rollout(memory, Strategy.SIDE_BY_SIDE)
    asks = asks_of(workload_of(memory.context, done), QUICK, context_tokens=4096)
    sampled = {ask.digest: ask for ask in asks if not ask.greedy}.values()
    again = sum(
        "seed" not in ask.body for ask in sampled
    )  # with a seed the answer would be the same
    assert again == len(sampled) - 1
    assert memory.meter.asked[2:] == [(BASELINE_TEXT, again, 24), (CANDIDATE_TEXT, again, 24)] * 2
    assert done.ending is Ending.PROMOTED


def test_arms_that_take_turns_answer_in_turns():
    memory = MemoryWorld(FASTER)
    done = rollout(memory, Strategy.SIDE_BY_SIDE, placement=Placement.TURNS)
    assert [manifest for manifest, _, _ in memory.meter.asked] == [
        BASELINE_TEXT,
        CANDIDATE_TEXT,
        CANDIDATE_TEXT,
    ]
    assert memory.meter.asked[-1] == (
        CANDIDATE_TEXT,
        SENTINELS,
        24,
    )  # started again for its promotion
    assert done.ending is Ending.PROMOTED


def test_a_kind_that_the_baseline_refuses_is_left_out_and_named(monkeypatch):
    memory = MemoryWorld(FASTER)
    ask = memory.meter.ask

    def refusing(endpoint, asks, **options):
        answers = ask(endpoint, asks, **options)
        return tuple(
            Answer(error="HTTP 400") if one.kind == "tools" else answer
            for one, answer in zip(asks, answers, strict=True)
        )

    memory.meter.ask = refusing
    done = rollout(memory, Strategy.SIDE_BY_SIDE)
    check = AnswerCheck.from_record(memory.disk.records[done.id, "answers"])
    assert check.skipped["tools"] == "the baseline answers HTTP 400"
    assert "tools" not in check.compared and done.ending is Ending.PROMOTED


def test_no_record_holds_an_answer_or_a_prompt():
    secret = "the user's own words"
    behaviours = {text: replace(behaviour, answer=secret) for text, behaviour in WRONG.items()}
    memory = MemoryWorld(behaviours)
    rollout(memory, Strategy.SIDE_BY_SIDE)
    kept = json.dumps([*memory.disk.records.values(), *(e.to_line() for e in memory.disk.ledger)])
    shown = "\n".join(memory.progress.lines)
    for text in (secret, "Call the tool", "Return this record"):
        assert text not in kept and text not in shown


def test_a_promotion_records_which_answers_no_rounding_changes():
    memory = MemoryWorld(FASTER)
    done = rollout(memory, Strategy.SIDE_BY_SIDE, engine={"image": "v0.32.0"})
    record = Sentinels.from_record(memory.disk.records[done.id, "sentinels"])
    assert record.engine == {"image": "v0.32.0"} and record.baseline and record.prefix == ""
    assert len(record.settled) == SENTINELS
    assert set(record.settled) < {ask.digest for ask in sentinels_of({})}
    assert memory.disk.sealed is None


SYSTEM = Chat.of(
    {"messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "a"}]}
)


def with_system_prompt(memory):
    """The first measured prompt has a system prompt."""
    prompts = {kind.name: (SYSTEM, *kind.prompts[1:]) for kind in WORKLOAD.traffic}
    traffic = tuple(replace(kind, prompts=prompts[kind.name]) for kind in WORKLOAD.traffic)
    memory.disk.records["workload-1", "workload"] = replace(WORKLOAD, traffic=traffic).to_record()
    memory.context = replace(memory.context, prompts=prompts)
    return memory


def test_the_system_prompt_of_sentinels_is_sealed_and_in_no_record():
    memory = with_system_prompt(MemoryWorld(FASTER))
    done = rollout(memory, Strategy.SIDE_BY_SIDE)
    assert memory.disk.sealed == {"messages": [{"role": "system", "content": "Be brief"}]}
    record = Sentinels.from_record(memory.disk.records[done.id, "sentinels"])
    assert record.prefix == prefix_digest(memory.disk.sealed)
    assert set(record.settled) < {ask.digest for ask in sentinels_of(memory.disk.sealed)}
    assert "Be brief" not in json.dumps([r for key, r in memory.disk.records.items()])
    assert "Be brief" not in "".join(entry.to_line() for entry in memory.disk.ledger)


def test_without_a_place_for_secrets_nothing_is_recorded_that_needs_one(monkeypatch):
    memory = with_system_prompt(MemoryWorld(FASTER))
    monkeypatch.setattr(memory.context.store, "seal", lambda value: False)
    done = rollout(memory, Strategy.SIDE_BY_SIDE)
    assert done.ending is Ending.PROMOTED
    assert (done.id, "sentinels") not in memory.disk.records
    assert any("Secret mpctl-sentinels" in line for line in memory.progress.lines)


def starting_again(memory, wrong):
    """A candidate whose next engine answers as many requests wrong."""
    ask, remaining = memory.meter.ask, [wrong]

    def another(endpoint, asks, **options):
        answers = ask(endpoint, asks, **options)
        if options["alternatives"]:
            return answers
        changed = []
        for answer in answers:
            changed.append(
                replace(answer, ids=(4, *answer.ids[1:])) if remaining[0] > 0 else answer
            )
            remaining[0] -= 1
        return tuple(changed)

    memory.meter.ask = another
    return memory


@pytest.mark.parametrize(
    ("wrong", "endings"), [(99, ["failed", "rolled back"]), (1, ["promoted"]), (0, ["promoted"])]
)
def test_pods_that_replace_the_measured_ones_must_answer_alike(wrong, endings):
    memory = starting_again(guard(RollingWorld(FASTER)), wrong)
    planned = wanted(traffic_steps=(), fidelity=QUICK)
    runner.run(memory.context, runner.open_plan(memory.context, planned))
    left_clean(memory, CANDIDATE_TEXT if endings == ["promoted"] else BASELINE_TEXT)
    assert memory.endings() == endings
    first = memory.operations()[0]
    if wrong == 99:
        assert "answers 3 of 3 requests otherwise" in first.detail
    else:
        assert first.result("answers-again", RestartAnswers) == RestartAnswers(SENTINELS)
        assert any("differed once" in line for line in memory.progress.lines) is bool(wrong)


def test_a_suspect_is_sent_again_alone_and_at_the_concurrency_of_the_pass():
    memory = MemoryWorld(WRONG)
    rollout(memory, Strategy.SIDE_BY_SIDE)
    assert [row[1:] for row in memory.meter.asked[2:]] == [(5, 1), (25, 24)] * 2


def test_what_needs_no_candidate_is_done_while_it_starts():
    """The untimed requests that both arms get go to the serving baseline meanwhile, and the client is calibrated."""
    memory, done = MemoryWorld(FASTER), []
    meter = memory.meter
    ask, calibrate = meter.ask, meter.calibrate

    def starts():
        return any(engine.phase is Phase.STARTING for engine in memory.disk.engines.values())

    def asked(endpoint, asks, **options):
        answers = ask(endpoint, asks, **options)
        done.append((meter.asked[-1][0], asks[0].kind, starts()))
        return answers

    def calibrated(concurrency):
        done.append(("", "calibration", starts()))
        return calibrate(concurrency)

    meter.ask, meter.calibrate = asked, calibrated
    policy = Policy(max_failed_excess=0.05)
    assert rollout(memory, Strategy.SIDE_BY_SIDE, policy=policy).ending is Ending.PROMOTED
    first, *later = [row for row in done if row[1] in ("burst", "calibration")]
    assert first == (BASELINE_TEXT, "burst", True)
    assert {row for row in later if row[0] != CANDIDATE_TEXT} == {first, ("", "calibration", True)}
    assert (CANDIDATE_TEXT, "burst", False) in later
