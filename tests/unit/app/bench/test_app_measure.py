"""``mpctl bench`` without a terminal: arms in memory, a file at the end, continued after a crash."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from console import RecordingConsole
from world import BASELINE_TEXT, CANDIDATE_TEXT, FASTER, SLOWER, Crash, Engine, MemoryWorld

from mpctl.app.bench.arms import Arms
from mpctl.app.bench.measure import measure
from mpctl.app.bench.recorded import read_run
from mpctl.app.bench_requests import BenchRequest
from mpctl.app.requests import MeasurementRequest
from mpctl.errors import Conflict, InputError
from mpctl.platform.state_files import state_root, try_lock
from mpctl.rollout.ports import Arm, Phase
from mpctl.rollout.steps.measure import measured_engine

TEXTS = {"baseline": BASELINE_TEXT, "candidate": CANDIDATE_TEXT}


class Bench:
    """Two engines that run, and the request to measure them."""

    def __init__(self, directory):
        self.console = RecordingConsole()
        prompts = directory / "mine.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": f"prompt {n}"}) + "\n" for n in range(60)))
        self.request = BenchRequest(
            measurement=MeasurementRequest(prompts=(str(prompts),), requests=6, rounds=6)
        )

    def world(self):
        memory = MemoryWorld(FASTER)
        memory.disk.engines[Arm(CANDIDATE_TEXT).id] = Engine(CANDIDATE_TEXT, Phase.READY)
        return memory

    def arms(self, memory, *names, speculates=True):
        return Arms(
            identity="service chat/demo",
            names=names or ("baseline", "candidate"),
            meter=memory.meter,
            engine_of=lambda arm: measured_engine(memory.context, Arm(TEXTS[arm]), None),
            speculates=speculates,
        )

    def run(self, memory, *names, **changes):
        return measure(self.console, self.arms(memory, *names), replace(self.request, **changes))


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "state"))
    return Bench(tmp_path)


def test_two_arms_are_measured_judged_and_written_to_a_file(bench):
    measured = bench.run(bench.world())
    assert measured.verdict.outcome.value == "promote"
    assert read_run(measured.file) == measured.run
    assert measured.file == f"{measured.run.id}.json.gz"
    assert measured.rounds <= 6
    assert "decided after" in measured.ended or measured.rounds == 6


def test_one_arm_has_figures_and_no_verdict(bench):
    measured = bench.run(bench.world(), "baseline")
    assert measured.verdict is None
    assert measured.rounds == 6
    assert {b.arm for b in measured.run.blocks} == {"baseline"}


def test_the_same_request_continues_an_interrupted_measurement(bench):
    first = bench.world()
    first.die_at(30)
    with pytest.raises(Crash):
        bench.run(first)
    second = bench.world()
    measured = bench.run(second)
    assert any(
        line.startswith(f"continuing {measured.run.id}, begun ") for line in bench.console.lines
    )
    assert len(measured.run.blocks) == 2 * measured.rounds
    assert len(second.meter.sent) < len(measured.run.blocks) * 6 + 8, (
        "finished blocks are not sent again"
    )
    assert bench.run(bench.world(), run_file="again.json").run.id != measured.run.id, (
        "a finished one is begun anew"
    )


def test_a_measurement_that_runs_in_another_process_is_a_conflict(bench):
    done = bench.run(bench.world())
    key, number = done.run.id.removeprefix("bench-").split("-")
    lock = try_lock(state_root() / "bench" / f"{key}-{int(number) + 1}.lock")
    assert lock is not None
    with pytest.raises(Conflict, match="runs in another process"):
        bench.run(bench.world(), run_file="again.json")


def test_a_file_in_the_way_is_refused_before_anything_is_sent(bench):
    Path("mine.json").write_text("dear")
    memory = bench.world()
    with pytest.raises(InputError, match="exists already"):
        bench.run(memory, run_file="mine.json")
    assert memory.meter.sent == []


@pytest.mark.parametrize(("speculates", "threshold"), [(True, 1.0), (False, 0.0)])
def test_an_arm_that_does_not_speculate_needs_no_drafts(bench, speculates, threshold):
    arms = bench.arms(bench.world(), speculates=speculates)
    assert (
        measure(bench.console, arms, bench.request).run.policy["min_tokens_per_step"] > 0
    ) == bool(threshold)


def test_duplicate_prompts_are_reported(bench):
    file = Path("twice.jsonl")
    file.write_text("".join(json.dumps({"prompt": f"prompt {n % 60}"}) + "\n" for n in range(63)))
    bench.request = replace(
        bench.request, measurement=replace(bench.request.measurement, prompts=(str(file),))
    )
    bench.run(bench.world())
    assert "3 prompts of twice are duplicates and are sent once" in bench.console.lines


def test_a_repeated_measurement_counts_those_before_it_that_did_not_promote(bench):
    memory = MemoryWorld(SLOWER)
    memory.disk.engines[Arm(CANDIDATE_TEXT).id] = Engine(CANDIDATE_TEXT, Phase.READY)
    first, second = (bench.run(memory, run_file=f"{name}.json") for name in ("first", "second"))
    assert (first.run.earlier, second.run.earlier) == (0, 1)
    assert any("spends 50.0% of the error" in rule.message for rule in second.verdict.rules)
    for name in ("third", "fourth"):
        repeated = bench.run(bench.world(), run_file=f"{name}.json")
        assert (repeated.verdict.outcome.value, repeated.run.earlier) == ("promote", 2)
