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
    """Go on with what was interrupted (rollout, rollback, retire), from its last finished step."""
    settings = Settings.of(ctx, shared)
    from mpctl.cli.outcome import carry_out
    from mpctl.cli.session import open_session
    from mpctl.rollout.operation import open_operation, open_retirement

    session = open_session(settings, name, gone=True)
    with session.store.lease("resume"):
        entries = session.store.entries()
        operation = open_operation(entries)
        retirement = open_retirement(entries)
        if operation is None and retirement is not None and session.live_text() == retirement.plan.text:
            operation = retirement
        if operation is None:
            session.terminal.note(f"nothing of {session.title} is unfinished")
            return
        session.terminal.note(f"going on with {operation.id}, opened {operation.opened_at} by {operation.who}")
        with session.world() as world:
            carry_out(session, world, operation, output)
