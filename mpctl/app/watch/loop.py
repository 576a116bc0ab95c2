"""The watch as a process: rounds until it is stopped, or two for one judgement.

It leads, or waits for the one that does, sends its events to the webhook and to the cluster, and answers /metrics and
/healthz.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime

from mpctl import commands, formatting
from mpctl.app.console import Console, Unattended
from mpctl.app.environment_requests import WatchRequest
from mpctl.app.files import read_file
from mpctl.app.session.base import Place, Session, who
from mpctl.app.session.cluster import open_client
from mpctl.app.session.open import open_session, open_sessions
from mpctl.app.watch.events import WatchEvent
from mpctl.app.watch.exposition import Publisher, health, metrics
from mpctl.app.watch.sources import from_prometheus, read_engines
from mpctl.app.watch.verdicts import VerdictPages
from mpctl.app.watch.watched import WatchedService
from mpctl.app.watch.watcher import Watcher
from mpctl.errors import Conflict, InputError, MpctlError
from mpctl.platform import notify
from mpctl.platform.kubernetes.lease import Lease
from mpctl.platform.kubernetes.speculation_status import StatusWriter
from mpctl.platform.listener import Listener
from mpctl.watch.assessment import Signal
from mpctl.watch.watch_policy import WatchPolicy

_PAUSE_S = 2.0  # between two tries to lead
_LEADER = "watch.leader"


class Watch:
    """A process of the watch. ``watcher`` reads, judges and acts; a round of it is one turn of the loop."""

    def __init__(self, place: Place, console: Console, request: WatchRequest) -> None:
        self._request, self._console = request, console
        self._place = place._replace(namespace=None) if request.everywhere else place
        self._events: list[WatchEvent] = []  # those that nobody has been shown yet
        self._lock = threading.Lock()
        self._lead: Callable[[], None] = lambda: None  # raises Conflict once another watch leads
        self._publisher = self._open_publisher() if request.publish else None
        self._turned_at = time.monotonic()  # the last turn of the loop or of the wait for the Lease
        source = read_engines if request.prometheus is None else from_prometheus(request.prometheus)
        policy = read_policy(request.policy_file, request.interval_s)
        self.watcher = Watcher(policy, self._open, self._reopen, self._emit, source=source)

    def _open(self) -> Sequence[Session]:
        request = self._request
        return open_sessions(
            self._place,
            self._console,
            request.name,
            everywhere=request.everywhere,
            labels=request.selector,
        )

    def once(self) -> Sequence[WatchedService]:
        """Judge one window: two rounds, one interval apart, and a third where a reading of the two failed. What the
        policy permits is said, not done.

        Raises:
            InputError: no service is up.
        """
        pause_s = self.watcher.policy.interval_s
        try:
            self.watcher.round(acts=False)
            services = list(self.watcher.watched.values())
            if not services:
                hint = f"run '{commands.line('status', '-A')}' to list services"
                raise InputError("no service to watch is up", hint=hint)
            interval = f"{formatting.duration(pause_s)} apart (--interval)"
            self._console.step(
                "watch", f"two readings of every engine, {interval}: the first is taken"
            )
            for _ in range(2):
                time.sleep(pause_s)
                self.watcher.round(acts=False)
                if all(watched.assessment.signal is not Signal.BLIND for watched in services):
                    break
            if self._publisher is not None:
                self._publisher.publish(services)
            return services
        finally:
            self.watcher.close()

    @contextmanager
    def running(self, stop: threading.Event) -> Iterator[Iterator[Sequence[WatchEvent]]]:
        """Lead, and yield the rounds until ``stop``, each as its events; operations under way are finished at the end.

        Raises:
            Conflict: another watch leads now.
        """
        with ExitStack() as stack:
            stack.callback(self.watcher.close)
            stack.enter_context(self._listening())
            self._lead = stack.enter_context(self._leading(stop))
            yield self._rounds(stop)

    def _rounds(self, stop: threading.Event) -> Iterator[Sequence[WatchEvent]]:
        while not stop.is_set():
            self._require()
            self.watcher.round()
            if self._publisher is not None:
                self._publisher.publish(list(self.watcher.watched.values()))
            self._turned_at = time.monotonic()
            with self._lock:
                events, self._events = self._events, []
            yield events
            stop.wait(max(self.watcher.policy.interval_s - self._idle_s, 0.0))

    def _require(self) -> None:
        """Raise Conflict once another watch leads. A process may be stopped anywhere, so each write asks first."""
        self._lead()

    @property
    def _idle_s(self) -> float:
        return time.monotonic() - self._turned_at

    def _reopen(self, session: Session) -> Session:
        self._require()
        return reopen(self._console, self._place)(session)

    def _emit(self, event: WatchEvent) -> None:
        with self._lock:
            self._events.append(event)
        self._post(event)
        if self._publisher is not None:
            self._publisher.tell(event)

    def _post(self, event: WatchEvent) -> None:
        """Send an event to the webhook; a receiver that is gone stops nothing."""
        if self._request.webhook is None:
            return
        try:
            notify.post(self._request.webhook, event.to_record())
        except MpctlError as error:
            self._console.warn(f"event not delivered: {error.message}")

    def _open_publisher(self) -> Publisher:
        if self._place.platform != "kubernetes":
            raise InputError("only a cluster has objects to write", field="--publish")
        client = open_client(self._place)
        client.guard = self._require
        now = lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: E731
        return Publisher(StatusWriter(client, who()), time.monotonic, now, self._console.warn)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Answer over HTTP, also while another watch leads."""
        if self._request.listen is None:
            yield
            return

        verdicts = VerdictPages(self._open, time.monotonic, self._console.warn)

        def page(path: str, sent: bytes | None) -> tuple[int, str] | None:
            if path == "/metrics" and sent is None:
                return 200, metrics(self.watcher)
            if path == "/healthz" and sent is None:
                return health(self.watcher, self._idle_s)
            return verdicts.page(path, sent)

        listener = Listener(self._request.listen, page)
        self._console.note(
            f"/metrics, /healthz and /v1/services/NAME/verdict on {listener.address}"
        )
        try:
            with verdicts.reading():
                yield
        finally:
            listener.close()

    def _leading(self, stop: threading.Event) -> AbstractContextManager[Callable[[], None]]:
        """Wait until this watch leads, where others may run."""
        home = self._request.lease_namespace
        if not home:
            return nullcontext(lambda: None)

        def wait(seconds: float) -> bool:
            self._turned_at = time.monotonic()
            return stop.wait(seconds)

        everywhere = self._request.everywhere
        return leading(self._place, wait, self._console.note, everywhere=everywhere, home=home)


def read_policy(file: str | None, interval_s: float | None) -> WatchPolicy:
    """The policy of a file, or the default one; ``interval_s`` wins over its own.

    Raises:
        InputError: the file cannot be used.
    """
    policy = (
        WatchPolicy()
        if file is None
        else WatchPolicy.parse(read_file(file, "--watch-policy"), file=file)
    )
    if interval_s is None:
        return policy
    return replace(policy, interval_s=max(interval_s, 0.2))


def reopen(console: Console, place: Place) -> Callable[[Session], Session]:
    """Opens a service for an operation of the watch, which nobody attends."""

    def tell(line: str) -> None:
        if console.verbose:
            console.note(line)

    return lambda session: open_session(
        place._replace(namespace=session.namespace), Unattended(tell), session.name
    )


def lease_of(watched: str | None) -> str:
    """Name of the Lease of the watch of a namespace, None for all."""
    return (
        f"mpctl--{_leader(watched)}"  # that of no service, whose name begins with a letter or digit
    )


def _leader(watched: str | None) -> str:
    return f"{_LEADER}.{watched}" if watched else _LEADER


@contextmanager
def leading(
    place: Place,
    wait: Callable[[float], bool],
    tell: Callable[[str], None],
    *,
    everywhere: bool,
    home: str,
) -> Iterator[Callable[[], None]]:
    """Wait for the Lease and hold it. Yields a function that raises Conflict once it is lost.

    ``wait`` sleeps and returns whether to give up, which raises Conflict, too. ``everywhere``: the watch of all
    namespaces. ``home``: the namespace of the Lease.
    """
    client = open_client(place)
    leads = None if everywhere else place.namespace or client.namespace
    lease = Lease(client, home, _leader(leads), who(), name=lease_of(leads))
    waiting = ""
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lease.hold("watch"))
                break
            except Conflict as error:
                if error.message != waiting:
                    waiting = error.message
                    tell(f"another watch leads: {waiting}")
            if wait(_PAUSE_S):
                raise Conflict("stopped while another watch led")
        tell("this watch leads")
        yield lease.require
