"""Sentinels: what is recorded of an answer, what one wrong answer means, and how many are sent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpctl.estimate.facts import engine_identity
from mpctl.experiment.answer_sets import SENTINELS, hot_prefix, sentinels_of
from mpctl.experiment.answers import Answer, ToolCall
from mpctl.experiment.prompt_files import read_prompts
from mpctl.manifest import load
from mpctl.watch.sentinel import (
    Check,
    Guard,
    Sentinels,
    changes_between,
    diagnose,
    first_check,
    prefix_digest,
    repetitions,
    settle,
    unanswerable,
)
from mpctl.watch.watch_policy import WatchPolicy

POLICY = WatchPolicy()
IDS = tuple(range(20))
FAR = {1: -0.001, 2: -9.0}


def answer(ids=IDS, **changes):
    alternatives = changes.pop("alternatives", (FAR,) * len(ids))
    return Answer(
        (7,),
        ids,
        text=" ".join(map(str, ids)),
        finish="length",
        alternatives=alternatives,
        **changes,
    )


RIGHT = answer()
WRONG = answer((99, *IDS[1:]))
SETTLED = settle(RIGHT, RIGHT)


def test_only_tokens_far_from_every_tie_are_recorded():
    near = (*((FAR,) * 12), {1: -0.5, 2: -4.4}, *((FAR,) * 7))
    settled = settle(answer(alternatives=near), RIGHT)
    assert settled.startswith("12:")
    assert first_check(settled, answer((*IDS[:12], 99, *IDS[13:]))) is Check.RIGHT
    assert first_check(settled, answer((*IDS[:11], 99, *IDS[12:]))) is Check.WRONG
    assert settle(answer(alternatives=near[9:]), RIGHT) == ""
    assert settle(answer(alternatives=()), RIGHT) == ""
    assert settle(RIGHT, WRONG) == ""
    assert settle(RIGHT, Answer(error="HTTP 500")) == ""


def test_the_same_ids_with_another_text_are_wrong_and_other_ids_behind_a_tie_are_not():
    assert first_check(SETTLED, replace(RIGHT, text="another")) is Check.WRONG
    assert first_check(SETTLED, replace(RIGHT, tool_calls=(ToolCall("a", "{}"),))) is Check.WRONG
    near = (*((FAR,) * 12), {1: -0.5, 2: -0.6}, *((FAR,) * 7))
    settled = settle(answer(alternatives=near), RIGHT)
    assert (
        first_check(settled, replace(answer((*IDS[:15], 99, *IDS[16:])), text="another"))
        is Check.RIGHT
    )


def test_an_engine_without_token_ids_is_compared_by_its_text_and_only_where_all_of_it_is_settled():
    text = replace(RIGHT, ids=())
    settled = settle(text, text)
    assert settled.startswith("text:")
    assert first_check(settled, text) is Check.RIGHT
    assert first_check(settled, replace(text, text="another")) is Check.WRONG
    near = (*((FAR,) * 12), {1: -0.5, 2: -0.6}, *((FAR,) * 7))
    assert settle(replace(text, alternatives=near), text) == ""


def test_no_answer_and_one_whose_ids_a_gateway_dropped_show_nothing():
    assert first_check(SETTLED, Answer(error="HTTP 503")) is Check.UNKNOWN
    assert first_check(SETTLED, replace(RIGHT, ids=())) is Check.UNKNOWN


@pytest.mark.parametrize(
    ("again", "salted", "check"),
    [
        ((WRONG, WRONG), (RIGHT, RIGHT), Check.POISONED),
        ((RIGHT, WRONG), (RIGHT, RIGHT), Check.POISONED),
        ((WRONG, WRONG), (WRONG, WRONG), Check.WRONG),
        ((WRONG, WRONG), (RIGHT, WRONG), Check.WRONG),
        ((RIGHT, RIGHT), (WRONG, RIGHT), Check.WRONG),
        ((WRONG, WRONG), (Answer(error="HTTP 400"),) * 2, Check.WRONG),
        ((RIGHT, RIGHT), (RIGHT, RIGHT), Check.ONCE),
        ((Answer(error="HTTP 503"),) * 2, (RIGHT, RIGHT), Check.ONCE),
    ],
)
def test_repetitions_tell_a_poisoned_cache_from_a_wrong_engine(again, salted, check):
    assert diagnose(SETTLED, again, salted) is check


def test_every_engine_is_likely_to_be_met_again():
    assert [repetitions(n) for n in (0, 1, 3, 40)] == [2, 2, 6, 8]


def played(guard, *checks, step=300.0):
    for number, check in enumerate(checks):
        guard = guard.after(check, "why", sent=1, now=number * step)
    return guard


def test_a_finding_ends_with_an_hour_of_right_answers():
    guard = played(Guard(), Check.WRONG)
    assert (guard.finding, guard.found, guard.wrong) == (Check.WRONG, "why", 1)
    assert played(guard, *[Check.RIGHT] * 11).finding is Check.WRONG
    assert played(guard, *[Check.RIGHT] * 11, Check.UNKNOWN, Check.RIGHT).finding is None
    assert (
        played(guard, *[Check.RIGHT] * 11, Check.WRONG, *[Check.RIGHT] * 11).finding is Check.WRONG
    )
    assert played(guard, Check.UNVERIFIED).finding is None


def test_an_answer_that_was_wrong_once_is_a_finding_when_it_is_so_twice_within_a_day():
    assert played(Guard(), Check.ONCE).finding is None
    twice = played(Guard(), Check.ONCE, Check.ONCE)
    assert (twice.finding, twice.found) == (
        Check.WRONG,
        "2 answers within a day were wrong and right when asked again",
    )
    assert played(Guard(), Check.ONCE, Check.ONCE, step=86_400.0).finding is None


def test_sentinels_are_at_most_half_a_percent_of_the_load_and_one_every_five_minutes():
    def sent(requests_per_s, hours=50):
        guard, times = Guard(), 0
        for second in range(0, hours * 3600, 15):
            guard = guard.with_load(POLICY, 15 * requests_per_s)
            if guard.due(POLICY, second):
                guard, times = guard.after(Check.RIGHT, "", sent=1, now=second), times + 1
        return times

    assert sent(100.0) == sent(0.7) == 50 * 12
    assert sent(0.1) <= 0.1 * 3600 * 50 * 0.005
    assert sent(0.1) >= 0.1 * 3600 * 50 * 0.005 - 2
    assert sent(0.0) == 0


def test_after_a_wrong_answer_sentinels_are_sent_more_often_within_their_share():
    guard = played(Guard(2.0), Check.ONCE)
    assert guard.due(POLICY, 31.0) and not guard.due(POLICY, 29.0)
    assert not replace(guard, credit=0.9).due(POLICY, 1000.0)
    assert not guard.due(WatchPolicy(sentinel_s=0.0), 1e6)


LINES = [
    '{"messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "'
    + name
    + '"}], '
    '"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}'
    for name in "abc"
]


def test_sentinels_begin_like_most_of_the_prompts_with_a_system_prompt_or_tools():
    other = (
        '{"messages": [{"role": "system", "content": "Be long"}, {"role": "user", "content": "x"}]}'
    )
    prompts = read_prompts(
        "\n".join([*LINES, other, '{"prompt": "plain"}']), file="prompts.jsonl"
    ).texts
    prefix = hot_prefix(prompts)
    assert prefix["messages"] == [{"role": "system", "content": "Be brief"}]
    asks = sentinels_of(prefix)
    assert len({ask.digest for ask in asks}) == len(asks) > SENTINELS
    for ask in asks:
        assert ask.body["messages"][0] == {"role": "system", "content": "Be brief"}
        assert ask.body["tools"] == prefix["tools"]
        assert not ask.constrained and ask.greedy
    assert [ask.digest for ask in sentinels_of({})] != [ask.digest for ask in asks]
    assert prefix_digest({}) == "" != prefix_digest(prefix)
    assert hot_prefix(["plain"]) == {}


MANIFEST = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: svc, namespace: chat}
spec:
  predictor:
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.32.0
      command: [vllm, serve, org/model]
      args: [--max-model-len=8192, --kv-cache-dtype=auto]
"""


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("auto", "fp8", "kv-cache-dtype"),
        ("v0.32.0", "v0.33.0", "image"),
        ("org/model", "org/model-2", "model"),
        ("=8192", "=8192, --quantization=fp8", "quantization"),
        ("=8192", "=4096, --max-num-seqs=8", ""),
    ],
)
def test_image_weights_quantization_and_types_make_another_engine_and_limits_do_not(
    old, new, changed
):
    engines = []
    for text in (MANIFEST, MANIFEST.replace(old, new)):
        service = load(text)[0]
        engines.append(engine_identity(service, service.image, None))
    assert changes_between(*engines) == changed


def test_a_record_has_digests_alone():
    sentinels = Sentinels("2026-01-01T00:00:00+00:00", {"image": "i"}, True, {"a": SETTLED}, "p")
    assert Sentinels.from_record(sentinels.to_record()) == sentinels
    assert RIGHT.text not in str(sentinels.to_record())


def test_an_mtp_engine_is_not_asked_for_log_probabilities():
    assert "MTP" in unanswerable("mtp") and unanswerable("ngram") == ""
