"""The constants in the package against the published rows they come from."""

from __future__ import annotations

import numpy as np
import pytest

from mpctl.lab.payoff.published_evidence import fitted, fitted_record
from scripts.payoff.fit import NAMES, document, fit, problem_of
from scripts.payoff.rows import read, select


@pytest.fixture(scope="module")
def selected():
    return select(read())


def test_the_file_is_what_a_fresh_fit_of_the_published_rows_gives(selected):
    rows, _ = selected
    record = fitted_record()
    assert fitted().names == NAMES
    again = document(rows, *fit(problem_of(rows), np.array(fitted().logs)))
    assert again["rows"] == record["rows"]
    for name in NAMES:
        stored, fresh = record["constants"][name], again["constants"][name]
        assert fresh["value"] == pytest.approx(stored["value"], rel=0.02), name
        assert fresh["factor"] == pytest.approx(stored["factor"], rel=0.05), name


def test_every_row_is_fitted_or_left_out_for_a_reason(selected):
    rows, reasons = selected
    every = {record["id"] for record in read()}
    assert {row.id for row in rows} | set(reasons) == every
    assert not {row.id for row in rows} & set(reasons)
    assert all(reasons.values())


def test_rows_with_known_errors_are_left_out(selected):
    _, reasons = selected
    assert reasons["vllm-pr24243-001"] == "K = 6 but 5 rates per position"
    assert "GPU unknown" in reasons["pr24322-001"]
    assert "engine, precision" in reasons["gpustack-qwen8b-001"]


# Median and 90th percentile of the errors that the design demands, by regime.
DESIGN = {
    "all": (0.029, 0.089),
    "below a quarter knee": (0.020, 0.056),
    "up to the knee": (0.025, 0.088),
    "beyond the knee": (0.054, 0.135),
    "pool-bound": (0.067, 0.093),
}


@pytest.mark.parametrize("regime", DESIGN)
def test_a_target_and_draft_left_out_are_predicted_as_well_as_the_design_demands(regime):
    # scripts/figures/fit-payoff.md shows these figures.
    figures = fitted_record()["accuracy"]["one_system_left_out"][regime]
    median, p90 = DESIGN[regime]
    assert figures["median_error"] <= median
    assert figures["p90_error"] <= p90
    assert figures["covered"] >= 0.90
    assert figures["right_sign_beyond_5_percent"] >= 0.98


@pytest.mark.parametrize("left_out", ["one_system_left_out", "one_source_left_out"])
def test_no_gain_or_loss_is_called_where_the_opposite_was_measured(left_out):
    for regime, figures in fitted_record()["accuracy"][left_out].items():
        assert figures["wrongly_called"] == 0, regime
        assert figures["covered"] >= 0.90, regime


def test_a_machine_at_the_limit_of_its_pool_that_nobody_measured_is_not_called():
    assert fitted_record()["accuracy"]["one_source_left_out"]["pool-bound"]["called"] == 0


# What a plan is asked to reach where a whole source is unseen: sign, median and 90th percentile of the errors, cover.
ASKED = {
    "one_source_left_out": (0.93, 0.03, 0.09, 0.92),
    "one_source_left_out_no_pool": (0.93, 0.06, 0.10, 0.88),
    "one_source_left_out_class_of_traffic": (0.80, 1.0, 1.0, 0.85),
    "one_source_left_out_ngram_by_class": (0.80, 1.0, 1.0, 0.85),
    "one_source_left_out_never_fitted": (0.80, 1.0, 1.0, 0.85),
}


@pytest.mark.parametrize("level", ASKED)
def test_every_level_of_knowledge_reaches_what_is_asked_of_it_on_unseen_sources(level):
    figures, (sign, median, p90, cover) = fitted_record()["accuracy"][level]["all"], ASKED[level]
    assert figures["right_sign"] >= sign
    assert figures["median_error"] <= median
    assert figures["p90_error"] <= p90
    assert figures["covered"] >= cover
    assert figures["wrongly_called"] == 0


@pytest.mark.parametrize("level", ["class_of_traffic", "ngram_by_class", "never_fitted"])
def test_nothing_is_called_without_acceptance_of_ones_own_traffic_or_a_term(level):
    assert fitted_record()["accuracy"][f"one_source_left_out_{level}"]["all"]["called"] == 0


def test_the_best_method_of_a_comparison_is_named_or_costs_next_to_nothing():
    ranking = fitted_record()["ranking"]
    assert ranking["within_2_percent"] >= 0.85
    assert ranking["mean_regret"] <= 0.01
