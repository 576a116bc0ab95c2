"""Blocks read from the bench client's JSON."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measure_samples import EDITS, STARTED, bench, block, captured

from mpctl.experiment.block import SHORTEST_MS, Block, BlockError, Sample, _without_prompt, prompt_digest
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError

few = settings(max_examples=60, deadline=None)
BEFORE, AFTER = captured("ngram_before_requests"), captured("ngram_after_load")


LOAD = Cell("edits", 24)


def read(result, *, count=None):
    errors = result.get("errors")
    sent = len(errors) if count is None and isinstance(errors, list) else count or 2
    prompts = tuple(f"prompt {i}" for i in range(sent))
    return Block.from_bench(result, arm="candidate", cell=LOAD, repeat=3, prompts=prompts, before=BEFORE, after=AFTER)


def small(**changes):
    result = {
        "date": "20261121-045846",
        "duration": 2.0,
        "max_concurrency": 4,
        "ttfts": [0.010, 0.020],
        "itls": [[0.001, 0.002], [0.004]],
        "output_lens": [3, 2],
        "generated_texts": ["abc", "de"],
        "errors": ["", ""],
    }
    return {**result, **changes}


@pytest.mark.parametrize("time", [5e-324, 1e-300, 1e-9, SHORTEST_MS / 2000])
def test_no_time_is_shorter_than_a_clock_can_resolve(time):
    """Ratios of such times would divide by zero or overflow."""
    sample = Sample(time, time, 3, "a", prompt="p")
    assert (sample.ttft_ms, sample.e2e_ms, sample.tpot_ms) == (SHORTEST_MS, SHORTEST_MS, 0.0)
    assert Sample(0.0, 0.0, 3, "a").e2e_ms == 0.0  # not measured by a client that received one chunk
    assert block("baseline", seconds=time).duration_s == SHORTEST_MS / 1000


def test_a_real_result_gives_the_clients_own_figures():
    """The client computes throughput, TTFT, TPOT and end-to-end times itself: ours must be the same."""
    result = bench()
    made = read(result)
    assert (made.arm, made.repeat, made.cell) == ("candidate", 3, LOAD)
    assert datetime.fromisoformat(made.started) == datetime(2026, 11, 21, 1, 19, 8, tzinfo=UTC)
    assert len(made.completed) == len(made.samples) == result["completed"] == 48
    assert made.output_tokens == result["total_output_tokens"] == 11873
    assert made.throughput == pytest.approx(result["output_throughput"])
    ttft, tpot, e2e = ([getattr(s, f) for s in made.samples] for f in ("ttft_ms", "tpot_ms", "e2e_ms"))
    assert statistics.median(ttft) == pytest.approx(result["median_ttft_ms"])
    assert statistics.median(tpot) == pytest.approx(result["median_tpot_ms"])
    assert statistics.median(e2e) == pytest.approx(result["median_e2el_ms"])
    assert made.step_ms == pytest.approx([result[f"p{p}_itl_ms"] for p in (50, 90, 99)])
    assert [len(i) + 1 for i in result["itls"]] != result["output_lens"]  # chunks are no tokens
    assert made.window.accepted == 5331.0


def test_times_of_one_request():
    one, two = read(small()).samples
    assert (one.ttft_ms, one.e2e_ms, one.tokens) == (pytest.approx(10.0), pytest.approx(13.0), 3)
    assert one.tpot_ms == pytest.approx(1.5)
    assert two.tpot_ms == pytest.approx(4.0)
    assert one.text_digest != two.text_digest


@pytest.mark.parametrize("sample", [Sample(5.0, 5.0, 1, ""), Sample(None, None, 0, "", "x"), Sample(5.0, None, 9, "")])
def test_no_time_per_token_below_two_tokens(sample):
    assert sample.tpot_ms is None


@few
@given(st.lists(st.floats(0.0001, 0.1), min_size=1, max_size=30), st.data())
def test_how_the_chunks_were_merged_does_not_matter(intervals, drawn):
    cuts = sorted(drawn.draw(st.sets(st.integers(1, len(intervals)), max_size=5)) | {0, len(intervals)})
    merged = [math.fsum(intervals[a:b]) for a, b in itertools.pairwise(cuts)]
    tokens = len(intervals) + 1
    same = {"ttfts": [0.01], "output_lens": [tokens], "generated_texts": ["x"], "errors": [""]}
    (fine,) = read(small(**same, itls=[intervals])).samples
    (coarse,) = read(small(**same, itls=[merged])).samples
    assert (coarse.tokens, coarse.tpot_ms) == (fine.tokens, pytest.approx(fine.tpot_ms))
    assert coarse.e2e_ms == pytest.approx(fine.e2e_ms)


@pytest.mark.parametrize("key", ["ttfts", "itls", "output_lens", "generated_texts", "errors"])
@pytest.mark.parametrize("value", [None, "missing", "x"])
def test_a_missing_list_is_named(key, value):
    result = small()
    if value == "missing":
        del result[key]
    else:
        result[key] = value
    with pytest.raises(BlockError, match=rf"{key} is missing; was it run with --save-detailed"):
        read(result)


@pytest.mark.parametrize("key", ["ttfts", "itls", "output_lens", "generated_texts", "errors"])
def test_lists_of_different_length_are_refused(key):
    result = small()
    result[key] = result[key][:1]
    with pytest.raises(BlockError, match=rf"different length .*'{key}': 1"):
        read(result)


@pytest.mark.parametrize(
    "changes",
    [
        {"ttfts": [math.nan, 0.1]},
        {"ttfts": [math.inf, 0.1]},
        {"itls": [[0.1, math.nan], [0.1]]},
        {"duration": math.nan},
        {"duration": math.inf},
        {"duration": 0.0},
        {"duration": -1.0},
        {"duration": None},
        {"date": None},
        {"date": "yesterday"},
    ],
)
def test_times_that_are_none_are_refused(changes):
    with pytest.raises(BlockError):
        read(small(**changes))


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("boom", "boom"),
        ("Traceback:\n  File x\nValueError: boom\n", "ValueError: boom"),
        ("x" * 999, "x" * 300),
        (" \n", "no output"),
    ],
)
def test_a_failed_request_has_no_times_and_no_tokens(error, shown):
    made = read(small(errors=[error, ""], ttfts=[0.0, 0.02]))
    assert made.samples[0].error == shown
    assert (made.samples[0].ttft_ms, made.samples[0].e2e_ms, made.samples[0].tokens) == (None, None, 0)
    assert made.completed == made.samples[1:]
    assert made.output_tokens == 2
    assert made.throughput == 1.0


def test_an_answer_without_tokens_is_a_failure():
    made = read(small(output_lens=[0, 2]))
    assert [s.error for s in made.samples] == ["no output", ""]


def test_counters_that_cannot_be_differenced_are_not_hidden():
    with pytest.raises(CounterError):
        Block.from_bench(small(), arm="candidate", cell=LOAD, repeat=0, prompts=("a", "b"), before=AFTER, after=BEFORE)


def test_samples_carry_their_prompts_and_their_number_must_be_right():
    assert [s.prompt for s in read(small(errors=["boom", ""])).samples] == [
        prompt_digest("prompt 0"),
        prompt_digest("prompt 1"),
    ]
    with pytest.raises(BlockError, match="2 requests, 3 prompts were sent"):
        read(small(), count=3)


def test_answers_of_one_chunk_have_no_step_time():
    assert read(small(itls=[[], []])).step_ms is None


times = st.none() | st.floats(0, 1e6)
samples = st.builds(
    Sample, times, times, st.integers(0, 999), st.text(max_size=5), st.text(max_size=5), st.text(max_size=5)
)
seconds = st.just(0.0) | st.floats(SHORTEST_MS, 9)
spreads = st.none() | st.tuples(seconds, seconds, seconds)


@few
@given(st.lists(samples, max_size=4), st.floats(0.1, 99), st.integers(0, 9), spreads)
def test_blocks_round_trip_through_json(some, duration, repeat, steps):
    actual_block = Block("baseline", EDITS, repeat, STARTED, duration, tuple(some), block("candidate").window, steps)
    assert Block.from_record(json.loads(json.dumps(actual_block.to_record()))) == actual_block


def test_a_real_block_round_trips():
    made = read(bench())
    assert Block.from_record(json.loads(json.dumps(made.to_record()))) == made


def test_an_error_that_repeats_the_prompt_is_left_out():
    prompt = "my name is Ada and my account is DE02 1203 0000 0000 2020 51"
    assert _without_prompt(f"400: invalid input: {prompt[5:45]}...", prompt) == (
        "the engine's message repeats the prompt and is left out"
    )
    assert _without_prompt("400: the prompt is too long", prompt) == "400: the prompt is too long"
    assert _without_prompt("anything", "") == "anything"
