"""Intervals cover what they say, at every look together; errors are counted in simulations with fixed seeds."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mpctl import formatting
from mpctl.gate.policy import Policy
from mpctl.stats.confidence import (
    Stage,
    excess_interval,
    lognormal_mean,
    mean_interval,
    ratio_interval,
)
from mpctl.stats.sequential import FIRST_LOOK, Spending, nominal_levels, rounds_to_show

few = settings(max_examples=40, deadline=None)
SIDE = Policy().side


def errors_of(values, looks, *, truth=0.0, alpha=SIDE):
    """How often, over all looks, an interval lies wholly above and wholly below the truth: rows are repetitions."""
    count = np.arange(1, looks + 1)
    means = np.cumsum(values, axis=1) / count
    square = np.cumsum(values**2, axis=1) - count * means**2
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.sqrt(np.maximum(square, 0) / (count - 1) / count)
        t = (means - truth) / errors
    levels = nominal_levels(looks, alpha)
    reach = [stats.t.isf(p, k - 1) if p else math.inf for p, k in zip(levels, count, strict=True)]
    return (t > reach).any(axis=1).mean(), (t < -np.array(reach)).any(axis=1).mean()


@pytest.mark.parametrize("looks", [2, 3, 4, 8, 30])
def test_all_looks_together_spend_what_is_allowed(looks):
    """Against the distribution the levels are made for: a sum of normal rounds of known variance."""
    made = np.random.default_rng(1).normal(size=(100_000, looks)).cumsum(axis=1) / np.sqrt(
        np.arange(1, looks + 1)
    )
    levels = np.array(nominal_levels(looks, 0.02))
    crossed = (made > stats.norm.isf(np.where(levels > 0, levels, 1e-300))).any(axis=1).mean()
    assert crossed == pytest.approx(0.02, abs=0.0015)
    assert levels[: min(looks, FIRST_LOOK) - 1].sum() == 0


@few
@given(st.floats(1e-4, 0.1), st.floats(0.0, 1.0), st.floats(0.5, 5.0), st.integers(1, 60))
def test_a_spending_function_spends_its_error_once(alpha, first, power, looks):
    parts = Spending(alpha, first, power).by_look(looks)
    assert math.fsum(parts) == pytest.approx(alpha)
    assert min(parts) >= 0
    assert looks == 1 or parts[0] >= alpha * first


@pytest.mark.parametrize("spending", [Policy().gain, Policy().guard, Policy().loss])
def test_all_looks_together_spend_what_a_spending_function_allows(spending):
    rounds = np.random.default_rng(2).normal(size=(100_000, 48)).cumsum(axis=1) / np.sqrt(
        np.arange(1, 49)
    )
    levels = np.array(nominal_levels(48, spending))
    crossed = (rounds > stats.norm.isf(np.where(levels > 0, levels, 1e-300))).any(axis=1).mean()
    assert crossed == pytest.approx(spending.alpha, abs=0.0015)


def test_a_verdict_that_is_wrong_by_chance_is_one_of_twenty():
    """What promotes an equal candidate and what rejects it make up the total; its parts are known to add up."""
    policy = Policy()
    assert policy.gain.alpha + policy.loss.alpha < 1 - policy.level


def test_levels_of_one_look_are_the_whole_and_of_the_last_the_largest():
    assert nominal_levels(1, 0.02) == (pytest.approx(0.02, rel=0.01),)
    assert nominal_levels(2, 0.02)[0] == 0.0
    levels = nominal_levels(30, 0.02)
    assert set(levels[: FIRST_LOOK - 1]) == {0.0}
    assert all(a < b for a, b in itertools.pairwise(levels[FIRST_LOOK - 1 :]))


@pytest.mark.parametrize("looks", [4, 11, 30])
@pytest.mark.parametrize("noise", ["normal", "by prompt", "bursts"])
def test_rounds_that_change_nothing_are_promoted_or_rejected_in_at_most_one_of_twenty(looks, noise):
    """A/A: 20 000 measurements, looked at after every round. The policy allows 5 % for both sides together.

    "by prompt": lognormal latencies, a prompt's own factor on both arms; "bursts": in one round of ten something else
    uses half the machine during one of the two blocks.
    """
    rng = np.random.default_rng(7)
    shape = (20_000, looks)
    values = rng.normal(0.0, 0.2, shape)
    if noise == "by prompt":
        prompts = rng.normal(0.0, 0.8, (*shape[:1], looks * 8)).astype(np.float32)
        arms = [prompts + rng.normal(0.0, 0.6, prompts.shape).astype(np.float32) for _ in range(2)]
        values = (arms[0] - arms[1]).reshape(*shape, 8).mean(axis=2)
    if noise == "bursts":
        values += math.log(2) * (rng.random(shape) < 0.1) * rng.choice([-1, 1], shape)
    above, below = errors_of(values.astype(np.float64), looks)
    assert above + below <= 0.05
    assert min(above, below) > 0.004  # the levels are used, not merely kept


def test_a_machine_shared_by_round_would_fool_intervals_over_prompts():
    """Why the round is the unit: noise that all requests of a block share."""
    rng = np.random.default_rng(3)
    shared = rng.normal(0.0, 0.2, (20_000, 8, 1)) + rng.normal(0.0, 0.25, (20_000, 8, 8))
    by_prompt = shared.reshape(20_000, 64)
    t = by_prompt.mean(axis=1) / by_prompt.std(axis=1, ddof=1) * 8
    assert (np.abs(t) > 2.0).mean() > 0.2
    above, below = errors_of(shared.mean(axis=2), 8)
    assert above + below <= 0.05


def test_intervals_of_the_module_are_those_of_the_simulation():
    rng = np.random.default_rng(5)
    values = rng.normal(0.3, 0.2, 8)
    stage = Stage(look=8, looks=8, below=SIDE, above=SIDE / 4)
    actual_mean_interval = mean_interval(values, stage)
    error = values.std(ddof=1) / math.sqrt(8)
    low, high = (stats.t.isf(nominal_levels(8, a)[-1], 7) for a in (SIDE, SIDE / 4))
    assert (actual_mean_interval.low, actual_mean_interval.high) == (
        pytest.approx(values.mean() - low * error),
        pytest.approx(values.mean() + high * error),
    )
    assert (actual_mean_interval.n, actual_mean_interval.level) == (
        8,
        pytest.approx(1 - 1.25 * SIDE),
    )
    ratio = ratio_interval(values, stage)
    assert (ratio.value, ratio.low) == (
        pytest.approx(math.exp(actual_mean_interval.value)),
        pytest.approx(math.exp(actual_mean_interval.low)),
    )


def test_a_ratio_that_no_float_holds_has_an_open_side_and_no_side_of_zero():
    actual_ratio_interval = ratio_interval(
        [0.1, 900.0, -900.0, 0.1, 0.05], Stage(5, 24, below=0.017, above=0.017)
    )
    assert (actual_ratio_interval.low, actual_ratio_interval.high) == (None, None)
    assert formatting.confidence(actual_ratio_interval) == "no confidence interval yet"


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_side_that_is_open_is_printed_as_no_number(count):
    actual_ratio_interval = ratio_interval(
        [0.1, -0.2, 0.3, 0.1][:count], Stage(count, 24, below=0.017, above=0.017)
    )
    assert formatting.bounds(actual_ratio_interval) == ""
    assert formatting.bounds(replace(actual_ratio_interval, high=2.0)) == "at most 2.00x"
    assert formatting.bounds(replace(actual_ratio_interval, low=2.0)) == "at least 2.00x"


@pytest.mark.parametrize(("count", "look"), [(1, 1), (1, 4), (2, 2)])
def test_too_few_rounds_leave_both_sides_open(count, look):
    actual_ratio_interval = ratio_interval([0.1, 0.2][:count], Stage(look, 4, SIDE, SIDE))
    assert (actual_ratio_interval.low, actual_ratio_interval.high) == (None, None)


def test_rounds_that_agree_exactly_have_no_width_where_they_may_decide():
    actual_mean_interval = mean_interval([0.5] * 4, Stage(4, 4, SIDE, SIDE))
    assert (actual_mean_interval.low, actual_mean_interval.high) == (0.5, 0.5)
    early = mean_interval([0.5] * 2, Stage(2, 12, SIDE, SIDE))
    assert (early.low, early.high) == (None, None)


def test_hundreds_of_looks_have_levels_too():
    levels = nominal_levels(300, SIDE)
    assert levels[: FIRST_LOOK - 1] == (0.0,) * (FIRST_LOOK - 1)
    assert 0 < levels[FIRST_LOOK - 1] < levels[-1] < SIDE


@pytest.mark.parametrize("spread", [0.05, 0.2])
@pytest.mark.parametrize("regression", [1.1, 1.2])
def test_the_rounds_said_to_be_needed_catch_a_regression_with_the_power_stated(spread, regression):
    """Planted: every time is longer by 10 % and by 20 %. Caught: the interval of the ratio lies wholly below 1."""
    policy = Policy()
    rounds = rounds_to_show(math.log(regression), spread, SIDE, policy.power)
    values = np.random.default_rng(11).normal(-math.log(regression), spread, (4000, rounds))
    _, caught = errors_of(values, rounds)
    assert caught >= policy.power
    fewer = max(3, rounds // 3)
    _, too_few = errors_of(values[:, :fewer], fewer)
    assert too_few < caught


def test_no_number_of_rounds_tells_what_does_not_differ():
    assert rounds_to_show(0.0, 0.1, SIDE, 0.9) is None
    assert rounds_to_show(1e-6, 0.1, SIDE, 0.9) is None
    assert rounds_to_show(5.0, 0.1, SIDE, 0.9) == FIRST_LOOK


@pytest.mark.parametrize(("failed", "count"), [(0, 72), (1, 135), (2, 187)])
def test_how_many_requests_rule_out_five_percent_of_failures(failed, count):
    assert (
        excess_interval(failed, 0, count).high <= 0.05 < excess_interval(failed, 0, count - 1).high
    )


@pytest.mark.parametrize("share", [0.05, 0.02])
def test_failures_at_a_limit_are_ruled_out_in_one_of_twenty_however_often_they_are_counted(share):
    """Looked at after every request, an upper bound at 95 % passed a true share at the limit twice as often."""
    failed = np.random.default_rng(3).random((4000, 400)) < share
    needed = {
        hits: next(n for n in range(1, 2000) if excess_interval(hits, 0, n).high <= share)
        for hits in range(5)
    }
    counts = np.cumsum(failed, 1)
    passed = np.zeros(len(failed), bool)
    for hits, first in needed.items():
        if first <= failed.shape[1]:
            passed |= (counts[:, first - 1 :] <= hits).any(axis=1) & (counts[:, first - 1] <= hits)
    assert passed.mean() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(failed))


def test_failures_on_both_arms_are_no_excess():
    interval = excess_interval(4, 4, 400)
    assert interval.value == 0 and interval.low < 0 < interval.high < 0.05


def test_the_bound_of_a_skewed_mean_knows_of_waits_that_were_not_seen():
    """The bound of a lognormal law misses the true mean in 5 %, the mean of what was seen in 60 %."""
    values = np.random.default_rng(6).lognormal(0.0, 1.5, (1000, 20))
    truth = math.exp(1.5**2 / 2)
    bounds = np.array([lognormal_mean(row.tolist(), 1e-9, 0.05) for row in values])
    assert (values.mean(1) < truth).mean() > 0.55
    assert (bounds < truth).mean() <= 0.1


@pytest.mark.parametrize(("looks", "prompts", "noise"), [(30, 4, 0.6), (11, 8, 0.35), (4, 8, 0.35)])
def test_the_rules_together_promote_or_reject_what_changes_nothing_in_at_most_one_of_twenty(
    looks, prompts, noise
):
    """The rules that judge speed share their requests but not all of their errors; each rejects on its own."""
    rng = np.random.default_rng(1)
    shape = (3000, looks, prompts)
    factors = np.exp(rng.normal(0.0, 0.5, shape))

    def arm():
        block = np.exp(rng.normal(0.0, 0.1, (*shape[:2], 1)))
        tpot = 10.0 * block * factors * np.exp(rng.normal(0.0, noise, shape))
        return tpot, 100.0 * block * np.exp(rng.normal(0.0, noise, shape)) + 63.0 * tpot

    (base_tpot, base), (cand_tpot, cand) = arm(), arm()
    policy = Policy()
    figures = {  # higher is better
        "time per token": (
            np.log(base / cand).mean(axis=2),
            -math.log(policy.max_time_per_token_ratio),
        ),
        "e2e": (
            np.log(base.sum(axis=2) / cand.sum(axis=2)),
            -math.log(policy.max_e2e_ratio),
        ),
        "tpot": (
            -np.log(cand_tpot.mean(axis=2) / base_tpot.mean(axis=2)),
            -math.log(policy.max_tpot_ratio),
        ),
    }
    count = np.arange(1, looks + 1)
    reach = np.array(
        [
            stats.t.isf(p, k - 1) if p else math.inf
            for p, k in zip(nominal_levels(looks, SIDE), count, strict=True)
        ]
    )
    promoted, rejected = np.ones(shape[:2], bool), np.zeros(shape[:2], bool)
    for values, limit in figures.values():
        means = np.cumsum(values, axis=1) / count
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.sqrt(
                np.maximum(np.cumsum(values**2, axis=1) - count * means**2, 0) / (count - 1) / count
            )
            promoted &= (means - limit) / error > reach
            rejected |= (means - limit) / error < -reach
    wrong = (promoted | rejected).any(axis=1).mean()
    assert wrong <= 0.05
    assert promoted.any() and rejected.any()
