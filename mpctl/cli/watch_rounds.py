"""The rounds of ``mpctl watch``, printed."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click

from mpctl import formatting
from mpctl.app.environment_requests import WatchRequest
from mpctl.app.watch.exposition import record, table_rows
from mpctl.app.watch.loop import Watch
from mpctl.cli.context import CliContext
from mpctl.cli.printer import columns, page, paragraph
from mpctl.watch.assessment import Signal

FINDING, BLIND = 9, 6  # exit codes of --once
_RECENT = 10  # events below the table


def print_rounds(context: CliContext, request: WatchRequest) -> None:
    """Print one judgement of every service, whose exit code says whether there is a finding; or events until the watch
    is stopped."""
    watching = Watch(context.place, context.terminal, request)
    if request.once:
        _once(context, watching)
    else:
        _until_stopped(context, watching)


def _once(context: CliContext, watching: Watch) -> None:
    services = watching.once()
    context.emit(
        "WatchList",
        record=lambda: {"items": [record(watched) for watched in services]},
        names=lambda: ["/".join(watched.key) for watched in services],
        table=lambda _wide: columns(table_rows(services)),
    )
    if any(watched.assessment.finding for watched in services):
        raise click.exceptions.Exit(FINDING)
    if any(watched.assessment.signal is Signal.BLIND for watched in services):
        raise click.exceptions.Exit(BLIND)


def _until_stopped(context: CliContext, watching: Watch) -> None:
    """Print events, or redraw a table on a terminal."""
    terminal, watcher = context.terminal, watching.watcher
    redrawn = context.output in ("table", "wide") and terminal.live and terminal.out.isatty()
    recent: list[str] = []
    announced: int | None = None
    with _stoppable() as stop, watching.running(stop) as rounds, terminal.screen() as draw:
        for events in rounds:
            services = list(watcher.watched.values())
            if redrawn:
                recent = [*recent, *(event.line for event in events)][-_RECENT:]
                with page(terminal.page_width):
                    table = columns(table_rows(services)) if services else "no service is up"
                    draw("\n".join([table, "", *(paragraph(line, "", "  ") for line in recent)]))
                continue
            if len(services) != announced:
                announced = len(services)
                terminal.note(_scope(announced, watcher.policy.interval_s))
            for event in events:
                as_json = context.output == "json"
                terminal.result(
                    json.dumps(event.to_record()) if as_json else f"{event.at} {event.line}"
                )


def _scope(services: int, interval_s: float) -> str:
    """The services that are watched, in words."""
    if not services:
        return "no service is up yet; each event will be a line, until Ctrl-C"
    subject = formatting.plural(services, "service")
    return f"watching {subject} every {formatting.duration(interval_s)}; each event is a line, until Ctrl-C"


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
