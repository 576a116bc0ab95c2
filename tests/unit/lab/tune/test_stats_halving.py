"""Successive halving on arms of known speed."""

from __future__ import annotations

import random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.lab.tune.halving import Search, Standing, rungs_of, search

ROUNDS = 24


class Arms:
    """Arms with a true value each and noise per round; ``broken`` ones are out at once."""

    def __init__(self, truths, *, noise=0.0, seed=0, start_s=20.0, round_s=5.0, broken=()):
        self.truths, self.noise, self.seed, self.broken = truths, noise, seed, broken
        self.start_s, self.round_s = start_s, round_s
        self.trials: list[tuple[int, int]] = []
        self.done: dict[int, int] = {}

    def __call__(self, index: int, rounds: int) -> Standing:
        self.trials.append((index, rounds))
        fresh = rounds - self.done.get(index, 0)
        assert fresh > 0, "a trial measures something new"
        self.done[index] = rounds
        draws = [
            random.Random(f"{self.seed} {index} {r}").gauss(self.truths[index], self.noise)
            for r in range(rounds)
        ]
        seconds = self.start_s + fresh * self.round_s
        return Standing(rounds, mean(draws), seconds, self.start_s, out=index in self.broken)


def found(truths, *, limit_s=0.0, **given) -> tuple[Search, Arms]:
    arms = Arms(truths, **given)
    return search(len(truths), ROUNDS, arms, limit_s=limit_s), arms


def test_the_best_of_equal_chances_gets_all_rounds_and_the_others_few():
    result, arms = found([1.0, 1.1, 1.4, 1.2, 0.9, 1.3, 1.05, 0.8])
    assert result.best == 2
    assert result.finished
    assert sorted(arms.done.values()) == [3, 3, 3, 3, 6, 6, 12, 24]
    assert len(arms.trials) == 8 + 4 + 2 + 1


def test_the_best_is_found_through_noise_of_half_the_distance_to_the_next():
    truths = [0.0, 0.02, 0.04, 0.10, 0.05, 0.01, -0.1, -0.2]
    hits = [found(truths, noise=0.025, seed=seed)[0].best == 3 for seed in range(200)]
    assert mean(hits) >= 0.97


def test_among_arms_that_noise_hides_little_is_lost():
    truths = [0.00, 0.01, 0.02, 0.03, 0.02, 0.01, 0.00, -0.01]
    regrets = [0.03 - truths[found(truths, noise=0.04, seed=seed)[0].best] for seed in range(200)]
    assert mean(regrets) < 0.01


def test_an_arm_that_is_out_is_not_tried_again_and_never_wins():
    result, arms = found([1.0, 9.0, 1.1], broken=(1,))
    assert result.best == 2
    assert [trial for trial in arms.trials if trial[0] == 1] == [(1, 3)]


def test_without_an_arm_that_runs_there_is_no_best():
    result, _ = found([1.0, 2.0], broken=(0, 1))
    assert (result.best, result.finished) == (None, False)


def test_with_little_time_the_first_few_are_tried_and_the_best_of_them_to_the_end():
    result, _ = found([1.0, 1.2, 1.1, 9.0, 9.0, 9.0, 9.0, 9.0], limit_s=330)
    assert result.best == 1
    assert result.finished
    assert result.untried == (3, 4, 5, 6, 7)
    assert result.seconds <= 330


@given(
    st.integers(1, 16),
    st.integers(1, 40),
    st.floats(0, 300),
    st.floats(0.01, 60),
    st.floats(1, 20_000),
)
def test_no_search_ends_later_than_its_limit_but_for_the_first_trial(
    count, rounds, start_s, round_s, limit_s
):
    arms = Arms([float(i) for i in range(count)], start_s=start_s, round_s=round_s)
    result = search(count, rounds, arms, limit_s=limit_s)
    first = start_s + rungs_of(rounds)[0] * round_s
    assert result.seconds <= max(limit_s, first) * (1 + 1e-9)
    assert result.best is not None


@pytest.mark.parametrize(
    ("rounds", "rungs"), [(1, (1,)), (3, (3,)), (5, (3, 5)), (24, (3, 6, 12, 24))]
)
def test_rungs_double_up_to_the_rounds_asked_for(rounds, rungs):
    assert rungs_of(rounds) == rungs
