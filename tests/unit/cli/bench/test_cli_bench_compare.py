"""``mpctl bench compare`` through the front door."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from bench_samples import small_run as made

from mpctl.app.bench.recorded import write_run


def test_comparing_the_arms_of_one_run(cli):
    write_run("fast.json.gz", made(0.5))
    ran = cli("bench", "compare", "fast.json.gz")
    assert ran.code == 0, ran.err
    assert "2.00x" in ran.out
    write_run("slow.json.gz", made(2.0))
    ran = cli("bench", "compare", "slow.json.gz")
    assert ran.code == 5
    assert "gate would reject the candidate" in ran.err


def test_the_arms_of_one_run_are_judged_as_they_were_when_it_was_measured(cli, monkeypatch):
    """Twelve rounds were planned and eight are there: the intervals are those of the eighth look of twelve."""
    monkeypatch.setattr("bench_samples.ROUNDS", 8)

    def interval(run):
        write_run("run.json", run)
        rules = json.loads(cli("bench", "compare", "run.json", "-o", "json").out)["status"][
            "cells"
        ][0]["rules"]
        actual_interval = next(r["interval"] for r in rules if r["rule"] == "E2E")
        return actual_interval["high"] - actual_interval["low"]

    assert interval(made(0.5, spread=0.1)) < interval(replace(made(0.5, spread=0.1), planned=12))


def test_one_arm_is_not_compared_with_nothing(cli):
    write_run("friday.json", made(0.5))
    ran = cli("bench", "compare", "friday.json:candidate")
    assert ran.code == 2
    assert ran.err == (
        "error: friday.json:candidate names one arm\n"
        "hint: 'mpctl bench compare friday.json' compares both arms of the measurement\n"
    )


def test_comparing_two_runs_and_their_arms(cli):
    write_run("monday.json", made(1.0, arms=("baseline",)))
    write_run("friday.json", made(0.5))
    ran = cli("bench", "compare", "monday.json", "friday.json", "-o", "json")
    assert ran.code == 0, ran.err
    record = json.loads(ran.out)
    assert record["kind"] == "Measurement"
    assert record["status"]["cells"][0]["throughputRatio"]["value"] == pytest.approx(2.0)
    same = cli("bench", "compare", "friday.json:baseline", "monday.json:baseline", "-o", "json")
    assert json.loads(same.out)["status"]["cells"][0]["throughputRatio"]["value"] == pytest.approx(
        1.0
    )


def test_what_was_measured_differently_is_not_compared_unless_forced(cli):
    write_run("cpu.json", made(0.5))
    write_run("gpu.json", made(0.5, device="NVIDIA L4"))
    ran = cli("bench", "compare", "cpu.json", "gpu.json")
    assert ran.code == 2
    assert "device: cpu and NVIDIA L4" in ran.err
    forced = cli("bench", "compare", "cpu.json:baseline", "gpu.json", "--force")
    assert forced.code == 0
    assert "warning: measured differently: device: cpu and NVIDIA L4" in forced.err


def test_one_arm_has_nothing_to_be_compared_with(cli):
    write_run("alone.json", made(arms=("baseline",)))
    ran = cli("bench", "compare", "alone.json")
    assert ran.code == 2
    assert "alone.json: has only one arm" in ran.err
    ran = cli("bench", "compare", "alone.json:candidate", "alone.json")
    assert ran.code == 2
    assert "has no arm candidate" in ran.err


def test_too_few_rounds_decide_nothing(cli):
    run = made(0.5)
    write_run("one.json", replace(run, blocks=tuple(b for b in run.blocks if b.repeat == 0)))
    assert cli("bench", "compare", "one.json").code == 6
