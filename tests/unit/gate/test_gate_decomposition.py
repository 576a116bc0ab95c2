"""Throughput ratios decomposed."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from measure_samples import EDITS, rounds_of, window

from mpctl.gate.analysis import Comparison
from mpctl.gate.decomposition import Decomposition
from mpctl.records import encode
from mpctl.stats.confidence import Interval

TIMES = {"ttft_count": 1.0, "tpot_count": 1.0, "ttft_seconds": 0.1}


def example(*, drafted=193.0, tpot=24.2, seconds=25.9, base_tpot=60.2):
    """The Modelplane example on an L4: 1045 tokens, 60.2 ms each without, 24.2 ms with n-gram drafts of acceptance
    length 4.27, in about 415 steps of which some 193 carried one."""
    comparison = Comparison.of(EDITS, rounds_of(3))
    accepted = 630.0
    base = window(1045.0, tpot_seconds=base_tpot / 1000, **TIMES)
    cand = window(
        1045.0, drafted, 5 * drafted, accepted, (accepted,), tpot_seconds=tpot / 1000, **TIMES
    )
    ratio = Interval(62.9 / seconds, None, None, 3, "rounds", 0.975)
    return replace(
        comparison,
        intervals={"throughput_ratio": ratio},
        baseline=replace(comparison.baseline, window=base, output_tokens=1045, seconds=62.9),
        candidate=replace(comparison.candidate, window=cand, output_tokens=1045, seconds=seconds),
    )


def test_why_not_what_the_drafts_promise():
    decomposition = Decomposition.of(example())
    assert decomposition.promised == pytest.approx(4.264, abs=0.001)
    assert decomposition.throughput_ratio == pytest.approx(62.9 / 25.9)
    assert {p.name: round(p.factor, 3) for p in decomposition.parts} == {
        "drafts": 4.264,
        "steps without a draft": 0.591,
        "step time": 0.988,
        "all but decoding": 0.976,
    }
    assert decomposition.sentence == (
        "2.43x and not 4.26x: 53% of the steps carried no draft (x 0.59); first tokens, queueing and the client are no "
        "faster (x 0.98); a step that drafts and verifies takes 60.9 ms, one of the baseline 60.2 ms (x 0.99)"
    )


def test_a_steps_time_is_that_of_all_steps_alike():
    """Mean TPOT weighs a request of five tokens as one of five hundred: 19.3 ms were shown for a step of 10.7."""
    actual_example = example()
    base = replace(
        actual_example.baseline.window, itl_seconds=10.35, itl_count=1035.0, ttft_count=10.0
    )
    cand = replace(
        actual_example.candidate.window, itl_seconds=0.0107 * 405, itl_count=405.0, ttft_count=10.0
    )
    actual_example = replace(
        actual_example,
        baseline=replace(actual_example.baseline, window=base),
        candidate=replace(actual_example.candidate, window=cand),
    )
    decomposition = Decomposition.of(actual_example)
    step = next(p for p in decomposition.parts if p.name == "step time")
    assert step.text == "a step that drafts and verifies takes 10.7 ms, one of the baseline 10.0 ms"
    assert step.factor == pytest.approx(10.0 / 10.7)
    assert math.prod(p.factor for p in decomposition.parts) == pytest.approx(
        decomposition.throughput_ratio
    )


def test_what_makes_no_difference_is_not_called_faster():
    actual_example = example()
    whole = Decomposition.of(actual_example)
    exact = whole.parts[-2].after  # what decoding alone gives
    same = replace(
        actual_example,
        intervals={"throughput_ratio": Interval(1.004 * exact, None, None, 3, "rounds", 0.975)},
    )
    assert (
        Decomposition.of(same).parts[-1].text
        == "first tokens, queueing and the client are as fast as decoding"
    )


def test_an_open_loop_is_not_decomposed():
    """As many tokens come out as are asked for: the ratio of throughputs says nothing of the drafts."""
    assert Decomposition.of(replace(example(), cell=replace(EDITS, rate=4.0))) is None


@pytest.mark.parametrize(
    "changes", [{}, {"drafted": 415.0}, {"tpot": 40.0}, {"seconds": 20.0}, {"base_tpot": 20.0}]
)
def test_the_factors_multiply_to_the_measured_throughput_ratio(changes):
    decomposition = Decomposition.of(example(**changes))
    assert math.prod(p.factor for p in decomposition.parts) == pytest.approx(
        decomposition.throughput_ratio
    )
    assert decomposition.parts[-1].after == pytest.approx(decomposition.throughput_ratio)
    assert json.loads(json.dumps(encode(decomposition)))["parts"][0]["name"] == "drafts"


def test_what_got_faster_is_said_too():
    assert "; in return " in Decomposition.of(example(seconds=20.0)).sentence


def test_a_baseline_that_speculates_has_a_factor_of_its_own():
    actual_example = example()
    base = replace(
        actual_example.baseline,
        window=replace(actual_example.candidate.window, tpot_seconds=0.0602),
    )
    parts = Decomposition.of(replace(actual_example, baseline=base)).parts
    assert {p.name: round(p.factor, 3) for p in parts}["baseline speculates"] == 0.397
    assert math.prod(p.factor for p in parts) == pytest.approx(
        actual_example.throughput_ratio.value
    )


@pytest.mark.parametrize("missing", ["window", "speculation", "time", "rounds"])
def test_nothing_is_decomposed_that_was_not_measured(missing):
    actual_example = example()
    cand = actual_example.candidate
    changed = {
        "window": replace(cand, window=None),
        "speculation": replace(cand, window=window(1045.0)),
        "time": replace(cand, window=replace(cand.window, tpot_count=0.0), tpot=None),
        "rounds": cand,
    }[missing]
    intervals = {} if missing == "rounds" else actual_example.intervals
    assert Decomposition.of(replace(actual_example, candidate=changed, intervals=intervals)) is None


def test_a_share_of_no_steps_has_no_sign():
    actual_example = example()
    full = replace(
        actual_example.candidate.window, itl_count=190.0, ttft_count=2.0, itl_seconds=1.0
    )
    part = Decomposition.of(
        replace(actual_example, candidate=replace(actual_example.candidate, window=full))
    )
    assert {p.name: p.text for p in part.parts}[
        "steps without a draft"
    ] == "0% of the steps carried no draft"
