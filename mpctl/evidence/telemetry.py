"""Operations that ended go to the OpenTelemetry collector that the environment names; without one nothing is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from threading import Thread

from mpctl.app.session.base import Session
from mpctl.gate.analysis import Comparison
from mpctl.gate.verdict import Verdict
from mpctl.rollout.operation import Operation

PATIENCE_S = 10.0  # as the SDK waits by default
_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


def export(
    session: Session, operation: Operation, verdict: Verdict | None, cells: Sequence[Comparison]
) -> None:
    """Send an operation that ended where ``OTEL_EXPORTER_OTLP_ENDPOINT`` names a receiver. It takes ``PATIENCE_S`` at
    most, and what fails is a warning."""
    if not os.environ.get(_ENDPOINT):
        return
    problems = [f"no answer within {PATIENCE_S:g} s"]

    def send() -> None:
        try:
            from mpctl.evidence import spans

            problems[:] = spans.send(session, operation, verdict, cells, PATIENCE_S)
        except ImportError:
            problems[:] = ["pip install 'mpctl[otel]' brings the SDK"]
        except Exception as error:  # noqa: BLE001 - the SDK's and the client's; their texts may quote a header
            problems[:] = [type(error).__name__]

    sender = Thread(target=send, daemon=True)
    sender.start()
    sender.join(PATIENCE_S)
    if problems:
        session.console.warn(f"{operation.id} was not sent to {_ENDPOINT}: {', '.join(problems)}")
