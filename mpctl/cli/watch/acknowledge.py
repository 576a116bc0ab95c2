"""``mpctl watch acknowledge``: end the signal of a fallback that somebody has seen."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import name_argument, shared_options
from mpctl.cli.settings import in_context


@click.command("acknowledge", cls=SectionedCommand)
@name_argument
@shared_options
@in_context
def command(context: CliContext, /, name: str | None) -> None:
    """Acknowledge that the watch fell back: the service's signal is FellBack until then.

    \b
    Examples:
      mpctl watch acknowledge qwen
      mpctl watch acknowledge qwen -n team-a

    Records who acknowledged, and changes nothing that serves. A promotion or a rollback by a person ends the signal,
    too.
    """
    from mpctl.app.watch import acknowledge

    session = context.open_session(name)
    context.terminal.note(acknowledge.run(session))
