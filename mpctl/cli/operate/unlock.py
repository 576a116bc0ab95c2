"""``mpctl unlock``: free a service whose operator is gone."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import ask_options, name_argument, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import in_context


@click.command("unlock", cls=SectionedCommand)
@name_argument
@option(
    "--force",
    section="Execution",
    is_flag=True,
    help="Unlock although the holder is alive or entries of the ledger were removed.",
)
@ask_options
@shared_options
@in_context
def command(context: CliContext, /, name: str | None, *, force: bool) -> None:
    """Show who has locked a service, and unlock it when the holder's heartbeat has stopped.

    A holder is dead when its process on this machine is gone, or its heartbeat does not change for 30 s. The next
    command finds that out by itself.
    """
    from mpctl.app.operate import maintain

    session = context.open_session(name, gone=True)
    if maintain.unlock(session, force=force) is not None:
        context.terminal.next_command(session.command("resume"))
