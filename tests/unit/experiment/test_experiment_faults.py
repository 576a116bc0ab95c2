"""Damaged data through the front door: times and expositions in, a named outcome out, never a pass."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from measure_samples import DATA, EDITS, QUEUE, TIMED, rounds_of, timed, window

from mpctl.experiment.block import CANDIDATE, Block, BlockError, LoadResult, StreamedRequest
from mpctl.experiment.counters import CounterError, Counters
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import assess
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome

BEFORE = (DATA / "metrics_ngram_before_requests.txt").read_text()
AFTER = (DATA / "metrics_ngram_after_load.txt").read_text()
BOTH = {"before": BEFORE, "after": AFTER}
REQUESTS = (
    StreamedRequest(0.010, 0.0, (0.001, 0.002), 3, "abc", ""),
    StreamedRequest(0.020, 0.0, (0.004,), 2, "de", ""),
)


def read(before=BEFORE, after=AFTER, duration_s=2.0, **changes):
    """A block of two requests; ``changes`` of the first."""
    first, second = REQUESTS
    return Block.of(
        LoadResult("2026-11-21T04:58:46+00:00", duration_s, (replace(first, **changes), second)),
        arm=CANDIDATE,
        cell=EDITS,
        repeat=0,
        prompts=("a", "b"),
        before=Counters.parse(before),
        after=Counters.parse(after),
    )


def line(text, name, value):
    """The exposition with another value of one counter."""
    changed = [
        f"{row.rpartition(' ')[0]} {value}" if row.startswith((f"{name}{{", f"{name} ")) else row
        for row in text.split("\n")
    ]
    assert changed != text.split("\n")
    return "\n".join(changed)


def without(text, name):
    return "\n".join(row for row in text.split("\n") if not row.startswith(name))


def judged(change):
    """The verdict over four good rounds in which every block of the candidate was changed."""
    blocks = timed(rounds_of(4, jitter=0.02))
    return assess(Analysis.of([change(b) if b.arm == CANDIDATE else b for b in blocks], Policy()))


def outcome_of(verdict, rule):
    return next(r.outcome for r in verdict.rules if r.rule == rule)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["ttft_s", "gaps_s", "duration_s"])
def test_times_that_are_no_numbers_are_refused(field, value):
    with pytest.raises(BlockError):
        read(**{field: (value,) if field == "gaps_s" else value})


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_counters_that_are_no_numbers_are_named(value):
    with pytest.raises(
        CounterError, match=f"generation_tokens_total is {value.strip('+').lower()}"
    ):
        read(after=line(AFTER, "vllm:generation_tokens_total", value))


def test_an_empty_window_is_undecided():
    """Answers came, but the engine that was asked counted nothing: they came from another one."""
    made = read(before=AFTER, after=AFTER)
    assert made.window.tokens_per_step is None
    verdict = judged(lambda b: replace(b, window=made.window))
    assert verdict.outcome is Outcome.UNDECIDED
    assert "tokens by usage, 0 by the engine (at most 5% apart): it does" in str(verdict.reasons)


def test_a_counter_that_went_back_is_named():
    with pytest.raises(
        CounterError, match=r"vllm:generation_tokens_total went back from 8252 to 100"
    ):
        read(before=AFTER, after=line(AFTER, "vllm:generation_tokens_total", "100"))


def test_an_engine_that_restarted_inside_a_block_is_named():
    """Even where every counter has meanwhile passed its old value."""
    again = line(AFTER, "process_start_time_seconds", "1.9e9")
    with pytest.raises(CounterError, match="the engine restarted inside the window"):
        read(after=again)


@pytest.mark.parametrize(
    ("texts", "repeats"),
    [
        ({"after": line(AFTER, "process_start_time_seconds", "1.9e9")}, True),
        (
            {name: without(text, "vllm:generation_tokens_total") for name, text in BOTH.items()},
            False,
        ),
        ({name: text.replace("vllm:", "ray_vllm_") for name, text in BOTH.items()}, False),
        ({name: text.replace("vllm:", "llamacpp:") for name, text in BOTH.items()}, False),
        ({"after": "<html>not here</html>"}, False),
    ],
)
def test_a_command_is_repeated_only_where_another_try_can_read_the_counters(texts, repeats):
    with pytest.raises(CounterError) as raised:
        read(**texts)
    assert ("again" in raised.value.hint) is repeats


def test_a_series_that_is_missing_leaves_its_rules_undecided():
    with pytest.raises(CounterError, match="vllm:generation_tokens_total is missing"):
        read(
            before=without(BEFORE, "vllm:generation_tokens_total"),
            after=without(AFTER, "vllm:generation_tokens_total"),
        )
    with pytest.raises(
        CounterError, match="request_queue_time_seconds_sum disappeared inside the window"
    ):
        read(after=without(AFTER, "vllm:request_queue_time_seconds"))
    unqueued = judged(
        lambda b: replace(b, window=replace(b.window, queue_seconds=None, queue_count=None))
    )
    assert (unqueued.outcome, outcome_of(unqueued, "queue wait")) == (
        Outcome.UNDECIDED,
        Outcome.MISSING,
    )
    untimed = judged(lambda b: replace(b, window=replace(b.window, tpot_seconds=None)))
    assert outcome_of(untimed, "TPOT") is Outcome.PASS  # the client's times stand in, on both arms
    off = judged(lambda b: replace(b, window=window(b.window.generation_tokens, **TIMED)))
    assert (off.outcome, outcome_of(off, "tokens per step")) == (Outcome.REJECT, Outcome.FAIL)


def test_a_series_duplicated_per_engine_label_is_refused_and_several_engines_are_summed():
    with pytest.raises(CounterError, match="duplicate series"):
        read(after=AFTER + AFTER)
    second = "\n".join(
        row.replace('engine="0"', 'engine="1"')
        for row in AFTER.split("\n")
        if row.startswith("vllm:spec_decode_num")
    )
    counters, two = Counters.parse(AFTER), Counters.parse(f"{AFTER}\n{second}\n")
    assert (two.accepted, two.drafts) == (2 * counters.accepted, 2 * counters.drafts)
    assert two.per_position == tuple(2 * p for p in counters.per_position)


def test_a_stream_whose_chunks_carry_several_tokens_is_measured_right():
    """Published: a client that counts chunks found 24.6 tok/s where there were 41; 256 tokens came in 153 chunks."""
    tokens, chunks, seconds = 256, 153, 6.2
    made = read(
        ttft_s=0.1,
        gaps_s=(seconds / (chunks - 1),) * (chunks - 1),
        tokens=tokens,
        duration_s=seconds + 0.1,
    )
    assert made.samples[0].tpot_ms == pytest.approx(1000 * seconds / (tokens - 1))
    assert made.throughput == pytest.approx((tokens + 2) / (seconds + 0.1))
    assert made.step_ms[0] == pytest.approx(
        1000 * seconds / (chunks - 1)
    )  # shown as what it is: the step


def test_answers_that_are_all_errors_reject():
    def broken(made):
        failed = tuple(
            replace(s, ttft_ms=None, e2e_ms=None, tokens=0, error="500") for s in made.samples
        )
        return replace(made, samples=failed, window=window(0.0, 0.0, 0.0, 0.0, (), **QUEUE))

    verdict = judged(broken)
    assert (verdict.outcome, outcome_of(verdict, "errors")) == (Outcome.REJECT, Outcome.FAIL)
