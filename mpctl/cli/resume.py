"""``mpctl resume``: go on with what was interrupted."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options import name_argument, output_option, shared_options
from mpctl.cli.settings import Settings


@click.command("resume")
@name_argument
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, output: str, **shared: Any) -> None:
    """Go on with a rollout or rollback that was interrupted, from its last finished step."""
    settings = Settings.of(ctx, shared)
    from mpctl.cli.outcome import carry_out
    from mpctl.cli.session import open_session
    from mpctl.rollout.operation import open_operation

    session = open_session(settings, name, gone=True)
    with session.store.lease("resume"):
        operation = open_operation(session.store.entries())
        if operation is None:
            session.terminal.note(f"nothing of {session.title} is unfinished")
            return
        session.terminal.note(f"going on with {operation.id}, opened {operation.opened_at} by {operation.who}")
        with session.world() as world:
            carry_out(session, world, operation, output)
