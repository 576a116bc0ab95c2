"""``mpctl local down``: stop a service; its history stays."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options.shared import name_argument, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import Settings
from mpctl.errors import Conflict


@click.command("down")
@name_argument
@option("--all", "every", is_flag=True, help="Every service of this machine, or of the namespace.")
@option("--orphans", is_flag=True, help="Also stop engines that nobody looks after.")
@option("--force", is_flag=True, help="Also in the middle of a rollout, which then can only be resumed after up.")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, every: bool, orphans: bool, force: bool, **shared: Any) -> None:
    """Stop a service and its engines; revisions, ledger and measurements stay.

    \b
    Examples:
      mpctl local down
      mpctl local down --all --orphans
    """
    settings = Settings.of(ctx, shared)
    from mpctl.app.session.local import LocalSession, known_services, open_local
    from mpctl.platform.local.orphans import stop_orphans
    from mpctl.rollout.operation import open_operation

    if every:
        sessions = [
            LocalSession(ns, found, settings.terminal) for ns, found in known_services(settings.place.namespace)
        ]
    elif orphans and name is None:
        sessions = []
    else:
        sessions = [open_local(settings.place, settings.terminal, name)]
    conflicts: list[Conflict] = []
    for session in sessions:
        try:
            operation = None if force else open_operation(session.store.entries())
            if operation is not None:
                raise Conflict(
                    f"{operation.id} of {session.title} is unfinished",
                    hint=f"mpctl rollback {session.name} undoes it, mpctl resume {session.name} goes on; or --force",
                )
            with session.store.lease("local down"):
                session.platform.remove()
        except Conflict as conflict:
            conflicts.append(conflict)  # told at the end: the others are stopped all the same
        else:
            settings.terminal.note(f"{session.title} is down")
    if every and not sessions:
        settings.terminal.note("no service is up")
    if orphans:
        for orphan in stop_orphans():
            settings.terminal.note(f"stopped {orphan.arm} (pid {orphan.pid})")
    elif len(sessions) > len(conflicts):
        settings.terminal.next_command("local up -f MANIFEST")
    if len(conflicts) == 1:
        raise conflicts[0]
    if conflicts:
        hints = dict.fromkeys(c.hint for c in conflicts if c.hint)
        raise Conflict("; ".join(c.message for c in conflicts), hint="; ".join(hints))
