"""What a prefix cache can hold of the prompts that it was sent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.experiment.block import StreamedRequest
from mpctl.experiment.prefixes import PrefixCache


def request(prompt, answer=(), error=""):
    return StreamedRequest(0.1, 0.0, (), len(answer), "", error, tuple(prompt), tuple(answer))


def told(unit, *prompts):
    cache = PrefixCache(unit)
    return [cache.hits([request(prompt)]) for prompt in prompts]


@pytest.mark.parametrize(
    ("length", "again"),
    [(3, 0), (4, 0), (5, 4), (8, 4), (9, 8)],  # the last token is always computed
)
def test_whole_units_before_the_last_token_are_found_again(length, again):
    assert told(4, range(length), range(length)) == [0, again]


def test_another_beginning_shares_nothing_though_the_rest_is_equal():
    assert told(2, [1, 2, 3, 4, 5], [9, 2, 3, 4, 5], [1, 2, 7, 7, 7]) == [0, 0, 2]


def test_a_turn_finds_its_history_with_the_answer_that_was_given():
    cache = PrefixCache(2)
    assert cache.hits([request([1, 2], [3, 4, 5])]) == 0
    assert cache.hits([request([1, 2, 3, 4, 8, 9])]) == 4


def test_requests_of_one_block_help_each_other():
    assert PrefixCache(2).hits([request([1, 2, 3]), request([1, 2, 3, 4, 5])]) == 2


def test_an_engine_that_does_not_tell_its_tokens_explains_nothing():
    cache = PrefixCache(2)
    assert cache.hits([request([1, 2, 3]), request([])]) is None
    assert cache.hits([request([1, 2, 3]), request([], error="HTTP 500")]) == 2


# Counts of vLLM 0.32 on a CPU, block size 128 (241, 241, 274 and 400, 400, 429 tokens of two conversations).
def test_the_counts_of_a_real_engine():
    a, b = list(range(1000, 1274)), list(range(5000, 5429))
    assert told(128, a[:241], a[:241], a, b[:400], b[:400], b) == [0, 128, 128, 0, 384, 384]


tokens = st.lists(st.integers(0, 2), max_size=12)


@given(st.integers(1, 4), st.lists(tokens.filter(bool), max_size=6))
def test_as_by_comparing_every_pair_of_prompts(unit, prompts):
    def shared(earlier, prompt):
        count = 0
        while (
            count + unit <= len(prompt) - 1
            and earlier[: count + unit] == prompt[: count + unit]
            and count + unit <= len(earlier)
        ):
            count += unit
        return count

    expected = [
        max((shared(earlier, prompt) for earlier in prompts[:n]), default=0)
        for n, prompt in enumerate(prompts)
    ]
    assert told(unit, *prompts) == expected
