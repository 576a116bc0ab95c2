"""Publish what the watch knows of each service as a SpeculationStatus, and its events as Kubernetes Events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mpctl.app.watch.events import WatchEvent
from mpctl.app.watch.exposition import conditions
from mpctl.app.watch.watcher import Watched
from mpctl.errors import MpctlError
from mpctl.platform.kubernetes.speculation_status import since

_AGAIN_S = 300.0  # an unchanged status is written again, in case somebody changed or deleted it
_EACH_S = 0.5  # between two writes of unchanged statuses, on average over all services


class Writer(Protocol):
    """A writer of the status, as :class:`mpctl.platform.kubernetes.speculation_status.StatusWriter`."""

    def write(self, namespace: str, service: str, status: dict[str, Any]) -> None: ...
    def tell(self, namespace: str, service: str, reason: str, message: str, at: str, *, warning: bool) -> None: ...
    def forget(self, namespace: str, service: str) -> None: ...


class Publisher:
    """Writes a status when its signal, its conditions or its decision changed. What cannot be written is reported and
    written with a later round: nothing that the watch does depends on it."""

    def __init__(
        self, writer: Writer, monotonic: Callable[[], float], time: Callable[[], str], warn: Callable[[str], None]
    ) -> None:
        self._writer, self._monotonic, self._time, self._warn = writer, monotonic, time, warn
        self._written: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}

    def publish(self, services: list[Watched]) -> None:
        """Write what changed since the last round."""
        again = max(_AGAIN_S, _EACH_S * len(services))
        for watched in services:
            at, before = self._written.get(watched.key, (None, {}))
            status = self._status(watched, before)
            same = {k: v for k, v in status.items() if k != "message"} == {
                k: v for k, v in before.items() if k != "message"
            }
            now = self._monotonic()
            if same and at is not None and now - at < again:
                continue
            try:
                if same:
                    self._writer.forget(*watched.key)
                self._writer.write(*watched.key, status)
            except MpctlError as error:
                self._writer.forget(*watched.key)
                self._warn(f"status of {'/'.join(watched.key)} not written: {error.message}")
                continue
            self._written[watched.key] = (now, status)

    def tell(self, event: WatchEvent) -> None:
        """Create a Kubernetes Event."""
        if event.service == "-":  # of the watch itself
            return
        text = event.line.partition(": ")[2].partition(": ")[2]
        try:
            self._writer.tell(event.namespace, event.service, event.reason, text, event.at, warning=event.finding)
        except MpctlError as error:
            self._warn(f"event {event.reason} of {event.namespace}/{event.service} not written: {error.message}")

    def _status(self, watched: Watched, before: dict[str, Any]) -> dict[str, Any]:
        assessment, facts = watched.assessment, watched.facts
        fields: dict[str, Any] = {
            "signal": assessment.signal.value,
            "message": assessment.text,
            "pays": assessment.pays,
            "decision": watched.decision.act.value,
            "spec": facts.live.spec if facts.live is not None else None,
            "reference": facts.reference.operation if facts.reference is not None else None,
            "conditions": since(conditions(watched), before.get("conditions", ()), self._time()),
        }
        return {name: value for name, value in fields.items() if value is not None}
