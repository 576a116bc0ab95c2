"""``mpctl resume``: go on with what was interrupted."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options.shared import name_argument, output_option, shared_options
from mpctl.cli.settings import Settings


@click.command("resume")
@name_argument
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, output: str, **shared: Any) -> None:
    """Go on with what was interrupted (rollout, rollback, retire), from its last finished step."""
    settings = Settings.of(ctx, shared)
    from mpctl.app.session.open import open_session
    from mpctl.cli.outcome import carry_out
    from mpctl.rollout.operation import open_operation, open_retirement

    session = open_session(settings.place, settings.terminal, name, gone=True)
    with session.store.lease("resume"):
        entries = session.store.entries()
        operation = open_operation(entries)
        retirement = open_retirement(entries)
        if operation is None and retirement is not None and session.live_text() == retirement.plan.text:
            operation = retirement
        if operation is None:
            session.console.note(f"nothing of {session.title} is unfinished")
            return
        session.console.note(f"going on with {operation.id}, opened {operation.opened_at} by {operation.who}")
        with session.world() as world:
            carry_out(session, settings.terminal, world, operation, output)
