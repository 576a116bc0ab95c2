"""What a measurement says beforehand of the gains that it would miss, and what an earlier one leaves it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from session import MemorySession

from mpctl.app.operate import rollout
from mpctl.app.requests import DryRun, MeasurementRequest, RolloutRequest, SpeculationRequest
from mpctl.experiment.workload import Traffic, Workload
from mpctl.gate.policy import Policy
from mpctl.gate.power import CellNoise, MeasurementNoise, power_warning
from mpctl.rollout.operation import Ending
from mpctl.rollout.steps.measure import verdict_of

WORKLOAD = Workload(
    (Traffic("edits", tuple(f"prompt {n}" for n in range(192))),), repeats=24, requests=4
)
NOISE = MeasurementNoise(
    "rollout-3", (CellNoise("edits", 1, 4.0, 0.2, {"time_per_token_ratio": 0.22, "tpot": 0.25}),)
)
ASKED = RolloutRequest(SpeculationRequest("ngram"), MeasurementRequest(requests=5, rounds=6))


def test_a_plan_that_would_often_miss_a_gain_says_so_and_what_would_do():
    noisy = replace(
        NOISE,
        cells=(replace(NOISE.cells[0], spreads={"time_per_token_ratio": 0.33, "tpot": 0.33}),),
    )
    text = power_warning(noisy, WORKLOAD, Policy())
    assert re.match(
        r"this plan would notice a 20% gain in [0-8] of 10 tries on a machine as noisy as this one \(",
        text,
    )
    assert "(24 rounds of 4 prompts, by the noise of rollout-3)" in text
    enough = int(re.search(r"--repeats (\d+) notices it 90% of the time$", text)[1])
    assert power_warning(noisy, replace(WORKLOAD, repeats=enough), Policy()) == ""
    assert power_warning(noisy, replace(WORKLOAD, repeats=enough - 2), Policy()) != ""


def test_a_gain_that_no_plan_notices_needs_prompts():
    noisy = replace(
        NOISE, cells=(replace(NOISE.cells[0], spreads={"time_per_token_ratio": 0.5, "tpot": 0.5}),)
    )
    text = power_warning(noisy, WORKLOAD, Policy())
    assert text.endswith("; no plan of 47 rounds or fewer notices it often enough: add prompts")


def test_a_plan_that_will_do_says_nothing():
    assert power_warning(NOISE, WORKLOAD, Policy()) == ""


@pytest.mark.parametrize("method", ["none", "ngram"])
def test_a_rollout_that_measures_no_speculation_or_is_refused_says_nothing_of_its_power(
    method, monkeypatch
):
    session = MemorySession()
    noisy = replace(
        NOISE, cells=(replace(NOISE.cells[0], spreads={"time_per_token_ratio": 0.5, "tpot": 0.5}),)
    )
    monkeypatch.setattr(rollout, "recorded_noise", lambda *_: noisy)
    rollout.run(
        session, replace(ASKED, speculation=SpeculationRequest(method), dry_run=DryRun.CLIENT)
    )
    assert any("this plan would notice" in line for line in session.console.lines) is (
        method == "ngram"
    )


def repeated(disk=None, **asked):
    """A rollout to an arm that is half as fast: its verdict takes an analysis, which equal arms may never reach."""
    session = MemorySession(seconds=0.2, disk=disk)
    measurement = MeasurementRequest(requests=5, rounds=8, **asked)
    return session.memory.disk, rollout.run(
        session, replace(ASKED, measurement=measurement)
    ).operation


def test_measurements_of_a_pair_that_did_not_promote_leave_the_next_less_of_the_error():
    """Equal engines were told apart in 18 of 100 series of five measurements that each had the whole error."""
    disk, operation = repeated()
    levels, messages = [], []
    for earlier in (0, 1, 2):
        assert (operation.ending, operation.plan.earlier) == (Ending.REJECTED, earlier)
        rule = next(r for r in verdict_of(operation).rules if r.rule == "time per token")
        levels.append(1 - rule.interval.level)
        messages.append(rule.message)
        disk, operation = repeated(disk)
    assert levels == pytest.approx([levels[0], levels[0] / 2, levels[0] / 6])
    assert "of the same pair" not in messages[0]
    assert (
        "2 earlier measurements of the same pair did not promote, so this one spends 16.7% of the"
        in messages[2]
    )
    assert (
        repeated(disk, prompts=("fresh",))[1].plan.earlier == 0
    )  # other prompts are another question
