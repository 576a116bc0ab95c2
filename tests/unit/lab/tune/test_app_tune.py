"""``mpctl bench --tune`` without a terminal: engines in memory, whose speed follows from their settings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import session as sessions
from session import MemorySession
from world import Behaviour, Crash

from mpctl.app.bench_requests import BenchRequest
from mpctl.app.change.resolve import spec_of_file
from mpctl.app.operate import rollout
from mpctl.app.requests import MeasurementRequest, RolloutRequest, SpeculationRequest
from mpctl.errors import MpctlError, Refused
from mpctl.lab.requests import TuneRequest
from mpctl.lab.tune.tune import tune

REQUESTS = 10
BASE_S = 0.1  # a request to the baseline in memory
QUICK = MeasurementRequest(requests=5, rounds=6)
FAST = {3: 0.06, 5: 0.08, 2: 0.07}  # K -> seconds


class BySettings(dict):
    """Engines by their manifests: K decides the speed; the window 3..6 does not start."""

    def __init__(self, seconds):
        super().__init__({sessions.MANIFEST: Behaviour(seconds=BASE_S)})
        self.seconds, self.asked = seconds, []

    def __missing__(self, manifest):
        k = next((k for k in range(1, 9) if f'"num_speculative_tokens": {k}' in manifest), 0)
        self.asked.append(k)
        fails = '"prompt_lookup_max": 6' in manifest
        return Behaviour(
            seconds=self.seconds.get(k, 0.2), speculates=True, failures=99 if fails else 0
        )


@pytest.fixture
def service(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "state"))

    def made(seconds=FAST, disk=None):
        session = MemorySession(disk=disk)
        session.memory.behaviours = BySettings(seconds)
        return session

    return made


def asked(file=None, **given) -> TuneRequest:
    measurement = MeasurementRequest(requests=REQUESTS, rounds=6, **given)
    bench = BenchRequest(measurement=measurement, run_file=file)
    return TuneRequest(("ngram",), SpeculationRequest(""), bench)


def test_the_fastest_configuration_is_found_and_written_as_a_file(service):
    tuning = tune(service(), asked("best.json.gz"))
    assert tuning.tried[0].configuration.settings == ("num_speculative_tokens=3",)
    assert tuning.verdict.outcome.value == "promote"
    written = json.loads(Path("best.spec.json").read_text())
    assert (written["method"], written["num_speculative_tokens"]) == ("ngram", 3)
    assert tuning.spec_file == "best.spec.json"
    assert tuning.verdict is not tuning.tried[0].verdict, (
        "judged at a level that allows for the choice"
    )


def test_the_written_file_is_a_spec_that_rollout_takes_as_it_is(service):
    tune(service(), asked("best.json.gz"))
    session = service()
    outcome = rollout.run(session, RolloutRequest(spec_of_file("best.spec.json"), QUICK))
    assert outcome.operation.plan.spec.k == 3
    assert outcome.operation.plan.spec.method == "ngram"


def test_a_configuration_whose_engine_does_not_start_is_named_and_the_search_goes_on(service):
    tuning = tune(service(), asked())
    (failed,) = [one for one in tuning.tried if one.failed]
    assert "prompt_lookup_max=6" in failed.configuration.name
    assert "the engine exited with code 3" in failed.failed


def test_where_nothing_is_better_than_no_speculation_no_file_is_written(service):
    tuning = tune(service({3: 0.13, 5: 0.12, 2: 0.15}), asked("best.json.gz"))
    assert tuning.verdict.outcome.value == "reject"
    assert tuning.spec_file is None
    assert not Path("best.spec.json").exists()


def test_no_engine_stays_and_the_service_is_as_it_was(service):
    session = service()
    before = session.memory.disk.copy()
    tune(session, asked())
    assert session.memory.disk.text == before.text
    assert list(session.memory.disk.engines) == list(before.engines)
    assert session.memory.disk.ledger == before.ledger


def test_a_search_that_was_killed_continues_and_sends_no_finished_block_again(
    service, monkeypatch, tmp_path
):
    session = service()
    session.memory.die_at(250)
    with pytest.raises(Crash):
        tune(session, asked())
    again = service(disk=session.memory.disk)
    tune(again, asked())
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path / "another"))
    whole = service()
    tune(whole, replace(asked(), bench=replace(asked().bench, run_file="other.json")))
    sent, one_trial = (
        [len(one.memory.meter.sent) for one in (session, again, whole)],
        2 * (3 * REQUESTS + 2),
    )
    assert sent[0] > one_trial
    assert sent[0] + sent[1] <= sent[2] + one_trial
    assert list(again.memory.disk.engines) == list(whole.memory.disk.engines), (
        "its engine is stopped, too"
    )


def test_a_time_limit_leaves_the_least_promising_untried(service):
    tuning = tune(service(), asked(time_limit_s=3.0))
    assert tuning.untried
    assert tuning.seconds <= 3.0


def test_what_the_user_fixed_is_not_varied(service):
    request = replace(
        asked(), speculation=SpeculationRequest("", settings=("num_speculative_tokens=5",))
    )
    tuning = tune(service(), request)
    assert {one.configuration.k for one in tuning.tried} == {None}


def test_a_method_that_cannot_run_is_refused_with_its_reason(service):
    with pytest.raises(Refused, match="no configuration to try"):
        tune(service(), replace(asked(), methods=("eagle3",)))


def test_where_no_engine_starts_the_reasons_are_given(service):
    request = replace(
        asked(), speculation=SpeculationRequest("", settings=("prompt_lookup_max=6",))
    )
    with pytest.raises(MpctlError, match="no configuration could be measured: ngram"):
        tune(service(), request)


def test_a_serving_engine_that_remembers_answers_is_no_baseline(service):
    session = service()
    session.memory.disk.text = session.with_speculation(
        {"method": "suffix", "num_speculative_tokens": 8}
    )
    with pytest.raises(Refused, match="remembers answers"):
        tune(session, asked())
