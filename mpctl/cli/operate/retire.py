"""``mpctl retire``: stop a retained baseline."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import ask_options, name_argument, output_option, shared_options
from mpctl.cli.settings import in_context


@click.command("retire", cls=SectionedCommand)
@name_argument
@ask_options
@output_option
@shared_options
@in_context
def command(context: CliContext, /, name: str | None) -> None:
    """Stop the baseline that 'mpctl rollout --keep-baseline' retained, and free its GPUs.

    A rollback then takes an engine start. The next rollout and a rollback retire it, too. Interrupted, the same
    command continues.
    """
    from mpctl.app.operate import maintain
    from mpctl.cli.operate.outcome import conclude

    conclude(context, maintain.retire(context.open_session(name)))
