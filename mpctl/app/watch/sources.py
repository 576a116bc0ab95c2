"""Sources of counters: the engines themselves, or Prometheus for all services at once. No service is waited for longer
than a deadline: one engine that answers slowly delays the judgement of no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from mpctl.app.session.base import Session
from mpctl.app.watch.events import reason_of
from mpctl.platform import prometheus
from mpctl.watch.reading import Reading

_READERS, _LATE_READERS = 16, 4

Key = tuple[str, str]
_Value = TypeVar("_Value")


class Readers:
    """Threads that read services side by side. A read that is not done at the deadline continues: its result is that of
    a later round, which does not wait for it. A service that was late is read by few threads of its own until it is in
    time again, so that late ones never keep all threads busy."""

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="read")
        self._late_pool = ThreadPoolExecutor(_LATE_READERS, thread_name_prefix="read-late")
        self._pending: dict[tuple[str, Key], Future[Any]] = {}
        self._late: dict[Key, int] = {}  # the round in which it was last begun
        self._rounds = 0

    def read(
        self, what: str, work: Callable[[Session], _Value], sessions: Sequence[Session]
    ) -> dict[Key, _Value]:
        """Return the results of ``work`` that are there at the deadline. ``what``: names the work; a service of which
        the same work has not ended is not asked again."""
        self._rounds += 1
        by_key = {(session.namespace, session.name): session for session in sessions}
        pending = {
            key: future
            for key in by_key
            if (future := self._pending.pop((what, key), None)) is not None
        }
        begun = {
            key: (self._late_pool if key in self._late else self._pool).submit(work, by_key[key])
            for key in sorted(
                by_key.keys() - pending.keys(), key=lambda key: self._late.get(key, 0)
            )
        }
        wait(begun.values(), timeout=self.deadline_s)
        futures = pending | begun
        done = {future for future in futures.values() if future.done()}
        for key, future in futures.items():
            if future in done:
                if key in begun:
                    self._late.pop(key, None)
            elif not future.cancel():  # otherwise it was not begun, and is in the next round
                self._pending[what, key] = future
                if key in begun:
                    self._late[key] = self._rounds
        return {key: future.result() for key, future in futures.items() if future in done}

    def read_anew(self, work: Callable[[Session], _Value], session: Session) -> _Value | None:
        """Start ``work`` now and return its result; None if it takes longer than the deadline."""
        future = self._pool.submit(work, session)
        done, _ = wait([future], timeout=self.deadline_s)
        return future.result() if done else None

    def close(self) -> None:
        """Wait for reads under way: each has a limit of its own."""
        for pool in (self._pool, self._late_pool):
            pool.shutdown(wait=True, cancel_futures=True)


CounterSource = Callable[[Sequence[Session], Readers, Callable[[], float]], Mapping[Key, Reading]]


def read_engines(
    sessions: Sequence[Session], readers: Readers, monotonic: Callable[[], float]
) -> Mapping[Key, Reading]:
    """Ask every engine for its /metrics."""

    def read_session(session: Session) -> Reading:
        try:
            counters = session.counters()
        except Exception as error:  # noqa: BLE001  one odd engine ends no watch of the others
            return Reading(monotonic(), {}, {session.name: reason_of(error)})
        return Reading(monotonic(), counters.engines, counters.failed, counters.wanted)

    readings = readers.read("counters", read_session, sessions)
    late = f"its counters were not read within {readers.deadline_s:g} s"
    keys = [(session.namespace, session.name) for session in sessions]
    return {key: readings.get(key) or Reading(monotonic(), {}, {key[1]: late}) for key in keys}


def from_prometheus(url: str) -> CounterSource:
    """Ask Prometheus once for all services."""

    def read(
        sessions: Sequence[Session], readers: Readers, monotonic: Callable[[], float]
    ) -> Mapping[Key, Reading]:
        now = monotonic()
        try:
            counters = prometheus.read(url)
        except Exception as error:  # noqa: BLE001  an odd answer of Prometheus ends no watch
            return {
                (s.namespace, s.name): Reading(now, {}, {"": reason_of(error)}) for s in sessions
            }
        readings = {}
        for session in sessions:
            pods = counters.get((session.namespace, session.name), {})
            engines = {pod: c for pod, c in pods.items() if not isinstance(c, str)}
            failed = {pod: c for pod, c in pods.items() if isinstance(c, str)}
            readings[session.namespace, session.name] = Reading(now, engines, failed, len(pods))
        return readings

    return read
