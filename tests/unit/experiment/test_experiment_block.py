"""Blocks of what the load client timed."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import math
import statistics
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measure_samples import EDITS, STARTED, bench, block, captured

from mpctl.experiment.arm import ArmSummary
from mpctl.experiment.block import (
    SHORTEST_MS,
    Block,
    BlockError,
    LoadResult,
    Sample,
    UnansweredError,
    _without_prompt,
    prompt_digest,
)
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError

few = settings(max_examples=60, deadline=None)
BEFORE, AFTER = captured("ngram_before_requests"), captured("ngram_after_load")


LOAD = Cell("edits", 24)


def read(result, *, count=None):
    sent = len(result["requests"]) if count is None else count
    prompts = tuple(f"prompt {i}" for i in range(sent))
    result = LoadResult.read(result)
    return Block.of(
        result, arm="candidate", cell=LOAD, repeat=3, prompts=prompts, before=BEFORE, after=AFTER
    )


FIRST = {
    "ttft_s": 0.010,
    "held_s": 0.0,
    "gaps_s": [0.001, 0.002],
    "tokens": 3,
    "text": "abc",
    "error": "",
}
SECOND = {"ttft_s": 0.020, "held_s": 0.0, "gaps_s": [0.004], "tokens": 2, "text": "de", "error": ""}


def small(first=None, second=None, **changes):
    """A result of two requests; ``first`` and ``second``: changes of their fields."""
    requests = [{**FIRST, **(first or {})}, {**SECOND, **(second or {})}]
    return {
        "started": "2026-11-21T04:58:46+00:00",
        "duration_s": 2.0,
        "requests": requests,
        **changes,
    }


def of_bench(result):
    """What ``vllm bench serve`` saved, as the load client returns it."""
    lists = (result[key] for key in ("ttfts", "itls", "output_lens", "generated_texts", "errors"))
    names = ("ttft_s", "gaps_s", "tokens", "text", "error")
    rows = [
        {"held_s": 0.0, **dict(zip(names, row, strict=True))} for row in zip(*lists, strict=True)
    ]
    return {"started": result["date"], "duration_s": result["duration"], "requests": rows}


@pytest.mark.parametrize("time", [5e-324, 1e-300, 1e-9, SHORTEST_MS / 2000])
def test_no_time_is_shorter_than_a_clock_can_resolve(time):
    """Ratios of such times would divide by zero or overflow."""
    sample = Sample(time, time, 3, "a", prompt="p")
    assert (sample.ttft_ms, sample.e2e_ms, sample.tpot_ms) == (SHORTEST_MS, SHORTEST_MS, 0.0)
    assert (
        Sample(0.0, 0.0, 3, "a").e2e_ms == 0.0
    )  # not measured by a client that received one chunk
    assert block("baseline", seconds=time).duration_s == SHORTEST_MS / 1000


def test_the_figures_of_a_real_result_are_those_that_vllm_computes():
    """``vllm bench serve`` computes throughput, TTFT, TPOT and end-to-end times itself: ours must be the same."""
    result = bench()
    made = read(of_bench(result))
    assert (made.arm, made.repeat, made.cell) == ("candidate", 3, LOAD)
    assert datetime.fromisoformat(made.started) == datetime(2026, 11, 21, 1, 19, 8, tzinfo=UTC)
    assert len(made.completed) == len(made.samples) == result["completed"] == 48
    assert made.output_tokens == result["total_output_tokens"] == 11873
    assert made.throughput == pytest.approx(result["output_throughput"])
    ttft, tpot, e2e = (
        [getattr(s, f) for s in made.samples] for f in ("ttft_ms", "tpot_ms", "e2e_ms")
    )
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


@pytest.mark.parametrize(
    "sample", [Sample(5.0, 5.0, 1, ""), Sample(None, None, 0, "", "x"), Sample(5.0, None, 9, "")]
)
def test_no_time_per_token_below_two_tokens(sample):
    assert sample.tpot_ms is None


@few
@given(st.lists(st.floats(0.0001, 0.1), min_size=1, max_size=30), st.data())
def test_how_the_chunks_were_merged_does_not_matter(intervals, drawn):
    cuts = sorted(
        drawn.draw(st.sets(st.integers(1, len(intervals)), max_size=5)) | {0, len(intervals)}
    )
    merged = [math.fsum(intervals[a:b]) for a, b in itertools.pairwise(cuts)]
    tokens = len(intervals) + 1
    fine, _ = read(small({"tokens": tokens, "gaps_s": intervals})).samples
    coarse, _ = read(small({"tokens": tokens, "gaps_s": merged})).samples
    assert (coarse.tokens, coarse.tpot_ms) == (fine.tokens, pytest.approx(fine.tpot_ms))
    assert coarse.e2e_ms == pytest.approx(fine.e2e_ms)


@pytest.mark.parametrize("name", sorted(FIRST))
@pytest.mark.parametrize("value", [None, "missing", {}])
def test_a_field_that_is_missing_or_of_another_type_is_named(name, value):
    first = {key: held for key, held in FIRST.items() if key != name} | (
        {} if value == "missing" else {name: value}
    )
    with pytest.raises(BlockError, match=rf"the load client's result: .*{name}"):
        read({**small(), "requests": [first, SECOND]})


@pytest.mark.parametrize(
    "result",
    [
        small({"ttft_s": math.nan}),
        small({"ttft_s": math.inf}),
        small({"ttft_s": -1.0}),
        small({"gaps_s": [0.1, math.nan]}),
        small({"tokens": -3}),
        small({"tokens": 10**20}),
        small({"held_s": math.inf}, duration_s=math.nan),
        small(duration_s=math.nan),
        small(duration_s=math.inf),
        small(duration_s=0.0),
        small(duration_s=-1.0),
        small(duration_s=None),
        small(started=None),
    ],
)
def test_figures_that_cannot_have_been_measured_are_refused(result):
    with pytest.raises(BlockError):
        read(result)


@pytest.mark.parametrize(
    ("cell", "held_ms"), [(Cell("edits", 256, rate=2.0), 250.0), (Cell("edits", 8), 0.0)]
)
def test_only_an_open_loop_holds_requests_back(cell, held_ms):
    result = LoadResult.read(small({"held_s": 0.5, "ttft_s": 0.6}))
    made = Block.of(
        result, arm="candidate", cell=cell, repeat=0, prompts=("a", "b"), before=BEFORE, after=AFTER
    )
    assert made.held_ms == pytest.approx(held_ms)
    assert made.samples[0].ttft_ms == pytest.approx(600.0)


@pytest.mark.parametrize(
    ("first", "second", "cut", "id_count"),
    [
        ({"finish": "length", "ids": [1, 2, 3]}, {"finish": "stop", "ids": [4, 5]}, 1, 5),
        ({"finish": "length"}, {}, None, None),
        ({"ids": [1, 2, 3]}, {"finish": "stop"}, None, None),
        ({"error": "lost"}, {"finish": "length", "ids": [4, 5]}, 1, 2),
    ],
)
def test_answers_at_a_limit_and_token_ids_are_counted_where_every_answer_has_them(
    first, second, cut, id_count
):
    result = {**small(), "requests": [{**FIRST, **first}, {**SECOND, **second}]}
    made = read(result)
    assert (made.cut, made.id_count) == (cut, id_count)
    assert Block.from_record(made.to_record()) == made
    summary = ArmSummary.of(made.arm, [made, made])
    assert summary.cut == (None if cut is None else 2 * cut)


def test_the_stored_times_have_neither_texts_nor_tokens_nor_messages():
    result = LoadResult.read(small({"text": "secret", "ids": [4711], "error": "secret"}))
    packed = result.packed()
    rows = json.loads(gzip.decompress(base64.b64decode(packed["data"])))
    assert packed["encoding"] == "gzip+base64"
    assert rows == [[0.010, 0.0, [0.001, 0.002], 3], [0.020, 0.0, [0.004], 2]]


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
    made = read(small({"error": error, "ttft_s": 0.0}))
    assert made.samples[0].error == shown
    assert (made.samples[0].ttft_ms, made.samples[0].e2e_ms, made.samples[0].tokens) == (
        None,
        None,
        0,
    )
    assert made.completed == made.samples[1:]
    assert made.output_tokens == 2
    assert made.throughput == 1.0


def test_a_block_in_which_every_request_failed_is_none_and_names_the_first_reason():
    failed = {"error": "HTTP 400: no such role \x1b[2J", "ttft_s": 0.0}
    with pytest.raises(
        UnansweredError,
        match=r"all 2 requests failed, the first with HTTP 400: no such role \\u001b",
    ):
        read(small(failed, {"error": "HTTP 500", "ttft_s": 0.0}))
    assert read(small(failed)).first_error.startswith("HTTP 400")


def test_an_answer_without_tokens_is_a_failure():
    made = read(small({"tokens": 0}))
    assert [s.error for s in made.samples] == ["no output", ""]


def test_counters_that_cannot_be_differenced_are_not_hidden():
    with pytest.raises(CounterError):
        Block.of(
            LoadResult.read(small()),
            arm="candidate",
            cell=LOAD,
            repeat=0,
            prompts=("a", "b"),
            before=AFTER,
            after=BEFORE,
        )


def test_samples_carry_their_prompts_and_their_number_must_be_right():
    assert [s.prompt for s in read(small({"error": "boom"})).samples] == [
        prompt_digest("prompt 0"),
        prompt_digest("prompt 1"),
    ]
    with pytest.raises(BlockError, match="2 requests, 3 prompts were sent"):
        read(small(), count=3)


def test_answers_of_one_chunk_have_no_step_time():
    assert read(small({"gaps_s": []}, {"gaps_s": []})).step_ms is None


times = st.none() | st.floats(0, 1e6)
samples = st.builds(
    Sample,
    times,
    times,
    st.integers(0, 999),
    st.text(max_size=5),
    st.text(max_size=5),
    st.text(max_size=5),
)
seconds = st.just(0.0) | st.floats(SHORTEST_MS, 9)
spreads = st.none() | st.tuples(seconds, seconds, seconds)


@few
@given(st.lists(samples, max_size=4), st.floats(0.1, 99), st.integers(0, 9), spreads)
def test_blocks_round_trip_through_json(some, duration, repeat, steps):
    actual_block = Block(
        "baseline", EDITS, repeat, STARTED, duration, tuple(some), block("candidate").window, steps
    )
    assert Block.from_record(json.loads(json.dumps(actual_block.to_record()))) == actual_block


def test_a_real_block_round_trips():
    made = read(of_bench(bench()))
    assert Block.from_record(json.loads(json.dumps(made.to_record()))) == made


def test_an_error_that_repeats_the_prompt_is_left_out():
    prompt = "my name is Ada and my account is DE02 1203 0000 0000 2020 51"
    assert _without_prompt(f"400: invalid input: {prompt[5:45]}...", prompt) == (
        "the engine's message repeats the prompt and is left out"
    )
    assert _without_prompt("400: the prompt is too long", prompt) == "400: the prompt is too long"
    assert _without_prompt("anything", "") == "anything"
