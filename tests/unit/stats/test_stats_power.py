"""Power against simulated sequential t-tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from mpctl.stats.sequential import FIRST_LOOK, chance_to_show, nominal_levels, rounds_to_show

ALPHA = 0.017


def simulated(drift, rounds, repetitions=4000):
    """The share of t-tests that find a mean of ``drift`` standard deviations at one of their analyses."""
    levels = nominal_levels(rounds, ALPHA)
    values = np.random.default_rng(rounds).normal(drift, 1.0, (repetitions, rounds))
    found = np.zeros(repetitions, bool)
    for count in range(min(FIRST_LOOK, rounds), rounds + 1):
        part = values[:, :count]
        t = part.mean(1) / part.std(1, ddof=1) * math.sqrt(count)
        found |= t > stdtrit(count - 1, 1 - levels[count - 1])
    return found.mean()


@pytest.mark.parametrize("rounds", [5, 12, 24, 40])
@pytest.mark.parametrize("drift", [0.3, 0.6, 0.85, 1.2, 2.0])
def test_power_is_that_of_simulated_tests(rounds, drift):
    assert chance_to_show(drift, 1.0, rounds, ALPHA) == pytest.approx(
        simulated(drift, rounds), abs=0.05
    )


def test_without_a_difference_the_chance_is_the_error():
    assert chance_to_show(0.0, 1.0, 24, ALPHA) == pytest.approx(ALPHA, abs=0.01)


def test_more_rounds_never_find_less():
    chances = [chance_to_show(0.5, 1.0, rounds, ALPHA) for rounds in range(6, 60, 6)]
    assert chances == sorted(chances)
    assert chances[-1] > chances[0] + 0.5


@pytest.mark.parametrize(("drift", "trim"), [(1.5, 0.0), (0.9, 0.1), (0.6, 0.0), (0.5, 0.1)])
def test_the_rounds_that_show_a_difference_are_the_fewest(drift, trim):
    rounds = rounds_to_show(drift, 1.0, ALPHA, 0.9, trim=trim)
    fewer = math.floor(
        0.9 * rounds
    )  # a difference is rounded by up to 3 %, its rounds by twice as much
    chances = [chance_to_show(drift, 1.0, count, ALPHA, trim=trim) for count in (fewer, rounds)]
    assert chances[0] < 0.9 <= chances[1]


def test_hundreds_of_rounds_are_counted_by_the_square_of_the_spread():
    rounds = rounds_to_show(0.25, 1.0, ALPHA, 0.9)
    assert 200 < rounds < 300
    assert chance_to_show(0.25, 1.0, rounds, ALPHA) == pytest.approx(0.92, abs=0.02)
    assert rounds_to_show(0.1, 1.0, ALPHA, 0.9) is None  # more than can be planned


def test_a_limit_of_nothing_is_always_met_and_one_of_infinity_never():
    assert chance_to_show(math.inf, 1.0, 24, ALPHA) == 1.0
    assert chance_to_show(-math.inf, 1.0, 24, ALPHA) == 0.0
    assert chance_to_show(0.1, 0.0, 24, ALPHA) == 1.0
