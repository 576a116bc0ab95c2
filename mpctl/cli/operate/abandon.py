"""``mpctl abandon``: end what is unfinished and leave the service as it is."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import ask_options, name_argument, shared_options
from mpctl.cli.settings import in_context


@click.command("abandon", cls=SectionedCommand)
@name_argument
@ask_options
@shared_options
@in_context
def command(context: CliContext, /, name: str | None) -> None:
    """End an unfinished rollout or rollback where it stands, after another writer changed the service.

    The live service stays as it is and is recorded as a revision, the candidate is removed, the autoscaler is
    unpinned. 'mpctl rollback' instead restores the recorded service; with --force over another writer's change.
    """
    from mpctl.app.operate import maintain

    session = context.open_session(name, gone=True)
    ended = maintain.abandon(session)
    for operation in ended:
        context.terminal.note(f"{operation.id} is abandoned; {session.title} is unchanged")
    if ended:
        context.terminal.next_command(session.command("history"))
    else:
        context.terminal.note(f"{session.title} has no unfinished operation")
