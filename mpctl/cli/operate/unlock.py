"""``mpctl unlock``: free a service whose operator is gone."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options.shared import ask_options, name_argument, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import Settings


@click.command("unlock")
@name_argument
@option("--force", is_flag=True, help="Unlock although the holder is alive; its command stops before its next write.")
@ask_options
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, force: bool, **options: Any) -> None:
    """Show who has locked a service, and unlock it when the holder's heartbeat has stopped.

    A holder is dead when its process on this machine is gone, or its heartbeat does not change for 20 s. The next
    command finds that out by itself.
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
    holder = lease.read()
    if holder is None:
        session.console.note(f"nobody holds {session.title}")
        return
    operation = open_operation(session.store.entries())
    under_way = f"; {operation.id} is at {operation.begun or 'rest'}" if operation is not None else ""
    session.console.note(f"{session.title} is held by {holder.describe()}{under_way}")
    if not force:
        lease.require_dead(holder)
    session.console.confirm(f"Take {session.title} from {holder.who}?")
    lease.unlock(holder, force=force)
    session.console.note(f"{session.title} is free")
    if operation is not None:
        session.console.next_command(f"resume {session.name}")
