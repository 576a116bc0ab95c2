"""``mpctl unlock``: free a service whose operator is gone."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options.shared import ask_options, name_argument, shared_options
from mpctl.cli.settings import Settings


@click.command("unlock")
@name_argument
@ask_options
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, **options: Any) -> None:
    """Show who holds a service, and take the hold away when its heartbeat has stopped.

    A command that died on this machine, or whose heartbeat stopped more than 20 s ago on another, holds nothing any
    more; the next command finds that out itself. A holder that is alive is never unlocked.
    """
    settings = Settings.of(ctx, options)
    from mpctl.app.session.open import open_session
    from mpctl.errors import InputError
    from mpctl.platform.kubernetes.store import KubernetesStore
    from mpctl.rollout.operation import open_operation

    session = open_session(settings.place, settings.terminal, name, gone=True)
    if not isinstance(session.store, KubernetesStore):
        raise InputError(
            "locks of this machine end with the process that holds them", hint=f"mpctl status {session.name}"
        )
    lease = session.store.held
    found = lease.look()
    if found is None:
        session.console.note(f"nobody holds {session.title}")
        return
    operation = open_operation(session.store.entries())
    under_way = f"; {operation.id} is at {operation.begun or 'rest'}" if operation is not None else ""
    session.console.note(f"{session.title} is held by {found.describe()}{under_way}")
    lease.require_dead(found)
    session.console.confirm(f"Take {session.title} from {found.who}?")
    lease.unlock()
    session.console.note(f"{session.title} is free")
    if operation is not None:
        session.console.next_command(f"resume {session.name}")
