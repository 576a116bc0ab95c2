"""An operation as OpenTelemetry spans and metrics, sent by OTLP over HTTP.

A span is an operation, its children are the steps and the rollback that restored the service, all with the times of the
ledger. Attributes are names and choices; sentences of the ledger, which may quote an engine's log, are left out.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mpctl import __version__
from mpctl.app.session.base import Session
from mpctl.gate.analysis import Comparison
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.operation import RESIZED, Ending, Operation, operations


def send(
    session: Session,
    operation: Operation,
    verdict: Verdict | None,
    cells: Sequence[Comparison],
    patience_s: float,
) -> list[str]:
    """Send spans and metrics; return which of them the receiver did not take within ``patience_s``, each."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)  # the warning is ours
    name = os.environ.get("OTEL_SERVICE_NAME") or "mpctl"
    resource = Resource.create({"service.name": name, "service.version": __version__})
    attributes = {
        "k8s.namespace.name": session.namespace,
        "mpctl.service": session.name,
        "mpctl.kind": operation.plan.kind.value,
        "mpctl.ending": operation.ending.value if operation.ending else "",
        **({"mpctl.verdict": verdict.outcome.value} if verdict else {}),
    }
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracing.add_span_processor(SimpleSpanProcessor(spans))
    _trace(
        tracing.get_tracer("mpctl", __version__),
        operation,
        verdict,
        session.store.entries(),
        attributes,
    )
    meter = MeterProvider([reader], resource=resource, shutdown_on_exit=False).get_meter(
        "mpctl", __version__
    )
    seconds = (_nanoseconds(operation.closed_at) - _nanoseconds(operation.opened_at)) / 1e9
    meter.create_gauge("mpctl.operation.duration", "s").set(seconds, attributes)
    for cell in cells:
        labels = {**attributes, "mpctl.cell": cell.cell.label}
        for figure, interval in cell.intervals.items():
            meter.create_gauge(f"mpctl.gate.{figure}").set(interval.value, labels)
    problems = []
    if (
        OTLPSpanExporter(timeout=patience_s).export(spans.get_finished_spans())
        is not SpanExportResult.SUCCESS
    ):
        problems.append("spans not accepted")
    metrics = reader.get_metrics_data()
    if (
        metrics
        and OTLPMetricExporter(timeout=patience_s).export(metrics) is not MetricExportResult.SUCCESS
    ):
        problems.append("metrics not accepted")
    return problems


def _trace(
    tracer: Tracer,
    operation: Operation,
    verdict: Verdict | None,
    entries: Sequence[Entry],
    attributes: dict[str, str],
) -> None:
    """Make the span of an operation, below the one that ``TRACEPARENT`` names, and of the rollback that undid it."""
    parent = TraceContextTextMapPropagator().extract(
        {"traceparent": os.environ.get("TRACEPARENT", "")}
    )
    details: dict[str, Any] = {
        **attributes,
        "mpctl.operation": operation.id,
        "mpctl.speculation": operation.plan.spec_text,
    }
    for rule in verdict.rules if verdict else ():
        if rule.outcome in (Outcome.FAIL, Outcome.UNDECIDED, Outcome.MISSING):
            named = details.setdefault(f"mpctl.rules.{rule.outcome.value}", [])
            named += [rule.rule] if rule.rule not in named else []
    inside = _span(tracer, operation, entries, details, parent)
    for other in operations(entries):
        if (
            other.plan.rollback.undoes == operation.id
            and other.plan.rollback.automatic
            and other.ending is not None
        ):
            _span(
                tracer,
                other,
                entries,
                {**attributes, "mpctl.operation": other.id, "mpctl.kind": "rollback"},
                inside,
            )


def _span(
    tracer: Tracer,
    operation: Operation,
    entries: Sequence[Entry],
    attributes: dict[str, Any],
    parent: Context,
) -> Context:
    """Make the span of an operation with its steps; return the context that has it as parent."""
    begun = _nanoseconds(operation.opened_at)
    span = tracer.start_span(
        operation.plan.kind.value, parent, attributes=attributes, start_time=begun
    )
    inside = set_span_in_context(span)
    for entry in entries:
        if entry.operation != operation.id:
            continue
        nanoseconds = _nanoseconds(entry.at)
        if entry.event in (Event.DONE, Event.FAILED) and entry.step != RESIZED:
            step = tracer.start_span(entry.step, inside, start_time=begun)
            if entry.event is Event.FAILED:
                step.set_status(StatusCode.ERROR)
            step.end(nanoseconds)
        begun = nanoseconds
    if operation.ending is Ending.FAILED:
        span.set_status(StatusCode.ERROR)
    span.end(_nanoseconds(operation.closed_at))
    return inside


def _nanoseconds(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp() * 1e9)
