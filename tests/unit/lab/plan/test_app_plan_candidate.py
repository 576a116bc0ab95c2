"""``mpctl plan --measure`` on a service: a candidate answers the user's prompts and is stopped."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import session as sessions
from session import MemorySession

from mpctl.app.change.source import FileSource
from mpctl.app.requests import SpeculationRequest
from mpctl.errors import Conflict, InputError
from mpctl.lab.plan import service_plan
from mpctl.lab.requests import PlanRequest
from mpctl.rollout.ports import RetainedBaseline


@pytest.fixture
def asked(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sessions, "MANIFEST", sessions.MANIFEST.replace("org/model", "Qwen/Qwen3-8B")
    )
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"prompt {n}"}) + "\n" for n in range(10)))
    return PlanRequest(
        ("ngram",),
        SpeculationRequest("", gpu="L4"),
        concurrency=(1,),
        prompts=(str(file),),
        measure=True,
    )


def test_a_candidate_measures_and_is_stopped_and_nothing_that_serves_changes(asked):
    session = MemorySession()
    before = session.memory.disk.copy()
    (method,) = service_plan.run(session, asked).methods
    assert method.grid.choices[-1].entry.level == "L1"
    assert "a candidate that answered 10 of your prompts" in method.evidence
    assert (session.memory.disk.text, list(session.memory.disk.engines)) == (
        before.text,
        list(before.engines),
    )
    assert {prompt for _, prompt in session.memory.meter.sent} == {f"prompt {n}" for n in range(10)}
    assert all(manifest != before.text for manifest, _ in session.memory.meter.sent), (
        "the baseline is asked nothing"
    )


def test_the_minute_ends_the_measurement(asked, monkeypatch):
    session = MemorySession()
    send = session.memory.meter.send

    def slow(*given, **named):
        session.memory.context.clock.sleep(61)
        return send(*given, **named)

    monkeypatch.setattr(session.memory.meter, "send", slow)
    service_plan.run(session, asked)
    assert len(session.memory.meter.sent) == 4


def test_a_candidate_that_answers_nothing_is_named_with_the_engines_reason(asked, monkeypatch):
    session = MemorySession()
    send = session.memory.meter.send

    def failing(endpoint, order):
        sent = send(endpoint, order)
        requests = tuple(
            replace(request, error="HTTP 400: no such role") for request in sent.result.requests
        )
        return replace(sent, result=replace(sent.result, requests=requests))

    monkeypatch.setattr(session.memory.meter, "send", failing)
    (note,) = [
        note for note in service_plan.run(session, asked).notes if "was not measured" in note
    ]
    assert note.startswith("ngram was not measured: ")
    assert "requests failed, the first with HTTP 400: no such role" in note


def test_a_method_that_cannot_run_is_named_and_the_others_are_measured(asked):
    result = service_plan.run(MemorySession(), replace(asked, methods=("ngram", "medusa")))
    assert [one.method for one in result.methods if one.grid] == ["ngram"]
    assert any(note.startswith("medusa was not measured: ") for note in result.notes)


def test_prompts_are_needed_and_must_be_named(asked):
    with pytest.raises(InputError, match="--measure: needs the prompts of your traffic"):
        service_plan.run(MemorySession(), replace(asked, prompts=()))


def test_a_file_has_nothing_that_a_candidate_could_stand_beside(asked, tmp_path):
    file = tmp_path / "service.yaml"
    file.write_text(sessions.MANIFEST)
    with pytest.raises(InputError, match="nothing serves here") as caught:
        service_plan.run(FileSource(str(file), None), asked)
    assert "--transcripts FILE or --url URL" in caught.value.hint


def test_a_retained_baseline_ends_the_command(asked, monkeypatch):
    session = MemorySession()
    retained = RetainedBaseline("arm-old", "2026-01-01T00:00:00Z", "users", 1, 1)
    monkeypatch.setattr(session.platform, "retained_baseline", lambda: retained)
    with pytest.raises(Conflict, match="retained baseline"):
        service_plan.run(session, asked)
