"""Verdicts over several classes of traffic and several loads."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from measure_samples import rounds_of
from test_gate_rules import OTHER_TOKEN, rounds_compared, timed

from mpctl.experiment.cell import Cell
from mpctl.gate.advice import more_to_decide
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import assess
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.records import decode, encode
from tests.simulation.measurements import Truth, rounds

PROMOTE, REJECT, UNDECIDED = Outcome.PROMOTE, Outcome.REJECT, Outcome.UNDECIDED


ALIKE = Policy(
    max_pod_gap=0.0, max_failed_excess=0.11
)  # engines that differ in nothing: the rules alone


def cell_blocks(traffic, speedup, *, concurrency=1, jitter=0.01, count=4):
    blocks = timed(
        rounds_of(count, faster=(speedup,) * 8, jitter=jitter, cell=Cell(traffic, concurrency))
    )
    return [
        replace(b, samples=tuple(replace(s, prompt=f"{concurrency}/{s.prompt}") for s in b.samples))
        for b in blocks
    ]


def of_run(analysis, **changes):
    """The analysis of the same measurement under other conditions."""
    return replace(analysis, run=replace(analysis.run, **changes))


def judged(*parts, shares=None, policy=None):
    blocks = [b for part in parts for b in part]
    return assess(of_run(Analysis.of(blocks, policy or ALIKE), shares=shares or {}))


EDITS, CHAT = cell_blocks("edits", 2.4), cell_blocks("chat", 0.7)


def test_promote_for_edits_reject_for_chat():
    verdict = judged(EDITS, CHAT, shares={"edits": 0.7, "chat": 0.3})
    assert {c.cell.traffic: c.outcome for c in verdict.cells} == {"edits": PROMOTE, "chat": REJECT}
    assert verdict.outcome is REJECT
    assert (
        verdict.summary
        == "promote for edits (70% of the traffic); reject for chat (30% of the traffic)"
    )
    assert verdict.reasons[0] == verdict.summary
    assert all(r.startswith("chat, 1 at once: ") for r in verdict.reasons[1:])


def test_a_small_share_may_be_slower():
    shares = {"edits": 0.95, "chat": 0.05}
    verdict = judged(EDITS, CHAT, shares=shares)
    assert verdict.outcome is PROMOTE
    assert verdict.summary.endswith("; 5% of the traffic is slower (at most 10%)")
    assert (
        judged(EDITS, CHAT, shares=shares, policy=replace(ALIKE, max_rejected_share=0.04)).outcome
        is REJECT
    )
    assert (
        judged(CHAT, shares={"chat": 0.05}).outcome is REJECT
    )  # what was measured is all there is


def test_no_share_is_small_enough_to_be_answered_wrong():
    """One class in a hundred may be slower; that its requests fail or are answered wrong is no matter of speed."""
    failing = [
        replace(
            b,
            samples=tuple(
                replace(s, error="refused", ttft_ms=None, e2e_ms=None, tokens=0) for s in b.samples
            ),
        )
        if b.arm == "candidate"
        else b
        for b in cell_blocks("chat", 2.4)
    ]
    verdict = judged(EDITS, failing, shares={"edits": 0.99, "chat": 0.01})
    assert verdict.outcome is REJECT
    assert verdict.summary.endswith("; rules about answers are not weighted by a share: errors")
    assert any("chat, 1 at once: " in reason for reason in verdict.reasons)
    blocks = [*EDITS, *cell_blocks("chat", 2.4)]
    wrong = replace(
        rounds_compared(OTHER_TOKEN, candidate=1, alone=1), cells=Analysis.of(blocks, ALIKE).cells
    )
    assert assess(of_run(wrong, shares={"edits": 0.99, "chat": 0.01})).outcome is REJECT


@pytest.mark.parametrize(
    ("speedups", "outcome"),
    [((2.4, 2.0), PROMOTE), ((2.4, 1.0), UNDECIDED), ((0.7, 1.0), REJECT), ((1.0, 1.0), UNDECIDED)],
)
def test_classes_together(speedups, outcome):
    parts = [
        cell_blocks(name, s, jitter=0.05) for name, s in zip(("a", "b"), speedups, strict=True)
    ]
    assert judged(*parts).outcome is outcome


def test_without_shares_classes_weigh_the_same_and_cells_divide_their_class():
    verdict = judged(EDITS, cell_blocks("edits", 2.0, concurrency=8), CHAT)
    assert [(c.cell.key, c.share) for c in verdict.cells] == [
        ("chat-c1-t0", 0.5),
        ("edits-c1-t0", 0.25),
        ("edits-c8-t0", 0.25),
    ]


def test_the_crossover_is_named():
    """Published: eagle3 on InstructCoder gains 1.53x at 64 requests and has 0.94x at 256 (vllm-scripts@d94714)."""
    loads = {1: 1.98, 64: 1.53, 256: 0.94}
    verdict = judged(*(cell_blocks("code", s, concurrency=c) for c, s in loads.items()))
    (cross,) = verdict.crossovers
    assert (cross.traffic, cross.pays, cross.costs) == ("code", 64, 256)
    assert cross.near == pytest.approx(215, abs=1)
    assert "code pays up to 64 at once and no longer at 256, near 215" in verdict.summary
    assert "promote for code, 1 at once; code, 64 at once (67% of the traffic)" in verdict.summary
    assert judged(EDITS, cell_blocks("edits", 2.0, concurrency=8)).crossovers == ()


def test_noise_has_no_crossover():
    """Equal arms cross 1 somewhere by chance; what is not sure to pay or to cost says nothing, and is passed over."""
    loads = {1: 1.02, 8: 0.98, 32: 1.01}
    assert (
        judged(
            *(cell_blocks("a", s, concurrency=c, jitter=0.1) for c, s in loads.items())
        ).crossovers
        == ()
    )
    unsure = cell_blocks("a", 1.0, concurrency=8, jitter=0.1)
    (cross,) = judged(
        cell_blocks("a", 2.0, jitter=0.01),
        unsure,
        cell_blocks("a", 0.5, concurrency=64, jitter=0.01),
    ).crossovers
    assert (cross.pays, cross.costs, cross.near) == (1, 64, pytest.approx(8, rel=0.05))


def test_rates_have_no_crossover():
    open_loop = [replace(b, cell=Cell("edits", 64, 0.0, 4.0)) for b in cell_blocks("edits", 0.7)]
    assert judged(EDITS, open_loop).crossovers == ()


def test_several_cells_round_trip_and_need_what_the_undecided_one_needs():
    noisy = cell_blocks("chat", 1.1, jitter=0.2)
    analysis = Analysis.of((*EDITS, *noisy), ALIKE)
    verdict = assess(analysis)
    assert verdict.outcome is UNDECIDED
    more, chat = more_to_decide(analysis, verdict), analysis.cells[0]  # edits are promoted
    assert more.requests == 8 * (more.repeats - 4) > 0
    assert more.seconds == pytest.approx(more.requests / 8 * chat.round_seconds)
    assert decode(Verdict, json.loads(json.dumps(encode(verdict), allow_nan=False))) == verdict
    crossed = judged(EDITS, cell_blocks("edits", 0.7, concurrency=8))
    assert decode(Verdict, json.loads(json.dumps(encode(crossed), allow_nan=False))) == crossed


@pytest.mark.parametrize(
    ("prompts", "cells", "share"),
    [
        (1, (Cell("chat", 1),), 2),
        (2, (Cell("chat", 1),), 1),
        (1, (Cell("chat", 1), Cell("thinking", 1)), 1),  # as variants are planned
    ],
)
def test_a_measurement_that_went_on_in_rounds_of_one_prompt_names_rounds_of_two(
    prompts, cells, share
):
    """The next one is planned with two, and goes on with one again where its untimed requests say so."""
    both = rounds(Truth(tpot=0.9, prompts=prompts, accepted=0.6), 20, 1)
    blocks = [replace(block, cell=cell) for pair in both for block in pair for cell in cells]
    policy = replace(ALIKE, max_repeated=1.0)
    analysis = Analysis.of(blocks, policy)
    more = more_to_decide(analysis, assess(analysis))
    assert more.repeats == math.ceil((20 + more.requests / prompts) / share)
    at_a_rate = [replace(block, cell=Cell("chat", 64, 0.0, 4.0)) for block in blocks]
    assert not Analysis.of(at_a_rate, policy).in_single_prompts


def test_more_cells_make_rejecting_harder_not_promoting():
    """One cell that rejects is enough, so each may err by less; promoting takes all of them."""
    alone = (
        Analysis.of(cell_blocks("a", 1.5, jitter=0.1), ALIKE).cells[0].intervals["throughput_ratio"]
    )
    parts = [cell_blocks(name, 1.5, jitter=0.1) for name in "abcd"]
    among = Analysis.of([b for p in parts for b in p], ALIKE).cells[0].intervals["throughput_ratio"]
    assert among.low == pytest.approx(alone.low)
    assert among.high > alone.high


def _one_class_loses(winner, loser, share):
    parts = [cell_blocks("edits", 1 / winner, count=12), cell_blocks("chat", 1 / loser, count=12)]
    return judged(*parts, shares={"edits": 1 - share, "chat": share})


def test_a_class_ten_times_slower_is_never_promoted():
    """Nine of ten requests at 0.8x hid a tenth at 10x: promoted, though the machine works 1.62x as long."""
    for share in (0.1, 0.01):
        verdict = _one_class_loses(0.8, 10.0, share)
        assert verdict.outcome is REJECT
        assert "chat, 1 at once takes 10.01x the time per token (at most 2.00x" in verdict.summary


def test_classes_that_lose_must_be_outweighed_in_machine_time():
    assert _one_class_loses(0.8, 1.5, 0.1).outcome is PROMOTE
    verdict = _one_class_loses(0.97, 1.9, 0.1)
    assert verdict.outcome is not PROMOTE
    assert "machine time per request 1.0" in verdict.summary
