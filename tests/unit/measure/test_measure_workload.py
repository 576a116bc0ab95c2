"""Which prompts go where, and files of prompts."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpctl.errors import InputError
from mpctl.measure.workload import Workload, block_order, read_prompts

few = settings(max_examples=60, deadline=None)


def prompts(count):
    return tuple(f"prompt {i}" for i in range(count))


def workload(**changes):
    return Workload(**{"prompts": prompts(20), "repeats": 2, "requests": 4, **changes})


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"repeats": 0}, "repeats"),
        ({"requests": 0}, "requests"),
        ({"concurrency": -1}, "concurrency"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"warmup": -1}, "warmup"),
        ({"prompts": prompts(9)}, "prompts"),
        ({"prompts": ("a",) * 20}, "prompts"),
        ({"prompts": (*prompts(19), "prompt 0")}, "prompts"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_field(changes, field):
    with pytest.raises(InputError) as caught:
        workload(**changes)
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field}: ")


def test_too_few_prompts_say_how_many_are_needed():
    with pytest.raises(InputError, match="9 distinct prompts are too few: 2 to warm up and 2 blocks of 4 need 10"):
        workload(prompts=prompts(9))
    assert workload(prompts=prompts(10)).slice(1) == prompts(10)[6:]


@few
@given(st.integers(0, 3), st.integers(1, 4), st.integers(1, 5), st.integers(0, 4))
def test_no_prompt_is_sent_twice_to_an_arm(warmup, repeats, requests, spare):
    made = workload(
        prompts=prompts(warmup + repeats * requests + spare), repeats=repeats, requests=requests, warmup=warmup
    )
    slices = [made.slice(r) for r in range(repeats)]
    assert [len(s) for s in slices] == [requests] * repeats
    sent = [*made.warmup_prompts, *(p for s in slices for p in s)]
    assert len(sent) == len(set(sent)) == warmup + repeats * requests
    assert Workload.from_record(json.loads(json.dumps(made.to_record()))) == made


@pytest.mark.parametrize(
    "changes",
    [
        {"prompts": prompts(21)},
        {"repeats": 3},
        {"requests": 5},
        {"concurrency": 2},
        {"max_tokens": 1},
        {"temperature": 0.5},
        {"warmup": 1},
    ],
)
def test_the_digest_sees_whatever_changes_what_is_sent(changes):
    assert workload().digest() == workload().digest()
    assert workload(**changes).digest() != workload().digest()


def test_blocks_go_a_b_b_a():
    assert block_order(("a", "b"), 3) == (("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2))
    assert block_order(("a",), 2) == (("a", 0), ("a", 1))


@few
@given(st.integers(1, 12))
def test_block_order_is_balanced(repeats):
    order = block_order(("a", "b"), repeats)
    assert Counter(order) == Counter((arm, r) for arm in "ab" for r in range(repeats))
    first = Counter(order[2 * r][0] for r in range(repeats))
    assert abs(first["a"] - first["b"]) <= 1
    # A drift that grows by one per block falls on both arms alike, for an even number of repeats.
    drift = {arm: sum(i for i, (a, _) in enumerate(order) if a == arm) for arm in "ab"}
    assert repeats % 2 or drift["a"] == drift["b"]


def lines(*texts, end="\n"):
    return "".join(json.dumps({"prompt": t}) + end for t in texts)


def test_prompts_are_read_in_order_and_repeats_counted():
    assert read_prompts(lines("b", "a", "b", "b"), file="f") == (("b", "a"), 2)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", "\n \n"])
def test_line_ends_and_empty_lines_do_not_matter(end):
    assert read_prompts(lines("a", "b", end=end), file="f") == (("a", "b"), 0)
    assert read_prompts(lines("a", "b", end=end).rstrip(), file="f") == (("a", "b"), 0)


@few
@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1), st.booleans())
def test_any_prompts_are_read_back(texts, ascii_only):
    """Also those with U+2028 or U+0085 inside, which JSON allows unescaped and some call line ends."""
    file = "".join(json.dumps({"prompt": t}, ensure_ascii=ascii_only) + "\n" for t in texts)
    assert read_prompts(file, file="f") == (tuple(dict.fromkeys(texts)), len(texts) - len(set(texts)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "f.jsonl:3: not JSON"),
        ("[]", "f.jsonl:3: prompt: needs a non-empty string"),
        ("null", "f.jsonl:3: prompt: needs a non-empty string"),
        ('"text"', "f.jsonl:3: prompt: needs a non-empty string"),
        ("{}", "f.jsonl:3: prompt: needs a non-empty string"),
        ('{"prompt": ""}', "f.jsonl:3: prompt: needs a non-empty string"),
        ('{"prompt": 7}', "f.jsonl:3: prompt: needs a non-empty string"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(line, message):
    with pytest.raises(InputError) as caught:
        read_prompts(lines("a") + "\n" + line + "\n" + lines("b"), file="f.jsonl")
    assert caught.value.message.startswith(message)
    assert caught.value.line == 3


@pytest.mark.parametrize("text", ["", "\n", " \r\n\n"])
def test_a_file_without_prompts_is_refused(text):
    with pytest.raises(InputError, match=r"^f\.jsonl: holds no prompts"):
        read_prompts(text, file="f.jsonl")
