"""``mpctl local down``: stop a service; its history stays."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options import name_argument, shared_options
from mpctl.cli.session import Settings, known_services, make_session, open_session
from mpctl.errors import Conflict
from mpctl.platform.local.orphans import stop_orphans
from mpctl.rollout.operation import open_operation


@click.command("down")
@name_argument
@click.option("--all", "every", is_flag=True, help="Every service of this machine.")
@click.option("--orphans", is_flag=True, help="Also stop engines that nobody looks after.")
@click.option("--force", is_flag=True, help="Also in the middle of a rollout, which then can only be resumed after up.")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, every: bool, orphans: bool, force: bool, **shared: Any) -> None:
    """Stop a service and its engines; revisions, ledger and measurements stay."""
    settings = Settings.of(ctx, shared)
    if every:
        sessions = [make_session(settings, ns, found) for ns, found in known_services(settings.namespace)]
    elif orphans and name is None:
        sessions = []
    else:
        sessions = [open_session(settings, name)]
    for session in sessions:
        operation = open_operation(session.store.entries())
        if operation is not None and not force:
            raise Conflict(
                f"{operation.id} of {session.namespace}/{session.name} is unfinished",
                hint="mpctl rollback undoes it; or --force",
            )
        with session.store.lease("local down"):
            session.platform.remove()
        settings.terminal.note(f"service {session.namespace}/{session.name} is down")
    if orphans:
        for orphan in stop_orphans():
            settings.terminal.note(f"stopped {orphan.arm} (pid {orphan.pid})")
