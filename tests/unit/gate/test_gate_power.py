"""What a plan says that it will find, against the gate on measurements of known truth."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mpctl.experiment.cell import Cell
from mpctl.experiment.workload import Traffic, Workload
from mpctl.gate.analysis import SETTLED_FROM, Analysis, ArmOrder
from mpctl.gate.assess import assess
from mpctl.gate.policy import Policy
from mpctl.gate.power import (
    CellNoise,
    MeasurementNoise,
    chance_to_promote,
    describe_power,
    most_rounds,
    rounds_to_detect,
)
from mpctl.stats.confidence import gap_beyond
from mpctl.stats.sequential import FIRST_LOOK, chance_to_show
from tests.simulation.measurements import TOKENS, TPOT_MS, Truth, rounds

PLAIN = Policy(min_tokens_per_step=0, max_failed_excess=1.0)  # no request fails here
CLASS = Traffic("simulated", tuple(f"prompt {n}" for n in range(400)))
WORKLOAD = Workload((CLASS,), repeats=12, requests=4)


def noise_of(truth, count=60):
    blocks = [b for both in rounds(truth, count, 77) for b in both]
    return MeasurementNoise.of(Analysis.of(blocks, PLAIN), "an earlier measurement")


def promoted(truth, planned, repetitions):
    """The share of simulated measurements that the gate ends with a promotion."""
    hits = 0
    for seed in range(repetitions):
        blocks = []
        for look, both in enumerate(rounds(truth, planned, seed), start=1):
            blocks += both
            if look < FIRST_LOOK:
                continue
            outcome = assess(Analysis.of(blocks, PLAIN, rounds=look, planned=planned)).outcome.value
            if outcome != "undecided":
                hits += outcome == "promote"
                break
    return hits / repetitions


@pytest.mark.parametrize(("block_sigma", "tpot"), [(0.05, 0.72), (0.2, 0.6)])
def test_the_gate_finds_as_often_as_the_plan_said(block_sigma, tpot):
    truth = Truth(block_sigma=block_sigma, prompts=4)
    whole = truth.ttft_ms + (TOKENS - 1) * TPOT_MS
    gain = 1 - (truth.ttft_ms + (TOKENS - 1) * TPOT_MS * tpot) / whole
    chance = chance_to_promote(noise_of(truth), WORKLOAD, PLAIN, gain)
    assert 0.3 < chance < 0.95  # where a wrong figure would show
    assert promoted(replace(truth, tpot=tpot), 12, 60) == pytest.approx(chance, abs=0.17)


def test_larger_blocks_average_prompts_but_not_the_machine():
    quiet, shared = (noise_of(Truth(block_sigma=sigma, prompts=4)).cells[0] for sigma in (0.0, 0.4))
    name = "time_per_token_ratio"
    assert quiet.of_blocks(16).spreads[name] == pytest.approx(quiet.spreads[name] / 2, rel=0.2)
    assert shared.of_blocks(16).spreads[name] > 0.8 * shared.spreads[name]
    assert shared.of_blocks(4).spreads[name] == pytest.approx(shared.spreads[name])


def test_the_rounds_that_detect_a_gain_are_the_fewest():
    noise = noise_of(Truth(prompts=4))
    actual_rounds = rounds_to_detect(noise, WORKLOAD, PLAIN, 0.25)
    chances = [
        chance_to_promote(noise, replace(WORKLOAD, repeats=n), PLAIN, 0.25)
        for n in (actual_rounds - 1, actual_rounds)
    ]
    assert chances[0] < PLAIN.power <= chances[1]


def test_a_gain_beyond_the_prompts_is_out_of_reach():
    noise = noise_of(Truth(prompts=4))
    assert most_rounds(WORKLOAD) == 99
    assert rounds_to_detect(noise, WORKLOAD, PLAIN, 0.02) is None


def test_two_rounds_that_agree_by_chance_are_no_quiet_machine():
    blocks = [b for both in rounds(Truth(prompts=4), 2, 5) for b in both]
    (cell,) = MeasurementNoise.of(Analysis.of(blocks, PLAIN), "two rounds").cells
    assert cell.spreads["time_per_token_ratio"] >= cell.prompt_spread / 2


def test_one_round_shows_no_noise():
    blocks = list(next(rounds(Truth(), 1, 1)))
    assert MeasurementNoise.of(Analysis.of(blocks, PLAIN), "one round") is None


def test_the_noise_of_a_cell_is_that_of_its_load_first():
    cells = [
        CellNoise(t, c, 4.0, 0.1, {"time_per_token_ratio": s})
        for t, c, s in (("a", 1, 0.1), ("b", 8, 0.3))
    ]
    noise = MeasurementNoise("earlier", tuple(cells))
    assert noise.of_cell(Cell("a", 8)).traffic == "b"
    assert noise.of_cell(Cell("a", 1)).traffic == "a"
    assert noise.of_cell(Cell("c", 4)).traffic == "b"  # nothing like it: the noisier


def test_the_table_of_rounds_holds_where_just_so_many_are_planned():
    page = Path(__file__).parents[3] / "docs/explanation/gate.md"
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.read_text().splitlines()
    ]
    header = next(row for row in rows if row[1:2] == ["15 %"])
    gains = [
        math.log(float(t[:-1])) if t.endswith("x") else -math.log1p(-float(t[:-1]) / 100)
        for t in header[1:]
    ]
    table = {float(row[0]): row[1:] for row in rows if row and re.fullmatch(r"0\.\d+", row[0])}
    assert set(table) == {0.05, 0.1, 0.2, 0.3}
    gap = math.log1p(PLAIN.max_pod_gap)
    for spread, counts in table.items():
        for gain, count in zip(gains, map(int, counts), strict=True):
            chances = [
                chance_to_show(
                    gap_beyond(gain, gap), spread, n, PLAIN.side, omit=int(n >= SETTLED_FROM)
                )
                for n in (int(0.8 * count), count)
            ]
            assert chances[1] >= 0.9, (spread, gain)
            assert count == FIRST_LOOK or chances[0] < 0.9, (spread, gain)


def test_after_undecided_the_rounds_are_those_of_which_a_plan_says_that_they_find_as_much():
    """Only time per token can be undecided, so that both speak of the same rule."""
    lax = replace(PLAIN, min_throughput_ratio=0.0, max_tpot_ratio=9.0, max_e2e_ratio=9.0)
    blocks = [b for both in rounds(Truth(prompts=4, tpot=0.8), 7, 3) for b in both]
    analysis = Analysis.of(blocks, lax, planned=7)
    verdict = assess(analysis)
    open_ = [r.rule for r in verdict.rules if r.outcome.value == "undecided"]
    assert open_ == ["time per token"]
    gain = 1 - analysis.cells[0].time_per_token_ratio.value
    noise = MeasurementNoise.of(analysis, "this")
    chances = [
        chance_to_promote(noise, replace(WORKLOAD, repeats=n), lax, gain)
        for n in (math.floor(0.9 * verdict.repeats), verdict.repeats)
    ]
    assert chances[0] < lax.power <= chances[1]


def test_the_sentence():
    text = describe_power(noise_of(Truth(prompts=4)), replace(WORKLOAD, repeats=24), PLAIN)
    before, _, after = text.partition(" in ")
    assert before == "this plan would notice a 20% gain"
    assert after.split(" of 10")[0].isdigit()
    assert text.endswith(
        "as noisy as this one (24 rounds of 4 prompts, by the noise of an earlier measurement)"
    )


def test_a_forecast_allows_for_what_equal_arms_may_differ_in_its_own_order():
    """Turns of fresh engines differ by nothing; one arm after the other by as much as a machine may drift."""
    noise, workload = noise_of(Truth(prompts=4, block_sigma=0.1)), replace(WORKLOAD, repeats=24)
    turns, side_by_side, separate = (
        chance_to_promote(noise, workload, PLAIN, 0.25, order)
        for order in (ArmOrder.TURNS, ArmOrder.SIDE_BY_SIDE, ArmOrder.SEPARATE)
    )
    assert turns > side_by_side > separate
    unlimited = replace(PLAIN, max_pod_gap=0.0, max_drift=0.0)
    assert chance_to_promote(noise, workload, unlimited, 0.25, ArmOrder.SEPARATE) == pytest.approx(
        turns
    )
