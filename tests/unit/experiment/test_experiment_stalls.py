"""Requests that stall are cut, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpctl.experiment.cell import Cell
from mpctl.experiment.pairing import STALL, Pairing
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import assess
from mpctl.gate.policy import Policy
from tests.simulation.measurements import TOKENS, Truth, rounds

QUIET = Truth(prompts=4, block_sigma=0.0, request_sigma=0.05, prompt_sigma=0.1)


def measured(truth=QUIET, count=12):
    return [b for both in rounds(truth, count, 3) for b in both]


def stalled(block, factor, *, number=0):
    """The block with one request that took ``factor`` times as long, by both clocks."""
    old = block.samples[number]
    more = (factor - 1.0) * old.e2e_ms
    samples = (
        *block.samples[:number],
        replace(old, e2e_ms=old.e2e_ms + more),
        *block.samples[number + 1 :],
    )
    window = replace(
        block.window, tpot_seconds=block.window.tpot_seconds + more / 1000 / (TOKENS - 1)
    )
    return replace(block, samples=samples, duration_s=block.duration_s + more / 1000, window=window)


def with_stall(blocks, arm, factor=50.0):
    return [stalled(b, factor) if b.arm == arm and b.repeat == 4 else b for b in blocks]


@pytest.mark.parametrize("arm", ["baseline", "candidate"])
def test_a_stall_counts_as_three_times_its_partner(arm):
    blocks = measured()
    plain, raw = (Pairing.of(b) for b in (blocks, with_stall(blocks, arm)))
    cut = raw.without_stalls()
    side = 0 if arm == "baseline" else 1
    pair = cut.rounds[4].pairs[0]
    assert pair[side].e2e_ms == pytest.approx(STALL * pair[1 - side].e2e_ms, rel=0.3)
    assert pair[1 - side] == plain.rounds[4].pairs[0][1 - side]
    for logs in ("throughput_logs", "time_per_token_logs"):
        ideal, seen, found = (getattr(p, logs)()[4] for p in (plain, raw, cut))
        assert abs(found - ideal) < 0.6
        assert abs(seen - ideal) > 0.7
    ideal, seen, found = (p.times("tpot_ms")[4][side] for p in (plain, raw, cut))
    assert seen > 8 * ideal
    assert ideal < found < 2 * ideal
    others = [n for n in range(12) if n != 4]
    assert [cut.throughput_logs()[n] for n in others] == [
        plain.throughput_logs()[n] for n in others
    ]


def test_a_prompt_that_is_slow_on_both_arms_and_a_large_gain_are_no_stalls():
    blocks = measured()
    both = [stalled(b, 50.0) if b.repeat == 4 else b for b in blocks]
    assert Pairing.of(both).without_stalls() == Pairing.of(both)
    fast = measured(replace(QUIET, tpot=0.1, ttft_ms=10.0))
    assert Pairing.of(fast).without_stalls() == Pairing.of(fast)


def test_the_engine_s_sums_stay_where_its_clock_does_not_agree():
    blocks = [
        replace(b, window=replace(b.window, tpot_seconds=b.window.tpot_seconds * 2))
        for b in with_stall(measured(), "candidate")
    ]
    raw = Pairing.of(blocks)
    assert raw.without_stalls().times("tpot_ms") == raw.times("tpot_ms")
    assert raw.without_stalls().throughput_logs() != raw.throughput_logs()


def test_at_a_rate_the_duration_is_that_of_the_arrivals():
    blocks = [
        replace(b, cell=Cell("simulated", 1, rate=1.0)) for b in with_stall(measured(), "candidate")
    ]
    raw = Pairing.of(blocks)
    assert raw.without_stalls().throughput_logs() == raw.throughput_logs()
    assert raw.without_stalls().time_per_token_logs() != raw.time_per_token_logs()


def test_failed_requests_and_answers_without_times_are_left():
    blocks = measured()
    failed = [
        replace(
            b,
            samples=(
                replace(b.samples[0], ttft_ms=None, e2e_ms=None, tokens=0, error="x"),
                *b.samples[1:],
            ),
        )
        if b.arm == "candidate"
        else b
        for b in blocks
    ]
    assert Pairing.of(failed).without_stalls() == Pairing.of(failed)


def test_stalls_on_both_arms_do_not_leave_a_gain_open():
    """Two rounds in seven have a stall on one of the arms, of 5 times: a fifth of the rounds, half of them cut off."""
    policy = Policy(min_tokens_per_step=0, max_failed_excess=1.0)
    blocks = measured(replace(QUIET, tpot=0.5), 24)
    hit = [
        stalled(b, 5.0, number=b.repeat % 4)
        if b.repeat % 7 in (2, 5) and (b.arm == "baseline") == (b.repeat % 7 == 2)
        else b
        for b in blocks
    ]
    verdict = assess(Analysis.of(hit, policy, rounds=24, planned=24))
    values_by_rule = {r.rule: r.outcome.value for r in verdict.rules}
    assert {values_by_rule[name] for name in ("E2E", "TPOT", "TTFT", "time per token")} == {"pass"}
