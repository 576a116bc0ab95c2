"""Requests of a pass of answers: the same for both arms, and none of them a measured prompt."""

import json
import unicodedata
from collections import Counter
from dataclasses import replace

import pytest

from mpctl.experiment.answer_sets import FULL, QUICK, asks_of
from mpctl.experiment.prompt_files import Chat
from mpctl.experiment.workload import Traffic, Workload

CONTEXT = 8192
WORKLOAD = Workload(
    (
        Traffic("a", tuple(f"a{n}" for n in range(40))),
        Traffic("b", tuple(f"b{n}" for n in range(10))),
    ),
    repeats=2,
    requests=4,
    warmup=2,
)


def said(ask):
    return "\n".join(message["content"] for message in ask.body["messages"])


@pytest.mark.parametrize("fidelity", [QUICK, FULL])
def test_both_arms_and_a_resumed_command_get_the_same_requests(fidelity):
    assert asks_of(WORKLOAD, fidelity, context_tokens=CONTEXT) == asks_of(
        WORKLOAD, fidelity, context_tokens=CONTEXT
    )


def quick_asks():
    return asks_of(WORKLOAD, QUICK, context_tokens=CONTEXT)


def test_a_quick_pass_calls_tools_as_often_as_a_fault_of_one_call_in_ten_needs():
    calls = [ask for ask in quick_asks() if ask.kind == "tools"]
    assert 1 - 0.9 ** len(calls) > 0.8
    assert Counter(ask.stream for ask in calls) == {True: 10, False: 10}
    assert len({ask.digest for ask in calls}) == 10  # each is asked streamed and not
    thoughtless = [ask for ask in calls if "chat_template_kwargs" in ask.body]
    assert {ask.stream for ask in thoughtless} == {True, False} and len(thoughtless) == 10


def test_a_quick_pass_has_one_request_of_what_one_is_enough_to_find():
    asks = quick_asks()
    assert sum("seed" in ask.body for ask in asks) == sum(ask.top_p < 1 for ask in asks) == 1
    assert not [ask for ask in asks if ask.greedy and ("seed" in ask.body or ask.top_p < 1)]
    sampled = Counter(ask.digest for ask in asks if not ask.greedy and ask.top_p == 1)
    assert sorted(sampled.values()) == [1, 3, 3]


def test_a_quick_pass_asks_users_prompts_longer_and_in_several_scripts():
    asks = quick_asks()
    assert {said(ask): ask.max_tokens for ask in asks if ask.kind == "own"} == {"a0": 96, "b0": 96}
    copied = [said(ask) for ask in asks if ask.kind == "language"]
    scripts = {unicodedata.name(text[0]).split()[0] for text in copied}
    assert scripts == {"CJK", "ARABIC", "DEVANAGARI", "CYRILLIC"}


def test_a_quick_pass_at_16_at_once_takes_no_more_steps_than_14_requests_4_at_once():
    asks = quick_asks()
    typical = {"tools": 40, "json": 30}  # a document ends before its limit
    tokens = sum(typical.get(ask.kind, ask.max_tokens) for ask in asks)
    assert max(tokens / 16, *(ask.max_tokens for ask in asks)) <= 14 * 50 / 4


def test_a_full_pass_has_as_many_of_a_kind_as_its_faults_need():
    kinds = Counter(ask.kind for ask in asks_of(WORKLOAD, FULL, context_tokens=CONTEXT))
    assert kinds["tools"] >= 48 and kinds["json"] >= 32 and kinds["prose"] >= 32


def test_no_measured_prompt_is_asked():
    measured = {
        p for cell in WORKLOAD.cells for repeat in range(2) for p in WORKLOAD.slice(cell, repeat)
    }
    asked = {said(ask) for ask in asks_of(WORKLOAD, FULL, context_tokens=CONTEXT)}
    assert not measured & asked
    assert {"a0", "b0"} <= asked


def test_a_users_own_tools_come_with_their_prompt():
    tools = [{"type": "function", "function": {"name": "look"}}]
    messages = [{"role": "user", "content": "m"}]
    chat = Chat.of({"messages": messages, "tools": tools})
    workload = replace(WORKLOAD, traffic=(Traffic("a", (chat, *WORKLOAD.traffic[0].prompts)),))
    asks = asks_of(workload, QUICK, context_tokens=CONTEXT)
    assert {"messages": messages, "tools": tools} in [ask.body for ask in asks]


@pytest.mark.parametrize("fidelity", [QUICK, FULL])
def test_the_first_turn_of_every_session_is_asked_again_when_all_others_were(fidelity):
    asks = asks_of(WORKLOAD, fidelity, context_tokens=CONTEXT)
    turns = [ask for ask in asks if ask.kind == "session"]
    prefixes = Counter(ask.body["messages"][0]["content"] for ask in turns)
    assert min(prefixes.values()) >= 3
    last = asks[-len(prefixes) :]
    assert all(Counter(map(said, turns))[said(ask)] == 2 for ask in last)
    assert len({said(ask) for ask in last}) == len(prefixes)


def test_no_prompt_is_longer_than_the_context():
    for context in (1024, 2048, 40_000):
        asks = asks_of(WORKLOAD, FULL, context_tokens=context)
        assert max(len(said(ask)) for ask in asks) < context


def test_the_wanted_call_stands_in_the_prompt_and_suits_its_tool():
    calls = [ask for ask in asks_of(WORKLOAD, FULL, context_tokens=CONTEXT) if ask.kind == "tools"]
    for ask in calls:
        schemas = {
            tool["function"]["name"]: tool["function"]["parameters"] for tool in ask.body["tools"]
        }
        for line in said(ask).splitlines()[1:]:
            name, _, arguments = line.partition(" ")
            assert list(json.loads(arguments)) == schemas[name]["required"]
    assert {len(ask.body["tools"]) for ask in calls} == {1, 2, 3, 4}
    assert {True, False} == {ask.stream for ask in calls}
    assert len({json.dumps(ask.body["tool_choice"]) for ask in calls}) > 3


def test_prose_is_sampled_from_the_models_whole_law_and_a_part_of_it_from_its_nucleus():
    prose = [
        ask
        for ask in asks_of(WORKLOAD, FULL, context_tokens=CONTEXT)
        if ask.kind in ("prose", "same")
    ]
    assert Counter((ask.temperature, ask.top_p) for ask in prose if ask.kind == "prose") == {
        (1, 1): 24,
        (1, 0.5): 8,
    }
    assert {(ask.temperature, ask.top_p) for ask in prose if ask.kind == "same"} == {(1.0, 1.0)}
    assert set(Counter(said(ask) for ask in prose if ask.kind == "same").values()) == {4}


def test_a_service_that_samples_is_asked_at_its_own_temperature():
    prompts = Traffic("a", tuple(f"a{n}" for n in range(60)))
    sampling = replace(WORKLOAD, traffic=(prompts,), temperatures=(0.0, 0.7))
    warm = [
        ask for ask in asks_of(sampling, FULL, context_tokens=CONTEXT) if ask.temperature == 0.7
    ]
    assert {ask.kind for ask in warm} == {"own"} and len(warm) >= 10
