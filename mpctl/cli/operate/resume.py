"""``mpctl resume``: continue what was interrupted."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import ask_options, name_argument, output_option, shared_options
from mpctl.cli.settings import in_context


@click.command("resume", cls=SectionedCommand)
@name_argument
@ask_options
@output_option
@shared_options
@in_context
def command(context: CliContext, /, name: str | None) -> None:
    """Continue an interrupted rollout, rollback or retire from its last finished step.

    An operation that another user opened is shown as a diff against the live service and confirmed first.
    """
    from mpctl.app.operate import resume
    from mpctl.cli.operate.outcome import conclude

    conclude(context, resume.run(context.open_session(name, gone=True)))
