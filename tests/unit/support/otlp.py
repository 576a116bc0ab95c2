"""A receiver of OTLP over HTTP on loopback, which decodes what it takes with the official protobuf messages."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Receiver:
    """``bodies``: the decoded bytes of every request; ``status``: of its answers, None for none."""

    def __init__(self, status: int | None) -> None:
        self.status, self.url = status, ""
        self.bodies: list[bytes] = []
        self.requests: list[ExportMetricsServiceRequest | ExportTraceServiceRequest] = []
        self.ended = threading.Event()

    def spans(self):
        """Spans by name, each with its attributes."""
        return {
            span.name: (span, _attributes(span))
            for request in self.requests
            if isinstance(request, ExportTraceServiceRequest)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }

    def gauges(self):
        """Values of gauges by name, each with its attributes."""
        return {
            metric.name: (
                metric.gauge.data_points[0].as_double,
                _attributes(metric.gauge.data_points[0]),
            )
            for request in self.requests
            if isinstance(request, ExportMetricsServiceRequest)
            for resource in request.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def resource(self):
        """Attributes of the resource of the first request."""
        request = self.requests[0]
        groups = (
            request.resource_spans
            if isinstance(request, ExportTraceServiceRequest)
            else request.resource_metrics
        )
        return _attributes(groups[0].resource)


def _attributes(item):
    values = {}
    for pair in item.attributes:
        kind = pair.value.WhichOneof("value")
        value = getattr(pair.value, kind)
        values[pair.key] = (
            [v.string_value for v in value.values] if kind == "array_value" else value
        )
    return values


@contextmanager
def receiving(status: int | None = 200) -> Iterator[Receiver]:
    """A receiver on a free port until the end of the block."""
    receiver = Receiver(status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.bodies.append(body)
            receiver.requests.append(_KINDS[self.path].FromString(body))
            if receiver.status is None:
                receiver.ended.wait(60)
                return
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
