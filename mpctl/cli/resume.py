"""``mpctl resume``: go on with what was interrupted."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options import name_argument, output_option, shared_options
from mpctl.cli.outcome import carry_out
from mpctl.cli.session import Settings, open_session
from mpctl.rollout.operation import open_operation


@click.command("resume")
@name_argument
@output_option("table", "json", "yaml")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, output: str, **shared: Any) -> None:
    """Go on with a rollout or rollback that was interrupted, from its last finished step."""
    session = open_session(Settings.of(ctx, shared), name)
    with session.store.lease("resume"):
        operation = open_operation(session.store.entries())
        if operation is None:
            session.terminal.note(f"nothing of service {session.namespace}/{session.name} is unfinished")
            return
        session.terminal.note(f"going on with {operation.id}, opened {operation.opened_at} by {operation.who}")
        with session.world() as world:
            carry_out(session, world, operation, output)
