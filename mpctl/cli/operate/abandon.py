"""``mpctl abandon``: end what is unfinished and leave the service as it is."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options.shared import ask_options, name_argument, shared_options
from mpctl.cli.settings import Settings


@click.command("abandon")
@name_argument
@ask_options
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, **options: Any) -> None:
    """End an unfinished rollout or rollback where it stands, for when somebody else changed the service meanwhile.

    The live service stays as it is and is kept as a revision, the candidate is removed, the autoscaler is put back.
    mpctl rollback is the other way: it restores the recorded service, with --force over the other's change.
    """
    settings = Settings.of(ctx, options)
    from mpctl.app.session.open import open_session
    from mpctl.rollout import runner
    from mpctl.rollout.operation import open_operation

    session = open_session(settings.place, settings.terminal, name, gone=True)
    operation = open_operation(session.store.entries())
    if operation is None:
        session.console.note(f"nothing of {session.title} is unfinished")
        return
    if session.live_text() is not None and (owner := session.owned(force=True)) is not None:
        session.console.warn(owner)
    question = f"{operation.id} of {session.title} ({operation.plan.spec}) is ended; the service stays as it is now"
    session.console.confirm(f"{question}\nGo on ({session.place})?")
    with session.store.lease("abandon"), session.world() as world:
        for ended in runner.abandon(world, why="abandoned by hand"):
            session.console.note(f"{ended.id} is abandoned; {session.title} is as it was found")
    session.console.next_command(f"history {session.name}")
