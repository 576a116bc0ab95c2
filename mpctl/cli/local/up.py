"""``mpctl local up``: start a service from its manifest."""

from __future__ import annotations

import click

from mpctl import commands
from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import name_argument, shared_options, timeout_option
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import in_context


@click.command("up", cls=SectionedCommand)
@name_argument
@option(
    "-f",
    "--file",
    type=File(),
    metavar="FILE|-",
    help="Manifest, - for standard input (default: that of the service that is up).",
)
@option("--port", type=click.IntRange(1, 65535), help="Port of the service (default: a free one).")
@option("--vllm", metavar="COMMAND", help="vllm command or its python (default: of this environment).")
@option("--lifeline", "lifeline_pid", type=int, metavar="PID", help="Stop the service when this process ends.")
@option("--wait/--no-wait", default=True, help="Wait until the service answers.")
@timeout_option("10m")
@shared_options
@in_context
def command(
    context: CliContext,
    /,
    *,
    name: str | None,
    file: str | None,
    port: int | None,
    vllm: str | None,
    lifeline_pid: int | None,
    wait: bool,
    timeout: float,
) -> None:
    """Start a service from its manifest: KServe InferenceService or Modelplane ModelDeployment.

    \b
    Examples:
      mpctl local up -f service.yaml
      mpctl local up qwen -f all.yaml --port 8000 --timeout 20m
      mpctl local up qwen                      after a restart of this machine

    The container's arguments are passed to vLLM unchanged, with a loopback address of mpctl's own; image and resources
    are ignored. Repeating the command restores lost processes of the service, as it was last written.
    """
    from mpctl.app.local import up
    from mpctl.app.requests import LocalUpRequest

    request = LocalUpRequest(name, file, port, vllm, lifeline_pid, wait, timeout)
    service = up(context.place, context.terminal, request)
    state = ("is " if service.ready else "will be ") + ("already " if service.existed else "")
    context.terminal.note(f"{service.title} {state}up at {service.url}")
    context.terminal.next_command(commands.line("rollout", service.name, "--spec=ngram", namespace=service.namespace))
