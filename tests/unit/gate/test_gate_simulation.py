"""The gate through its front door on measurements of known truth."""

from __future__ import annotations

from collections import Counter

import pytest

from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import assess
from mpctl.gate.policy import Policy
from tests.simulation.measurements import Truth, rounds

PLAIN = Policy(min_tokens_per_step=0)


def verdicts(truth, *, looks, repetitions, policy=PLAIN, every=1):
    """Outcome and look of each simulated rollout; a look after every ``every`` rounds stops at the first verdict."""
    found = []
    for seed in range(repetitions):
        blocks = []
        outcome, look = "undecided", looks
        for number, both in enumerate(rounds(truth, looks, seed), start=1):
            blocks += both
            if number % every and number < looks:
                continue
            outcome = assess(Analysis.of(blocks, policy, rounds=number, planned=looks)).outcome.value
            if outcome != "undecided":
                look = number
                break
        found.append((outcome, look))
    return Counter(o for o, _ in found), sorted(look for _, look in found)


def test_rollouts_that_change_nothing():
    """Looked at after each of 30 rounds, prompts correlated between the arms, latencies lognormal with a heavy tail.
    ``test_measure_statistics`` counts 20 000, ``scripts/gate-table`` prints the table."""
    truth = Truth(prompt_sigma=0.8, request_sigma=0.6, prompts=4)
    found, _ = verdicts(truth, looks=30, repetitions=40)
    assert found["promote"] + found["reject"] <= 5  # more than 5 of 40 in one of 70 tests, if one of 20 is decided


@pytest.mark.parametrize("block_sigma", [0.05, 0.2])
def test_the_demo_is_promoted_within_its_rounds(block_sigma):
    """2.4x with drafts, eleven rounds of eight prompts at most, on a machine that others use too."""
    truth = Truth(
        tpot=1 / 2.4, request_sigma=0.2, prompt_sigma=0.2, block_sigma=block_sigma, accepted=0.8, ttft_ms=16.0
    )
    found, looks = verdicts(truth, looks=11, repetitions=40, policy=Policy())
    assert found["promote"] >= 38
    assert found["reject"] == 0
    assert looks[len(looks) // 2] <= 6
    found, _ = verdicts(truth, looks=4, repetitions=40, policy=Policy())
    assert found["promote"] >= (38 if block_sigma < 0.1 else 28)
    assert found["reject"] == 0


def test_a_method_that_slows_novel_text_down_is_rejected_in_few_rounds():
    truth = Truth(tpot=1 / 0.7, request_sigma=0.2, prompt_sigma=0.2, accepted=0.15)
    found, looks = verdicts(truth, looks=12, repetitions=40, policy=Policy())
    assert found["reject"] >= 38
    assert found["promote"] == 0
    assert looks[len(looks) // 2] <= 6


@pytest.mark.parametrize(("slower", "looks"), [(1.2, 14), (1.1, 48)])
def test_a_planted_regression_is_caught_with_the_power_that_the_policy_states(slower, looks):
    """``rounds_needed`` says 11 and 32 rounds of 8 prompts for 20 % and 10 % at this noise; a few more, for chance."""
    truth = Truth(tpot=slower, request_sigma=0.2, prompt_sigma=0.35, block_sigma=0.05)
    found, _ = verdicts(truth, looks=looks, repetitions=60, every=4)
    assert found["reject"] >= 0.9 * 60
    assert found["promote"] == 0
