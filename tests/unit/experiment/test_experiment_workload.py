"""Which prompts go where, and files of prompts."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpctl.errors import InputError
from mpctl.experiment.cell import Cell
from mpctl.experiment.prompt_files import Prompts, body_of, conversations_of, read_prompts
from mpctl.experiment.workload import Traffic, Workload, round_order

few = settings(max_examples=60, deadline=None)


def prompts(count):
    return tuple(f"prompt {i}" for i in range(count))


def traffic(count=20, name="edits", **changes):
    return Traffic(name, prompts(count), **changes)


def workload(**changes):
    return Workload(**{"traffic": (traffic(),), "repeats": 2, "requests": 4, **changes})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"repeats": 0}, "repeats"),
        ({"requests": 0}, "requests"),
        ({"concurrency": (1, -1)}, "concurrency"),
        ({"concurrency": (1, 1)}, "concurrency"),
        ({"concurrency": ()}, "concurrency"),
        ({"rates": (0.0,)}, "rate"),
        ({"rates": (float("nan"),)}, "rate"),
        ({"rates": (2.0, 2.0)}, "rates"),
        ({"temperatures": ()}, "temperatures"),
        ({"temperatures": (-0.1,)}, "temperature"),
        ({"temperatures": (float("inf"),)}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_time_s": -1.0}, "max_time"),
        ({"max_time_s": float("nan")}, "max_time"),
        ({"warmup": -1}, "warmup"),
        ({"traffic": ()}, "prompts"),
        ({"traffic": (traffic(9),)}, "prompts"),
        ({"traffic": (traffic(), traffic())}, "prompts"),
        ({"traffic": (traffic(5),), "reuse": True}, "prompts"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_field(changes, field):
    with pytest.raises(InputError) as caught:
        workload(**changes)
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field}: ")


@pytest.mark.parametrize("name", ["", "Chat", "no such name", "a/b", "chat-r4"])
def test_a_class_is_named_as_its_cells_are(name):
    for make in (lambda: traffic(name=name), lambda: Cell(name, 1)):
        with pytest.raises(InputError) as caught:
            make()
        assert caught.value.message.startswith(
            "traffic: must be lower-case letters, digits and hyphens"
        )


@pytest.mark.parametrize("share", [0.0, -1.0, float("nan"), float("inf")])
def test_a_share_is_above_zero(share):
    with pytest.raises(InputError, match="share of edits must be above 0"):
        traffic(share=share)


@pytest.mark.parametrize("texts", [("a",) * 20, (*prompts(19), "prompt 0")])
def test_prompts_of_a_class_are_distinct(texts):
    with pytest.raises(InputError, match="prompts of edits repeat"):
        Traffic("edits", texts)


def test_too_few_prompts_say_how_many_are_needed():
    with pytest.raises(
        InputError,
        match="9 distinct prompts of edits are too few: 2 to warm up and 2 rounds of 4 in 1 cell need 10",
    ) as caught:
        workload(traffic=(traffic(9),))
    assert "MPCTL_REUSE_PROMPTS=true" in (caught.value.hint or "")
    exact = workload(traffic=(traffic(10),))
    assert exact.slice(exact.cells[0], 1) == prompts(10)[6:]


def test_cells_are_every_combination():
    actual_workload = workload(
        traffic=(traffic(200), traffic(200, "chat", share=3.0)),
        concurrency=(1, 8),
        rates=(2.5,),
        temperatures=(0.0, 0.7),
    )
    assert [c.key for c in actual_workload.cells] == [
        f"{kind}-{loop}-t{temperature}"
        for kind in ("edits", "chat")
        for temperature in ("0", "0.7")
        for loop in ("c1", "c8", "r2.5-c256")
    ]
    assert actual_workload.shares == {"edits": 0.25, "chat": 0.75}
    assert actual_workload.most == 8


def test_a_block_is_long_enough_to_reach_its_concurrency():
    actual_workload = workload(traffic=(traffic(200),), concurrency=(1, 8), rates=(50.0,))
    assert [actual_workload.requests_of(c) for c in actual_workload.cells] == [4, 16, 4]
    assert actual_workload.per_round == 24


@few
@given(
    st.integers(0, 3),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 4),
    st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
)
def test_no_prompt_is_sent_twice_to_an_arm(warmup, repeats, requests, spare, concurrency):
    counted = repeats * sum(max(requests, 2 * c) for c in concurrency)
    actual_workload = workload(
        traffic=(traffic(warmup + counted + spare),),
        repeats=repeats,
        requests=requests,
        warmup=warmup,
        concurrency=tuple(concurrency),
    )
    sent = [
        p
        for c in actual_workload.cells
        for r in range(repeats)
        for p in actual_workload.slice(c, r)
    ]
    assert len(sent) == len(set(sent)) == counted
    assert {actual_workload.warmup_prompts(c) for c in actual_workload.cells} == {prompts(warmup)}
    assert not set(sent) & set(prompts(warmup))
    record = json.dumps(actual_workload.to_record())
    assert not any(prompt in record for prompt in (*sent, *prompts(warmup)))
    again = Workload.from_record(json.loads(record))
    assert again.missing == ("edits",)
    assert again.digest() == actual_workload.digest()
    assert again.with_prompts({"edits": actual_workload.traffic[0].prompts}.get) == actual_workload
    assert again.with_prompts({"edits": actual_workload.traffic[0].prompts[::-1]}.get).missing == (
        () if len(actual_workload.traffic[0].prompts) == 1 else ("edits",)
    )


@few
@given(st.integers(6, 30), st.integers(1, 6))
def test_prompts_that_go_round_again_are_counted_and_distinct_within_a_block(count, repeats):
    actual_workload = workload(traffic=(traffic(count),), repeats=repeats, reuse=True)
    cell = actual_workload.cells[0]
    assert all(len(set(actual_workload.slice(cell, r))) == 4 for r in range(repeats))
    sent = [prompt for r in range(repeats) for prompt in actual_workload.slice(cell, r)]
    assert len(sent) - len(set(sent)) == max(0, 4 * repeats - (count - 2))


@pytest.mark.parametrize(
    "changes",
    [
        {"traffic": (traffic(21),)},
        {"traffic": (traffic(share=2.0),)},
        {"repeats": 3},
        {"requests": 5},
        {"concurrency": (2,)},
        {"rates": (1.0,)},
        {"max_tokens": 1},
        {"temperatures": (0.5,)},
        {"warmup": 1},
        {"max_time_s": 1.0},
        {"reuse": True},
    ],
)
def test_the_digest_sees_whatever_changes_what_is_sent(changes):
    assert workload().digest() == workload().digest()
    assert workload(**changes).digest() != workload().digest()


ONE, TWO = Cell("edits", 1), Cell("edits", 8)


@few
@given(st.integers(0, 12), st.text())
def test_every_cell_has_one_block_of_each_arm_in_a_round(repeat, seed):
    order = round_order(("a", "b"), (ONE, TWO), repeat, seed=seed)
    assert [cell for cell, _ in order] == [ONE, ONE, TWO, TWO]
    assert [{arm for _, arm in order[i : i + 2]} for i in (0, 2)] == [{"a", "b"}] * 2
    assert round_order(("a",), (ONE,), repeat, seed=seed) == ((ONE, "a"),)


def first_arms(seed, cell=ONE, rounds=400):
    return [
        dict(round_order(("a", "b"), (ONE, TWO), r, seed=seed)[::-1])[cell] for r in range(rounds)
    ]


def test_a_coin_decides_which_arm_goes_first():
    """Neither arm comes first more often, and no round or cell tells what the next one does."""
    first, other = first_arms("bench-1"), first_arms("bench-1", TWO)
    pairs = Counter(itertools.pairwise(first)) + Counter(zip(first, other, strict=True))
    assert 160 < first.count("a") < 240
    assert all(150 < count < 250 for count in pairs.values())
    for period in (2, 3, 4, 8):  # noise of this period falls on both arms alike
        assert 0.3 < first[::period].count("a") / len(first[::period]) < 0.7


@few
@given(st.text(), st.integers(0, 20))
def test_of_eight_coins_the_last_seven_do_not_agree(seed, group):
    """Seven that agree leave what the first place in a round costs without a spread."""
    first = first_arms(seed, rounds=8 * (group + 1))[-7:]
    assert 1 <= first.count("a") <= 6


def test_an_interrupted_measurement_keeps_its_order_and_another_has_its_own():
    assert first_arms("bench-1") == first_arms("bench-1")
    assert first_arms("bench-1") != first_arms("bench-2")


TOPICS = ("how a hash table grows when it is full", "why ships made of steel float on water")


@pytest.mark.parametrize(
    ("texts", "alike"),
    [
        ([f"Explain {topic}, number {n}" for n in range(10) for topic in TOPICS], 0.9),
        (
            [
                f"{topic} {n}: " + " ".join(f"{topic[4]}{n}-{i}" for i in range(30))
                for n in range(10)
                for topic in TOPICS
            ],
            0.0,
        ),
        (["hello", "goodbye"], 0.0),
    ],
)
def test_prompts_of_one_template_are_alike_though_none_repeats(texts, alike):
    kind = Traffic("chat", tuple(texts))
    assert kind.alike == alike
    assert Workload.from_record(
        workload(traffic=(kind,), repeats=1, requests=1, warmup=0).to_record()
    ).traffic[0].alike == pytest.approx(alike)


def lines(*texts, end="\n"):
    return "".join(json.dumps({"prompt": t}) + end for t in texts)


def test_prompts_are_read_in_order_and_repeats_counted():
    assert read_prompts(lines("b", "a", "b", "b"), file="f") == Prompts(("b", "a"), 4)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "\n \n"])
def test_line_ends_and_empty_lines_do_not_matter(end):
    assert read_prompts(lines("a", "b", end=end), file="f") == Prompts(("a", "b"), 2)
    assert read_prompts(lines("a", "b", end=end).rstrip(), file="f") == Prompts(("a", "b"), 2)


@few
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1), st.booleans())
def test_any_prompts_are_read_back(texts, ascii_only):
    """Also those with U+2028 or U+0085 inside, which JSON allows unescaped and some call line ends."""
    file = "".join(json.dumps({"prompt": t}, ensure_ascii=ascii_only) + "\n" for t in texts)
    assert read_prompts(file, file="f") == Prompts(tuple(dict.fromkeys(texts)), len(texts))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "f.jsonl:3: not JSON"),
        ("null", "f.jsonl:3: prompt: needs a non-empty string"),
        ('"text"', "f.jsonl:3: prompt: needs a non-empty string"),
        ("{}", "f.jsonl:3: holds none of prompt, messages,"),
        ('{"prompt": ""}', "f.jsonl:3: prompt: needs a non-empty string"),
        ('{"prompt": 7}', "f.jsonl:3: prompt: needs a non-empty string"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(line, message):
    with pytest.raises(InputError) as caught:
        read_prompts("\n\n" + line + "\n", file="f.jsonl")
    assert caught.value.message.startswith(message)
    assert caught.value.line == 3


@pytest.mark.parametrize("text", ["", "\n", " \r\n\n"])
def test_a_file_without_prompts_is_refused(text):
    with pytest.raises(InputError, match=r"^f\.jsonl: holds no prompts"):
        read_prompts(text, file="f.jsonl")


def conversations(*lengths):
    """The prompts of conversations with so many turns each, as they are read."""
    lines = [
        json.dumps(
            {
                "conversation": [
                    {"role": role, "content": f"{number}.{turn}"}
                    for turn in range(length)
                    for role in ("user", "assistant")
                ]
            }
        )
        for number, length in enumerate(lengths)
    ]
    return read_prompts("\n".join(lines), file="log.jsonl").texts


def turns(prompts):
    """``number.turn`` of each prompt."""
    return [body_of(p)["messages"][-1]["content"] for p in prompts]


@few
@given(st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_the_turns_of_a_conversation_are_known_though_others_are_between_them(lengths):
    assert [turns(every) for every in conversations_of(conversations(*lengths))] == [
        [f"{number}.{turn}" for turn in range(length)] for number, length in enumerate(lengths)
    ]


def test_one_turn_of_each_conversation_is_filled_in_again_from_all():
    whole = Traffic("log", conversations(3, 1, 2, 4, 4))
    single = whole.single_turns()
    assert turns(single.prompts) == ["0.0", "1.0", "2.0", "3.3", "4.0"]
    assert single.single_turns() == single
    stored = single.without_prompts()
    assert stored.with_prompts(whole.prompts) == single
    assert stored.with_prompts(prompts(5)) is stored
