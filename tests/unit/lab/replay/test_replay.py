"""Replay of lookups over known answers, against the definition in plain words."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.errors import InputError
from mpctl.lab.replay import Conversation, PromptLookup, SuffixLookup, read_transcripts, replay


def plain_lookup(tokens, least, most, k):
    """The longest ending that occurred before, at its earliest place, and what followed."""
    for size in range(most, least - 1, -1):
        for start in range(len(tokens) - size):
            if tokens[start : start + size] == tokens[len(tokens) - size :]:
                return tokens[start + size : start + size + k]
    return []


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 6),
)
def test_a_lookup_proposes_what_the_definition_says_after_every_token(tokens, least, more, k):
    lookup = PromptLookup(k, least, least + more)
    lookup.begin(tokens[:1])
    for end in range(1, len(tokens)):
        lookup.extend(tokens[end : end + 1])
        assert list(lookup.propose()) == plain_lookup(tokens[: end + 1], least, least + more, k)


def test_nothing_is_proposed_past_the_longest_request():
    lookup = PromptLookup(5, 1, 2, max_model_len=7)
    lookup.begin([1, 2, 3, 4, 1])
    assert list(lookup.propose()) == [2, 3]


def test_a_copied_answer_is_accepted_and_counted_as_the_engine_counts():
    text = tuple(range(100, 130))
    actual_replay = replay([Conversation(text, text)], PromptLookup(4, 2, 4), 4)
    # The prefill gives one token, the second one finds no pair yet, then drafts of four are accepted whole.
    assert (actual_replay.generated, actual_replay.requests) == (30, 1)
    assert actual_replay.rates[0] == 1.0
    assert actual_replay.per_position[0] == actual_replay.drafts
    assert actual_replay.steps == actual_replay.generated - actual_replay.accepted
    assert actual_replay.tokens_per_step > 3.5


def test_novel_text_is_not_accepted():
    actual_replay = replay(
        [Conversation(tuple(range(50)), tuple(range(100, 150)))], PromptLookup(5, 2, 4), 5
    )
    assert (
        actual_replay.drafts,
        actual_replay.accepted,
        actual_replay.tokens_per_step,
        actual_replay.coverage,
    ) == (
        0,
        0,
        1.0,
        0.0,
    )
    assert actual_replay.rates == ()


def test_suffix_learns_from_earlier_answers_and_ngram_does_not():
    answer = tuple(range(200, 240))
    twice = [Conversation((1, 2, 3), answer), Conversation((4, 5, 6), answer)]
    assert replay(twice, PromptLookup(8, 2, 4), 8).accepted == 0
    assert replay(twice, SuffixLookup(24), 24).accepted > 25


def test_suffix_finds_an_ending_behind_many_places_of_its_last_token():
    """A token that is everywhere hides no phrase: what precedes it decides, however long the log is."""
    suffix = SuffixLookup(24)
    suffix.begin([5, 6, 7, 1, 8, 9, *(token for other in range(100, 300) for token in (other, 1))])
    suffix.extend([5, 6, 7, 1])
    assert list(suffix.propose())[:2] == [8, 9]


def test_suffix_drafts_no_further_than_its_match_allows_and_follows_the_most_frequent():
    suffix = SuffixLookup(24)
    suffix.begin([1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 5, 9, 1, 2, 7])
    suffix.extend([1, 2])
    assert list(suffix.propose()) == [3, 4]  # a match of two tokens allows two
    suffix.extend([3, 4])
    assert list(suffix.propose()) == [5, 9, 1, 2]


def test_a_thousand_conversations_are_replayed_in_seconds():
    texts = [tuple((i * 7 + j * j) % 997 for j in range(400)) for i in range(1000)]
    began = time.monotonic()
    replay([Conversation(text, text[100:250]) for text in texts], PromptLookup(5, 2, 4), 5)
    assert time.monotonic() - began < 10


def test_transcripts_are_texts_chats_or_tokens():
    lines = [
        '{"prompt": "p", "completion": "c"}',
        '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}',
        '{"prompt_token_ids": [1, 2], "token_ids": [3]}',
    ]
    plain, chat, tokens = read_transcripts("\ufeff" + "\r\n".join(lines), "log.jsonl")
    assert (plain.prompt, plain.answer) == ("p", "c")
    assert ([one["content"] for one in chat.messages], chat.answer) == (["q"], "a")
    assert tokens.tokens == ((1, 2), (3,))


def test_a_transcript_with_half_of_a_surrogate_pair_is_refused_with_its_line():
    cut = '{"prompt": "p", "completion": "cut \\ud83d"}'
    with pytest.raises(InputError, match=r"^log\.jsonl:2: holds half of a surrogate pair"):
        read_transcripts('{"prompt": "p", "completion": "c"}\n' + cut, "log.jsonl")


@pytest.mark.parametrize(
    "line", ["no json", "[]", '{"prompt": "p"}', '{"messages": [], "answer": "a"}', ""]
)
def test_a_wrong_transcript_is_named_with_what_a_line_holds(line):
    with pytest.raises(InputError) as caught:
        read_transcripts(f"\n{line}\n", "log.jsonl")
    assert str(caught.value).startswith("log.jsonl")
    assert '"prompt_token_ids"' in caught.value.hint
