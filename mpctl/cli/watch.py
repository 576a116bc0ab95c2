"""``mpctl watch``: see whether speculation still pays; ``watch acknowledge`` and ``watch install``."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from mpctl import commands, formatting
from mpctl.app.environment_requests import WatchInstallRequest, WatchRequest
from mpctl.cli.command import OUTPUT, command, service_argument
from mpctl.cli.context import CliContext
from mpctl.cli.group import LazyGroup
from mpctl.cli.printer import columns, page, paragraph
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.app.watch.events import WatchEvent
    from mpctl.app.watch.loop import Watch

FINDING, BLIND = 9, 6  # exit codes of --once
_RECENT = 10  # events below the table

watch = LazyGroup(
    "watch",
    default="run",
    table={
        "run": ("watch:run", "Watch services until Ctrl-C, or once (default)", "Commands"),
        "acknowledge": ("watch:acknowledge", "Acknowledge a fallback of the watch", "Commands"),
        "install": (
            "watch:install",
            "Print the objects that run the watch in a cluster",
            "Commands",
        ),
    },
    help="""See whether speculation still pays, why not, and fall back where a policy says so.

\b
Examples:
  mpctl watch                                  the services of the namespace
  mpctl watch qwen --once -o json              one judgement, for scripts
  mpctl watch -A --prometheus http://prometheus.monitoring:9090
  mpctl watch qwen --watch-policy watch.yaml   fall back as the file says""",
)


@command(
    "run",
    service_argument(),
    WatchRequest,
    OUTPUT,
    common="all-namespaces selector once watch-policy prometheus webhook output",
)
def run(context: CliContext, /, request: WatchRequest) -> None:
    """Compare services with what the gate measured, until Ctrl-C. Nothing is changed without a policy that says so.

    \b
    Examples:
      mpctl watch
      mpctl watch qwen --once; echo $?
      mpctl watch -l team=search --prometheus http://prometheus.monitoring:9090
      mpctl watch -A -o json --listen 127.0.0.1:9464

    A table is redrawn on a terminal; elsewhere each event is a line, with -o json a JSON object.
    """
    from mpctl.app.watch.loop import Watch

    commands.name_every_namespace()
    watching = Watch(context.place, context.terminal, request)
    if request.once:
        _once(context, watching)
    else:
        _until_stopped(context, watching)


def _once(context: CliContext, watching: Watch) -> None:
    from mpctl.app.watch.exposition import record, table_rows
    from mpctl.watch.assessment import Signal

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
    from mpctl.app.watch.exposition import table_rows

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
                terminal.result(_line(event, context.output))


def _scope(services: int, interval_s: float) -> str:
    """The services that are watched, in words."""
    if not services:
        return "no service is up yet; each event will be a line, until Ctrl-C"
    subject = "1 service" if services == 1 else f"{services} services"
    return f"watching {subject} every {formatting.duration(interval_s)}; each event is a line, until Ctrl-C"


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


@command("acknowledge", service_argument())
def acknowledge(context: CliContext, /, name: str | None) -> None:
    """Acknowledge that the watch fell back: the service's signal is FellBack until then.

    \b
    Examples:
      mpctl watch acknowledge qwen
      mpctl watch acknowledge qwen -n team-a

    Records who acknowledged, and changes nothing that serves. A promotion or a rollback by a person ends the signal,
    too.
    """
    from mpctl.app.watch.ledger_facts import acknowledge as record

    context.terminal.note(record(context.open_session(name)))


@command("install", WatchInstallRequest)
def install(context: CliContext, /, request: WatchInstallRequest) -> None:
    """Print the objects that watch the services of -n from a namespace of the watch's own. Contacts nothing.

    \b
    Examples:
      mpctl watch install -n ml --image registry.example.com/mpctl@sha256:... | kubectl apply -f -
      mpctl watch install -A --watch-policy watch.yaml --image registry.example.com/mpctl:0.4 --allow-from monitoring

    Namespace, type SpeculationStatus, Deployment with two replicas and a Lease, ServiceAccount, roles, ConfigMap with
    the policy, NetworkPolicy, PodDisruptionBudget, PodMonitor. The roles change nothing unless the policy has
    fall_back: true.
    """
    from mpctl.app.files import read_file
    from mpctl.app.watch.install import objects
    from mpctl.platform.kubernetes.access.rbac import to_yaml

    namespace = None if request.everywhere else context.shared["namespace"]
    if not namespace and not request.everywhere:
        raise InputError("required", field="--namespace", hint="-n NAME, or -A for all namespaces")
    policy = "" if request.policy_file is None else read_file(request.policy_file, "--watch-policy")
    context.terminal.result(to_yaml(objects(replace(request, namespace=namespace), policy)))
    if not request.allow_from:
        context.terminal.note(
            "the NetworkPolicy lets no pod read metrics and verdicts: add --allow-from with the namespace of "
            "Prometheus, Argo Rollouts or Flagger"
        )
    if "podmonitor" not in request.without:
        context.terminal.note(
            "the PodMonitor needs the Prometheus operator's definitions "
            f"({commands.kubectl('get', 'crd', 'podmonitors.monitoring.coreos.com')}); without them the API server "
            "refuses this object: add --without podmonitor"
        )
