"""Another start of the candidate against the one that was measured, on simulated machines of known noise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpctl.gate.policy import Policy
from mpctl.gate.second_start import judge_start
from tests.simulation.measurements import Truth
from tests.simulation.starts import compared


def test_a_start_1_3_times_slower_is_named_and_an_equal_one_is_not():
    quiet = Truth(request_sigma=0.1, block_sigma=0.03, prompts=4)
    slow = [compared(replace(quiet, tpot=1.3), seed) for seed in range(10)]
    assert [gap.slow for gap in slow] == [True] * 10
    assert "is slower than the candidate that was measured" in slow[0].describe()
    equal = [compared(quiet, seed) for seed in range(10)]
    assert [gap.slow for gap in equal] == [False] * 10
    assert "as fast as the candidate that was measured" in equal[0].describe()


def test_what_the_retained_baseline_lost_too_the_machine_lost():
    quiet = Truth(request_sigma=0.1, block_sigma=0.03, prompts=4)
    assert compared(quiet, 1, machine=1.3).slow
    beside = compared(quiet, 1, machine=1.3, paired=True)
    assert not beside.slow
    assert "beside the retained baseline" in beside.describe()
    assert compared(replace(quiet, tpot=1.3), 1, machine=1.3, paired=True).slow


def test_a_gap_within_the_margin_of_pods_is_not_named():
    quiet = Truth(tpot=1.05, prompt_sigma=0.0, request_sigma=0.0, block_sigma=0.0)
    assert not compared(quiet, 1).slow
    assert compared(replace(quiet, tpot=1.2), 1).slow


def test_without_a_prompt_that_both_answered_nothing_is_compared():
    with pytest.raises(ValueError, match="no prompt was answered twice"):
        judge_start([], [], 8, Policy())


@pytest.mark.nightly
@pytest.mark.parametrize("prompts", [2, 4, 8])
def test_of_1000_equal_starts_on_a_usual_machine_at_most_10_are_named(prompts):
    usual = Truth(prompts=prompts)
    assert sum(compared(usual, seed).slow for seed in range(1000)) <= 10
    slow = replace(usual, tpot=1.3)
    assert sum(compared(slow, seed).slow for seed in range(200)) >= 170
