"""Operations by OTLP: spans of the ledger's times, figures as metrics, and a receiver that is gone stops nothing."""

import sys
import time

import pytest
from otlp import receiving
from session import MemorySession
from watched import ASKED
from world import Behaviour

from mpctl.app.operate import rollback, rollout
from mpctl.app.requests import RollbackRequest
from mpctl.evidence import telemetry
from mpctl.rollout.operation import Ending

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def receiver(monkeypatch):
    with receiving() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        monkeypatch.setattr(
            telemetry, "PATIENCE_S", 60.0
        )  # on a busy machine the SDK's import takes seconds
        yield receiver


def test_a_promotion_is_a_span_with_its_steps_and_its_figures_are_metrics(receiver, monkeypatch):
    monkeypatch.setenv("TRACEPARENT", PARENT)
    session = MemorySession()
    done = rollout.run(session, ASKED)
    assert (done.operation.ending, session.console.warnings) == (Ending.PROMOTED, [])
    spans = receiver.spans()
    root, attributes = spans["rollout"]
    assert attributes == {
        "k8s.namespace.name": "chat",
        "mpctl.service": "svc",
        "mpctl.kind": "rollout",
        "mpctl.ending": "promoted",
        "mpctl.verdict": "promote",
        "mpctl.operation": "rollout-1",
        "mpctl.speculation": done.plan.spec_text,
        **{name: value for name, value in attributes.items() if name.startswith("mpctl.rules.")},
    }
    assert root.trace_id.hex() == PARENT.split("-")[1]
    assert root.parent_span_id.hex() == PARENT.split("-")[2]
    steps = [span for name, (span, _) in spans.items() if name != "rollout"]
    assert {span.name for span in steps} == set(done.operation.done)
    assert {span.parent_span_id for span in steps} == {root.span_id}
    assert all(
        root.start_time_unix_nano
        <= s.start_time_unix_nano
        <= s.end_time_unix_nano
        <= root.end_time_unix_nano
        for s in steps
    )
    gauges = receiver.gauges()
    seconds, _ = gauges["mpctl.operation.duration"]
    assert seconds == (root.end_time_unix_nano - root.start_time_unix_nano) / 1e9
    ratio, labels = gauges["mpctl.gate.time_per_token_ratio"]
    assert ratio == done.cells[0].intervals["time_per_token_ratio"].value
    assert labels["mpctl.cell"] == done.cells[0].cell.label
    assert receiver.resource()["service.name"] == "mpctl"


def test_a_rejection_has_its_rules_and_its_rollback_below_it(receiver):
    session = MemorySession(seconds=0.4)
    assert rollout.run(session, ASKED).operation.ending is Ending.REJECTED
    spans = receiver.spans()
    root, attributes = spans["rollout"]
    assert attributes["mpctl.verdict"] == "reject"
    assert "time per token" in attributes["mpctl.rules.fail"]
    undo, own = spans["rollback"]
    assert (undo.parent_span_id, own["mpctl.operation"]) == (root.span_id, "rollback-2")


def test_a_rollback_by_hand_is_a_span_of_its_own(receiver):
    session = MemorySession()
    rollout.run(session, ASKED)
    receiver.requests.clear()
    rollback.run(session.again(), RollbackRequest())
    root, attributes = receiver.spans()["rollback"]
    assert (root.parent_span_id, attributes["mpctl.ending"]) == (b"", "rolled back")


def test_the_sentence_of_a_failure_is_in_no_attribute(receiver):
    session = MemorySession()
    session.memory.behaviours._candidate = Behaviour(failures=99)
    done = rollout.run(session, ASKED)
    assert done.operation.ending is Ending.FAILED
    root, attributes = receiver.spans()["rollout"]
    assert root.status.code == 2
    assert not any(done.operation.detail[:30] in str(value) for value in attributes.values())


@pytest.mark.parametrize(
    ("status", "patience_s", "problem"),
    [
        (400, 60.0, "spans not accepted, metrics not accepted"),
        (None, 0.5, "no answer within 0.5 s"),
    ],
)
def test_a_receiver_that_refuses_or_never_answers_is_a_warning(
    status, patience_s, problem, monkeypatch
):
    monkeypatch.setattr(telemetry, "PATIENCE_S", patience_s)
    with receiving(status) as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        session = MemorySession()
        assert rollout.run(session, ASKED).operation.ending is Ending.PROMOTED
        assert (
            f"rollout-1 was not sent to OTEL_EXPORTER_OTLP_ENDPOINT: {problem}"
            in session.console.warnings
        )


def test_a_closed_port_delays_no_operation_beyond_the_bound(monkeypatch):
    with receiving() as receiver:
        url = receiver.url
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer hf_PLANTED")
    monkeypatch.setattr(telemetry, "PATIENCE_S", 1.0)
    session, began = MemorySession(), time.monotonic()
    assert rollout.run(session, ASKED).operation.ending is Ending.PROMOTED
    assert any("was not sent" in w for w in session.console.warnings)
    assert "PLANTED" not in " ".join(session.console.warnings)
    assert (
        time.monotonic() - began < 60
    )  # the operation itself takes no second; the SDK's own patience is minutes


def test_without_an_endpoint_the_sdk_is_not_imported(monkeypatch):
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.setitem(sys.modules, "mpctl.evidence.spans", None)
    session = MemorySession()
    rollout.run(session, ASKED)
    assert session.console.warnings == []
