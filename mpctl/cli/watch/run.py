"""``mpctl watch run``: watch services until Ctrl-C, or once."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from mpctl import commands, formatting
from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import name_argument, output_option, shared_options
from mpctl.cli.options.types import Duration, File, Word, option
from mpctl.cli.printer import columns, page, paragraph
from mpctl.cli.settings import in_context
from mpctl.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mpctl.app.session.base import Place, Session
    from mpctl.app.watch.events import WatchEvent
    from mpctl.app.watch.publish import Publisher
    from mpctl.app.watch.sources import Source
    from mpctl.app.watch.watcher import Watcher
    from mpctl.cli.terminal import Terminal
    from mpctl.watch.policy import WatchPolicy

FINDING, BLIND = 9, 6  # exit codes of --once


class Beat:
    """Time of the last turn of the loop or of the wait for the Lease."""

    def __init__(self) -> None:
        self.now()

    def now(self) -> None:
        """It goes on."""
        self._at = time.monotonic()

    @property
    def age_s(self) -> float:
        """Seconds since then."""
        return time.monotonic() - self._at


class WatchOptions(TypedDict):
    """The options as click hands them over."""

    all_namespaces: bool
    selector: str
    once: bool
    interval: float | None
    watch_policy: str | None
    prometheus: str | None
    listen: str | None
    webhook: str | None
    webhook_format: str
    webhook_key: str
    leader_elect: bool
    lease_namespace: str | None
    publish: bool


@click.command("run", cls=SectionedCommand)
@name_argument
@option("-A", "--all-namespaces", is_flag=True, help="Services of all namespaces, whatever -n says.")
@option("-l", "--selector", metavar="SELECTOR", default="", help="Services with these labels, as kubectl takes them.")
@option("--once", is_flag=True, help="Judge one window and exit: 0 no finding, 9 a finding, 6 blind.")
@option(
    "--interval",
    type=Duration(),
    metavar="DURATION",
    default=None,
    help="Time between two readings (default: the policy's, 15s).",
)
@option("--watch-policy", type=File(), metavar="FILE", help="Limits and what may be done (default: report only).")
@option(
    "--prometheus",
    metavar="URL",
    help="Read counters from Prometheus (default: from the engines).",
)
@option(
    "--listen",
    metavar="HOST:PORT",
    help="Answer /metrics and /healthz here (default: not at all).",
)
@option("--webhook", metavar="URL", help="POST every event to this URL.")
@option(
    "--webhook-format",
    type=Word(("json", "slack", "pagerduty")),
    default="json",
    help="Shape of an event: as it is, for Slack, or for PagerDuty's Events API v2.",
)
@option(
    "--webhook-key",
    metavar="KEY",
    default="",
    show_default=False,
    help="Routing key for PagerDuty; MPCTL_WEBHOOK_KEY keeps it out of the command line.",
)
@option("--publish", is_flag=True, help="Write a SpeculationStatus and Events per service (cluster only).")
@option("--leader-elect", is_flag=True, help="Wait for a Lease; exit with 3 when it is lost.")
@option("--lease-namespace", metavar="NAME", help="Namespace of the Lease (default: that of -n).")
@output_option
@shared_options
@in_context
def command(context: CliContext, /, name: str | None, **given: Unpack[WatchOptions]) -> None:
    """Compare services with what the gate measured, until Ctrl-C. Nothing is changed without a policy that says so.

    \b
    Examples:
      mpctl watch
      mpctl watch qwen --once; echo $?
      mpctl watch -l team=search --prometheus http://prometheus.monitoring:9090
      mpctl watch -A -o json --listen 127.0.0.1:9464

    A table is redrawn on a terminal; elsewhere each event is a line, with -o json a JSON object.
    """
    from mpctl.app.watch.watcher import Watcher

    commands.name_every_namespace()
    if given["webhook_format"] == "pagerduty" and not given["webhook_key"]:
        raise InputError("PagerDuty needs a routing key", field="--webhook-key", hint="set MPCTL_WEBHOOK_KEY")
    if name is not None and given["selector"]:
        raise InputError("cannot be combined with a name", field="--selector")
    policy = read_policy(given["watch_policy"], given["interval"])
    place = context.place._replace(namespace=None) if given["all_namespaces"] else context.place
    events: list[WatchEvent] = []
    lock = threading.Lock()
    leads: list[Callable[[], None]] = []

    def require() -> None:
        """Raise Conflict once another watch leads. A process may be stopped anywhere, so each write asks first."""
        for check in leads:
            check()

    publisher = _publisher(context, require) if given["publish"] else None
    opened = reopen(context.terminal, place)

    def open_leading(session: Session) -> Session:
        require()
        return opened(session)

    def emit(event: WatchEvent) -> None:
        with lock:
            events.append(event)
        _send(context, given, event)
        if publisher is not None:
            publisher.tell(event)

    watcher = Watcher(policy, _services(context, place, name, given), open_leading, emit, source=_source(given))
    try:
        if given["once"]:
            _once(context, watcher, publisher)
            return
        beat = Beat()
        with (
            _stoppable() as stop,
            _listening(context, given, watcher, beat),
            _led(context, given, stop, beat) as check,
        ):
            leads.append(check)

            def round_() -> None:
                require()
                watcher.round()
                if publisher is not None:
                    publisher.publish(list(watcher.watched.values()))

            _run(context, watcher, beat, events, lock, stop, round_)
    finally:
        watcher.close()


def read_policy(file: str | None, interval_s: float | None) -> WatchPolicy:
    """The policy of a file, or the default one; ``interval_s`` wins over its own."""
    from dataclasses import replace

    from mpctl.app.files import read_file
    from mpctl.watch.policy import WatchPolicy

    policy = WatchPolicy() if file is None else WatchPolicy.parse(read_file(file, "--watch-policy"), file=file)
    return policy if interval_s is None else replace(policy, interval_s=max(interval_s, 0.2))


def _services(
    context: CliContext, place: Place, name: str | None, given: WatchOptions
) -> Callable[[], Sequence[Session]]:
    from mpctl.app.session.open import open_sessions

    return lambda: open_sessions(
        place, context.terminal, name, everywhere=given["all_namespaces"], labels=given["selector"]
    )


def reopen(terminal: Terminal, place: Place) -> Callable[[Session], Session]:
    """Opens a service for an operation of the watch, which nobody attends."""
    from mpctl.app.session.open import open_session
    from mpctl.app.watch.act import Unattended

    def tell(line: str) -> None:
        if terminal.verbose:
            terminal.note(line)

    return lambda session: open_session(place._replace(namespace=session.namespace), Unattended(tell), session.name)


def _source(given: WatchOptions) -> Source:
    from mpctl.app.watch.sources import from_prometheus, read_engines

    return read_engines if given["prometheus"] is None else from_prometheus(given["prometheus"])


def _send(context: CliContext, given: WatchOptions, event: WatchEvent) -> None:
    """To the webhook; a receiver that is gone stops nothing."""
    from mpctl.errors import MpctlError
    from mpctl.platform import notify

    url, body = given["webhook"], notify.shaped(given["webhook_format"], event.to_record(), given["webhook_key"])
    if url is None or body is None:
        return
    try:
        notify.post(url, body)
    except MpctlError as error:
        context.terminal.warn(f"event not delivered: {error.message}")


def _publisher(context: CliContext, require: Callable[[], None]) -> Publisher:
    from datetime import UTC, datetime

    from mpctl.app.session.base import who
    from mpctl.app.session.cluster import open_client
    from mpctl.app.watch.publish import Publisher
    from mpctl.platform.kubernetes.speculation_status import StatusWriter

    if context.place.platform != "kubernetes":
        raise InputError("only a cluster has objects to write", field="--publish")

    def now() -> str:
        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    client = open_client(context.place)
    client.guard = require
    return Publisher(StatusWriter(client, who()), time.monotonic, now, context.terminal.warn)


def _once(context: CliContext, watcher: Watcher, publisher: Publisher | None) -> None:
    """Two rounds, one interval apart."""
    from mpctl.app.watch.exposition import record, table_rows
    from mpctl.watch.signals import Signal

    pause_s = watcher.policy.interval_s
    watcher.round()
    if watcher.watched:
        apart = f"{formatting.duration(pause_s)} apart (--interval)"
        context.terminal.step("watch", f"two readings of every engine, {apart}: the first is taken")
    time.sleep(pause_s)
    watcher.round()
    rows = list(watcher.watched.values())
    if not rows:
        raise InputError("no service to watch is up", hint=f"run '{commands.line('status', '-A')}' to list services")
    if publisher is not None:
        publisher.publish(rows)
    context.emit(
        "WatchList",
        record=lambda: {"items": [record(w) for w in rows]},
        names=lambda: [f"{w.session.namespace}/{w.session.name}" for w in rows],
        table=lambda _wide: columns(table_rows(rows)),
    )
    if any(w.assessment.finding for w in rows):
        raise click.exceptions.Exit(FINDING)
    if any(w.assessment.signal is Signal.BLIND for w in rows):
        raise click.exceptions.Exit(BLIND)


def _run(
    context: CliContext,
    watcher: Watcher,
    beat: Beat,
    events: list[WatchEvent],
    lock: threading.Lock,
    stop: threading.Event,
    round_: Callable[[], None],
) -> None:
    from mpctl.app.watch.exposition import table_rows

    terminal = context.terminal
    redrawn = context.output in ("table", "wide") and terminal.live and terminal.out.isatty()
    recent: list[str] = []
    announced: int | None = None
    with terminal.screen() as draw:
        while not stop.is_set():
            round_()
            beat.now()
            if not redrawn and len(watcher.watched) != announced:
                announced = len(watcher.watched)
                terminal.note(_scope(announced, watcher.policy.interval_s))
            with lock:
                new, events[:] = list(events), []
            recent = [*recent, *(e.line for e in new)][-10:]
            if redrawn:
                with page(terminal.page_width):
                    rows = table_rows(list(watcher.watched.values()))
                    table = columns(rows) if watcher.watched else "no service is up"
                    draw("\n".join([table, "", *(paragraph(line, "", "  ") for line in recent)]))
            for event in () if redrawn else new:
                terminal.result(_line(event, context.output))
            stop.wait(max(watcher.policy.interval_s - beat.age_s, 0.0))


def _scope(services: int, interval_s: float) -> str:
    """What is watched, in words."""
    if not services:
        return "no service is up yet; each event will be a line, until Ctrl-C"
    what = "1 service" if services == 1 else f"{services} services"
    return f"watching {what} every {formatting.duration(interval_s)}; each event is a line, until Ctrl-C"


def _led(
    context: CliContext, given: WatchOptions, stop: threading.Event, beat: Beat
) -> AbstractContextManager[Callable[[], None]]:
    """Wait until this watch leads, where it has others beside it."""
    if not given["leader_elect"]:
        return nullcontext(lambda: None)
    from mpctl.app.watch.leader import leading

    def wait(seconds: float) -> bool:
        beat.now()
        return stop.wait(seconds)

    everywhere, home = given["all_namespaces"], given["lease_namespace"]
    return leading(context.place, wait, context.terminal.note, everywhere=everywhere, home=home)


@contextmanager
def _listening(context: CliContext, given: WatchOptions, watcher: Watcher, beat: Beat) -> Iterator[None]:
    """Answer /metrics and /healthz, also while another watch leads."""
    from mpctl.app.watch.exposition import health, metrics
    from mpctl.platform.listener import Listener

    if given["listen"] is None:
        yield
        return
    pages = {"/metrics": lambda: (200, metrics(watcher)), "/healthz": lambda: health(watcher, beat.age_s)}
    listener = Listener(given["listen"], pages)
    context.terminal.note(f"/metrics and /healthz on {listener.address}")
    try:
        yield
    finally:
        listener.close()


def _line(event: WatchEvent, output: str) -> str:
    return json.dumps(event.to_record()) if output == "json" else f"{event.at} {event.line}"


@contextmanager
def _stoppable() -> Iterator[threading.Event]:
    """SIGTERM and Ctrl-C end the loop after its round; operations under way are finished first."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, lambda *_: stop.set())
    try:
        yield stop
    finally:
        for number, handler in before.items():
            with suppress(ValueError):
                signal.signal(number, handler)
