"""Sources of counters: the engines themselves, or Prometheus for all services at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

from mpctl.app.session.base import Session
from mpctl.errors import MpctlError
from mpctl.watch.reading import Reading

Key = tuple[str, str]
Source = Callable[[Sequence[Session], Executor, Callable[[], float]], Mapping[Key, Reading]]


def read_engines(
    sessions: Sequence[Session], readers: Executor, monotonic: Callable[[], float]
) -> Mapping[Key, Reading]:
    """Ask every engine for its /metrics."""

    def read_session(session: Session) -> tuple[Key, Reading]:
        key = (session.namespace, session.name)
        try:
            counters = session.counters()
        except MpctlError as error:
            return key, Reading(monotonic(), {}, {session.name: error.message})
        return key, Reading(monotonic(), counters.engines, counters.failed, counters.wanted)

    return dict(readers.map(read_session, sessions))


def from_prometheus(url: str) -> Source:
    """Ask Prometheus once for all services."""
    from mpctl.platform import prometheus

    def read(sessions: Sequence[Session], readers: Executor, monotonic: Callable[[], float]) -> Mapping[Key, Reading]:
        at = monotonic()
        try:
            counters = prometheus.read(url)
        except MpctlError as error:
            return {(s.namespace, s.name): Reading(at, {}, {"Prometheus": error.message}) for s in sessions}
        readings = {}
        for session in sessions:
            pods = counters.get((session.namespace, session.name), {})
            engines = {pod: c for pod, c in pods.items() if not isinstance(c, str)}
            failed = {pod: c for pod, c in pods.items() if isinstance(c, str)}
            readings[session.namespace, session.name] = Reading(at, engines, failed, len(pods))
        return readings

    return read
