"""Two arms, paired and condensed."""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import replace

import pytest
from measure_samples import EDITS, SPECULATING, block, pair, rounds_of, window

from mpctl.experiment.arm import ArmSummary
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.cell import Cell
from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.policy import Policy


def compared_in(blocks):
    return Comparison.of(EDITS, blocks)


def test_prompts_are_paired_by_repeat_and_place():
    blocks = [
        block(BASELINE, 0, texts=("a", "b")),
        block(CANDIDATE, 1, texts=("c", "x")),
        block(CANDIDATE, 0, texts=("a", "b")),
        block(BASELINE, 1, texts=("c", "d")),
    ]
    for order in itertools.permutations(blocks):
        made = compared_in(order)
        assert (made.compared, made.different) == (4, 1)


def test_only_prompts_answered_by_both_are_compared():
    made = compared_in(
        [
            block(BASELINE, texts=("a", None, "c", None)),
            block(CANDIDATE, texts=("a", "b", None, None)),
        ]
    )
    assert (made.compared, made.different) == (1, 0)
    assert (made.baseline.failed, made.candidate.failed) == (2, 2)


def test_newly_failed_are_the_prompts_that_the_baseline_alone_answered():
    """Paired by repeat and place: paired otherwise, these blocks give 1."""
    blocks = [
        block(BASELINE, 0, texts=("a", None)),
        block(CANDIDATE, 0, texts=(None, "b")),
        block(CANDIDATE, 1, texts=(None, None)),
        block(BASELINE, 1, texts=(None, "d")),
    ]
    for order in itertools.permutations(blocks):
        assert compared_in(order).newly_failed == 2


@pytest.mark.parametrize(
    ("base", "cand", "new"),
    [
        ("a", "a", 0),
        ("a", "x", 0),
        ("a", None, 1),
        (None, "a", 0),
        (None, None, 0),
    ],
)
def test_who_answered_one_prompt(base, cand, new):
    made = compared_in(
        [block(BASELINE, texts=("same", base)), block(CANDIDATE, texts=("same", cand))]
    )
    assert made.newly_failed == new
    assert made.compared == 1 + (base is not None and cand is not None)


def test_answers_without_text_are_not_taken_for_equal_ones():
    empty = hashlib.sha256(b"").hexdigest()
    made = compared_in(
        [
            block(BASELINE, texts=("a", empty, empty, "d")),
            block(CANDIDATE, texts=("a", empty, "c", empty)),
        ]
    )
    assert (made.compared, made.different, made.textless) == (3, 2, 1)
    swallowed = compared_in(pair(texts=(empty,) * 8))
    assert (swallowed.compared, swallowed.textless) == (0, 8)


def test_a_repeat_of_one_arm_alone_is_not_paired():
    made = compared_in([*pair(2), block(BASELINE, 1)])
    assert (made.compared, made.newly_failed) == (2, 0)
    assert len(made.round_ratios) == 1
    assert (made.baseline.blocks, made.candidate.blocks) == (2, 1)


def test_the_throughput_ratio_is_the_geometric_mean_of_the_rounds():
    blocks = [
        block(BASELINE, 0, seconds=1.0),
        block(CANDIDATE, 0, seconds=0.5),
        block(CANDIDATE, 1, seconds=3.0),
        block(BASELINE, 1, seconds=24.0),
    ]
    made = compared_in(blocks)
    assert made.round_ratios == pytest.approx((2.0, 8.0))
    assert made.throughput_ratio.value == pytest.approx(4.0)
    assert made.candidate.throughput == pytest.approx(40 / 3.5)


def test_medians_are_over_requests_not_over_blocks():
    blocks = [
        block(BASELINE, 0, texts=("a",), ttft=1.0),
        block(BASELINE, 1, texts=("b", "c", "d"), ttft=100.0),
        block(CANDIDATE, 0, texts=("a",)),
    ]
    arm = ArmSummary.of(BASELINE, blocks)
    assert (arm.ttft_ms, arm.requests, arm.blocks) == (100.0, 4, 2)
    assert arm.e2e_ms == pytest.approx(118.0)


def test_an_arm_without_blocks_has_no_figures():
    arm = ArmSummary.of(CANDIDATE, [block(BASELINE)])
    assert (arm.throughput, arm.tpot_ms, arm.ttft_ms, arm.window) == (None,) * 4
    nothing = compared_in([])
    assert (nothing.throughput_ratio, nothing.compared, nothing.newly_failed) == (None, 0, 0)


def test_windows_are_pooled():
    blocks = [
        block(CANDIDATE, r, window=w)
        for r, w in enumerate((SPECULATING, window(1000.0, 0.0, 0.0, 0.0)))
    ]
    assert ArmSummary.of(CANDIDATE, blocks).window.tokens_per_step == pytest.approx(1100 / 1040)


def test_requests_are_paired_by_prompt_wherever_they_stand():
    base, cand = pair(3)
    turned = replace(cand, samples=cand.samples[::-1])
    assert compared_in([base, turned]).different == compared_in([base, cand]).different == 0
    other = replace(
        cand, samples=tuple(replace(s, prompt=f"other {s.prompt}") for s in cand.samples)
    )
    assert compared_in([base, other]).compared == 0


def test_a_prompt_sent_twice_is_paired_turn_by_turn():
    def twice(made, texts):
        return replace(
            made,
            samples=tuple(
                replace(s, prompt="p", text_digest=t)
                for s, t in zip(made.samples, texts, strict=True)
            ),
        )

    base, cand = pair(2)
    assert compared_in([twice(base, "ab"), twice(cand, "ab")]).different == 0
    assert compared_in([twice(base, "ab"), twice(cand, "ba")]).different == 2


def test_repeats_are_counted_over_all_cells_of_a_class_of_traffic():
    first = pair(4)
    again = [replace(b, cell=Cell("edits", 8)) for b in pair(4)]
    chat = [replace(b, cell=Cell("chat", 8)) for b in pair(4)]
    analysis = Analysis.of([*first, *again, *chat], Policy())
    assert [(c.cell.key, c.repeated, c.sent) for c in analysis.cells] == [
        ("chat-c8-t0", 0, 4),
        ("edits-c1-t0", 4, 8),
        ("edits-c8-t0", 4, 8),
    ]
    assert analysis.of_cell(EDITS).repeated == 4
    with pytest.raises(KeyError):
        analysis.of_cell(Cell("math", 1))


def test_the_time_per_token_ratio_is_the_geometric_mean_over_prompts():
    made = compared_in(rounds_of(3, faster=(2.0, 8.0)))
    time_per_token_ratio = made.time_per_token_ratio
    assert time_per_token_ratio.value == pytest.approx(0.25)
    assert sorted(made.time_per_token_ratios) == pytest.approx([0.125] * 3 + [0.5] * 3)
    assert (time_per_token_ratio.n, time_per_token_ratio.low, time_per_token_ratio.high) == (
        3,
        pytest.approx(0.25 / 1.1),
        pytest.approx(0.25 * 1.1),
    )


def test_engine_clocks_are_preferred_and_the_client_stands_in_for_both():
    fields = {"ttft_seconds": 1.0, "ttft_count": 10.0, "tpot_seconds": 0.1, "tpot_count": 10.0}
    timed = [replace(b, window=replace(b.window, **fields)) for b in rounds_of(3)]
    assert compared_in(timed).intervals["ttft"].value == pytest.approx(1.0)
    mixed = [b if b.arm == BASELINE else replace(b, window=window(100.0)) for b in timed]
    slow = [
        replace(b, samples=tuple(replace(s, ttft_ms=30.0) for s in b.samples))
        if b.arm == CANDIDATE
        else b
        for b in mixed
    ]
    assert compared_in(slow).intervals["ttft"].value == pytest.approx(3.0)
    assert "queue_wait" not in compared_in(slow).intervals


@pytest.mark.parametrize(("late", "counted"), [(1, 5), (2, 4), (3, None)])
def test_rounds_whose_requests_were_counted_after_them_have_no_queue_wait(late, counted):
    """Of an engine that counts a request when its answer was read; half of the rounds may not be among them."""

    def waited(block):
        count = 0.0 if block.arm == BASELINE and block.repeat < late else 1.0
        return replace(block, window=replace(block.window, queue_seconds=0.1, queue_count=count))

    interval = compared_in(map(waited, rounds_of(6))).intervals.get("queue_wait_ms")
    assert (None if interval is None else interval.n) == counted


def at_once(blocks, rounds):
    """The blocks, with answers of the candidate that arrived in one chunk in some rounds."""
    return [
        replace(b, samples=tuple(replace(s, e2e_ms=s.ttft_ms) for s in b.samples))
        if b.arm == CANDIDATE and b.repeat in rounds
        else b
        for b in blocks
    ]


def test_a_round_with_a_mean_of_zero_leaves_the_ratio_of_the_others():
    blocks = rounds_of(20)
    others = compared_in(blocks).intervals["tpot"]
    with_one = compared_in(at_once(blocks, {7})).intervals["tpot"]
    assert with_one.value == pytest.approx(others.value)
    assert with_one.n == others.n - 1
    assert "tpot" not in compared_in(at_once(blocks, range(5, 10))).intervals


def test_client_times_are_held_against_the_engines():
    timed = replace(block(BASELINE), window=window(20.0, ttft_seconds=0.008, ttft_count=2.0))
    arm = ArmSummary.of(BASELINE, [timed])
    assert (arm.ttft_ms, arm.ttft.p50) == (4.0, 10.0)
    assert arm.client_lag == pytest.approx(6.0 / 28.0)
    assert ArmSummary.of(BASELINE, [block(BASELINE)]).client_lag is None


def test_percentiles_and_step_times():
    arm = ArmSummary.of(BASELINE, [block(BASELINE, r, steps=(1.0 + r, 2.0, 3.0)) for r in range(3)])
    assert arm.steps == (2.0, 2.0, 3.0)
    assert (arm.e2e.p50, arm.e2e.p90, arm.e2e.p99, arm.e2e.n) == (28.0, 28.0, 28.0, 6)
    assert math.isclose(arm.throughput, 60 / 3.0)
