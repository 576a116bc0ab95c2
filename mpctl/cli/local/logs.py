"""``mpctl local logs``: the log of an engine."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import name_argument, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import in_context


@click.command("logs", cls=SectionedCommand)
@name_argument
@option("--arm", metavar="ID", help="Arm whose log is printed (default: the arm that gets the traffic).")
@option("--tail", type=click.IntRange(0), metavar="LINES", help="Print only the last lines (default: all).")
@shared_options
@in_context
def command(context: CliContext, /, *, name: str | None, arm: str | None, tail: int | None) -> None:
    """Print the log of an engine.

    \b
    Examples:
      mpctl local logs --tail 20
      mpctl local logs qwen --arm arm-0123456789
    """
    from mpctl.app.local import read_log
    from mpctl.app.requests import LocalLogsRequest

    lines = read_log(context.place, context.terminal, LocalLogsRequest(name, arm, tail))
    if lines:
        context.terminal.result("\n".join(lines))
