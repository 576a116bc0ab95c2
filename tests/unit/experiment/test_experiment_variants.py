"""Variants of a class: which prompts they get, at what length, and what their rounds cost."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.errors import InputError
from mpctl.experiment.prompt_files import Chat, body_of, built_in_prompts
from mpctl.experiment.variants import Variant, passages_of
from mpctl.experiment.workload import Traffic, Workload

EDITS = built_in_prompts("edits")[0]
CHAT_SET = built_in_prompts("chat")[0]


def divided(count, base=EDITS, name="edits", **settings):
    whole = Traffic(name, base)
    variants = [
        Variant(name, whole.digest(), part, count, **settings, adapter=f"a{part}")
        for part in range(count)
    ]
    return tuple(Traffic(v.name, v.prompts(base), variant=v) for v in variants)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"context": 8192}, "edits-8k"),
        ({"context": 300, "thinking": False}, "edits-300-direct"),
        ({"thinking": True, "adapter": "Team/SQL_lora-r16"}, "edits-thinking-team-sql-lora-rank16"),
    ],
)
def test_a_name_says_what_the_variant_is_and_names_a_class(settings, name):
    variant = Variant("edits", "", **settings)
    assert Traffic(variant.name, ("a",)).name == name


@given(st.integers(1, 6), st.sampled_from(["edits", "chat"]))
def test_variants_divide_the_prompts_of_their_class(count, name):
    base = built_in_prompts(name)[0]
    texts = [
        body_of(p)["messages"][0]["content"]
        for kind in divided(count, base, name)
        for p in kind.prompts
    ]
    assert sorted(texts) == sorted(base)


@pytest.mark.parametrize("base", [EDITS, CHAT_SET])
@pytest.mark.parametrize("characters", [3_000, 24_000, 100_000])
def test_a_long_prompt_ends_with_the_prompt_and_holds_no_passage_twice(base, characters):
    prompts = Variant("edits", "", parts=16, characters=characters).prompts(base)
    for number, prompt in enumerate(prompts):
        original = base[16 * number]
        assert characters - 1_200 <= len(prompt) <= characters
        assert prompt.endswith(f"\n\n{original}")
        assert (
            max(prompt.count(passage) for name in ("edits", "rag") for passage in passages_of(name))
            == 1
        )
    assert len({prompt[:60] for prompt in prompts}) == len(prompts)  # nothing for a prefix cache


def test_long_prompts_are_the_same_in_every_process():
    long_prompts = Variant("edits", "", characters=5_000).prompts(EDITS[:3])
    assert Traffic("edits", long_prompts).digest()[:16] == "dfeff2478af7df3c"


def test_thinking_and_adapter_are_fields_of_the_request():
    (prompt,) = Variant("chat", "", thinking=False, adapter="sql").prompts(("Say something",))
    assert prompt.body == {
        "chat_template_kwargs": {"enable_thinking": False},
        "messages": [{"role": "user", "content": "Say something"}],
        "model": "sql",
    }


def test_a_conversation_keeps_its_tools_and_is_not_lengthened():
    conversation = Chat.of({"messages": [{"role": "user", "content": "a"}], "tools": [{}]})
    (prompt,) = Variant("agents", "", thinking=True).prompts((conversation,))
    assert body_of(prompt)["tools"] == [{}]
    with pytest.raises(InputError, match="conversations, which cannot be lengthened"):
        Variant("agents", "", context=4096, characters=9_000).prompts((conversation,))


@pytest.mark.parametrize(
    ("concurrency", "count"), [(1, 2), (1, 3), (1, 4), (1, 6), (4, 4), (8, 2), (8, 4)]
)
def test_variants_take_at_most_one_and_a_half_times_the_prompts_of_one_class(concurrency, count):
    alone = Workload((Traffic("edits", tuple(map(str, range(3_000)))),), 1, 2, (concurrency,))
    shared = Workload(divided(count, alone.traffic[0].prompts), 1, 2, (concurrency,))
    assert shared.default_rounds >= 8
    assert shared.default_rounds * shared.per_round <= 1.5 * alone.default_rounds * alone.per_round


def test_a_record_finds_the_prompts_of_variants_by_those_of_their_class():
    workload = Workload(divided(3), 4, 2)
    again = Workload.from_record(json.loads(json.dumps(workload.to_record())))
    assert again.missing == ("edits",)
    assert again.with_prompts({"edits": EDITS}.get) == workload
    assert again.with_prompts({"edits": EDITS[1:]}.get).missing == ("edits",)
