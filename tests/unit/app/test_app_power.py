"""``--detect``: the rounds that a measurement plans, and what it says beforehand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from session import MemorySession
from world import Crash

from mpctl.app.bench.planned_rounds import plan_rounds, recorded_noise
from mpctl.app.operate import rollout
from mpctl.app.requests import DryRun, MeasurementRequest, RolloutRequest, SpeculationRequest
from mpctl.errors import InputError
from mpctl.experiment.workload import Traffic, Workload
from mpctl.gate.policy import Policy
from mpctl.gate.power import CellNoise, MeasurementNoise
from mpctl.rollout.operation import Ending
from mpctl.rollout.steps.measure import verdict_of

WORKLOAD = Workload(
    (Traffic("edits", tuple(f"prompt {n}" for n in range(192))),), repeats=24, requests=4
)
NOISE = MeasurementNoise(
    "rollout-3", (CellNoise("edits", 1, 4.0, 0.2, {"time_per_token_ratio": 0.22, "tpot": 0.25}),)
)
ASKED = RolloutRequest(SpeculationRequest("ngram"), MeasurementRequest(requests=5, rounds=6))
DETECTING = replace(ASKED, measurement=replace(ASKED.measurement, rounds=None, detect=0.2))


def planned(noise, **asked):
    workload, power = plan_rounds(
        MeasurementRequest(**asked), WORKLOAD, Policy(), noise, lambda: NOISE
    )
    return workload.repeats, power


def test_a_plan_that_would_often_miss_a_gain_says_so_and_what_to_do():
    noisy = replace(
        NOISE, cells=(replace(NOISE.cells[0], spreads={"time_per_token_ratio": 0.5, "tpot": 0.5}),)
    )
    rounds, line = planned(noisy)
    assert rounds == 24
    assert re.match(
        r"this plan would notice a 20% gain in [0-8] of 10 tries on a machine as noisy as this one \(",
        line,
    )
    assert line.endswith(
        "(24 rounds of 4 prompts, by the noise of rollout-3); --detect 20% plans as many rounds as it takes"
    )


def test_a_plan_that_will_do_says_nothing():
    assert planned(NOISE) == (24, "")


def test_without_an_earlier_rollout_nothing_is_promised_and_nothing_sent():
    assert planned(None) == (24, "")


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


@pytest.mark.parametrize("noise", [NOISE, None])
def test_a_smaller_gain_takes_more_rounds(noise):
    few, _ = planned(noise, detect=0.3)
    many, line = planned(noise, detect=0.15)
    assert few < many <= 47
    assert line.startswith("this plan would notice a 15% gain in 9 of 10 tries")


def test_a_gain_out_of_reach_is_refused_with_the_one_within():
    with pytest.raises(
        InputError, match=r"5% is out of reach of 47 rounds of 4 prompts, .*; 1\d% is within"
    ) as caught:
        planned(NOISE, detect=0.05)
    assert "--detect 1" in caught.value.hint
    within = float(caught.value.hint.split("--detect ")[1].rstrip("%")) / 100
    assert planned(NOISE, detect=within)[0] <= 47


def test_without_a_rollout_the_serving_engine_is_calibrated_and_then_measured():
    session = MemorySession()
    outcome = rollout.run(session, DETECTING)
    assert outcome.operation.ending is Ending.PROMOTED
    assert any(
        line.endswith("by the noise of 2 calibration rounds)") for line in session.console.lines
    )
    assert recorded_noise(session).source == outcome.operation.id


def test_a_rollout_that_died_goes_on_with_the_rounds_that_it_planned():
    session = MemorySession()
    session.memory.die_at(60)
    with pytest.raises(Crash):
        rollout.run(session, DETECTING)
    again = session.again()
    outcome = rollout.run(again, DETECTING)
    assert outcome.operation.ending is Ending.PROMOTED
    assert not any("calibration rounds" in line for line in again.console.lines)


def test_a_dry_run_sends_nothing_and_says_so():
    session = MemorySession()
    with pytest.raises(InputError, match="a dry run sends nothing"):
        rollout.run(session, replace(DETECTING, dry_run=DryRun.CLIENT))
    assert session.memory.meter.sent == []


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
