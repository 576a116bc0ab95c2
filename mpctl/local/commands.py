"""Services as processes on this machine: ``mpctl local up``, ``down`` and ``logs``."""

from __future__ import annotations

from mpctl import commands
from mpctl.cli.command import command, service_argument
from mpctl.cli.context import CliContext
from mpctl.cli.group import LazyGroup
from mpctl.local.requests import LocalDownRequest, LocalLogsRequest, LocalUpRequest

local = LazyGroup(
    "local",
    table={
        "up": ("mpctl.local.commands:up", "Start a service from its manifest", "Commands"),
        "down": ("mpctl.local.commands:down", "Stop a service; its history stays", "Commands"),
        "logs": ("mpctl.local.commands:logs", "Print the log of an engine", "Commands"),
    },
    help="Run services as processes on this machine: real ``vllm serve``, no cluster.",
)


@command("up", service_argument(), LocalUpRequest)
def up(context: CliContext, /, request: LocalUpRequest) -> None:
    """Start a service from its manifest: KServe InferenceService or Modelplane ModelDeployment.

    \b
    Examples:
      mpctl local up -f service.yaml
      mpctl local up qwen -f all.yaml --port 8000 --timeout 20m
      mpctl local up qwen                      after a restart of this machine

    The container's arguments are passed to vLLM unchanged, with a loopback address of mpctl's own; image and resources
    are ignored. Repeating the command restores lost processes of the service, as it was last written.
    """
    from mpctl.local.services import up as start

    service = start(context.place, context.terminal, request)
    state = ("is " if service.ready else "will be ") + ("already " if service.existed else "")
    context.terminal.note(f"{service.title} {state}up at {service.url}")
    context.terminal.next_command(
        commands.line("rollout", service.name, "--spec=ngram", namespace=service.namespace)
    )


@command("down", service_argument(), LocalDownRequest)
def down(context: CliContext, /, request: LocalDownRequest) -> None:
    """Stop a service and its engines; revisions, ledger and measurements stay.

    \b
    Examples:
      mpctl local down
      mpctl local down --all --orphans
    """
    from mpctl.local.services import down as stop

    terminal = context.terminal
    stopped = stop(context.place, terminal, request)
    for title in stopped.titles:
        terminal.note(f"{title} stopped")
    if request.every and not stopped.titles and not stopped.conflicts:
        terminal.note("no service is up")
    for orphan in stopped.orphans:
        terminal.note(f"stopped {orphan.arm} (pid {orphan.pid})")
    if stopped.titles and not request.orphans:
        terminal.next_command(commands.line("local", "up", "-f", "MANIFEST"))
    stopped.require_all()


@command("logs", service_argument(), LocalLogsRequest)
def logs(context: CliContext, /, request: LocalLogsRequest) -> None:
    """Print the log of an engine.

    \b
    Examples:
      mpctl local logs --tail 20
      mpctl local logs qwen --arm arm-0123456789
    """
    from mpctl.local.services import read_log

    lines = read_log(context.place, context.terminal, request)
    if lines:
        context.terminal.result("\n".join(lines))
