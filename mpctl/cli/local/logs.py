"""``mpctl local logs``: what an engine said."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options import name_argument, shared_options
from mpctl.cli.session import Settings, open_session
from mpctl.errors import InputError
from mpctl.platform.local.supervisor import log_path


@click.command("logs")
@name_argument
@click.option("--arm", default=None, metavar="ID", help="Arm; default: the one that gets the traffic.")
@click.option("--tail", type=click.IntRange(0), default=None, help="Only the last lines.")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, arm: str | None, tail: int | None, **shared: Any) -> None:
    """Print what an engine said."""
    session = open_session(Settings.of(ctx, shared), name)
    desired = session.platform.desired()
    path = log_path(session.platform.directory, arm or desired.route)
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.log"))) or "none"
        raise InputError(f"there is no log of {arm or desired.route}", hint=f"there are logs of: {known}")
    lines = path.read_text(errors="replace").splitlines()
    session.terminal.result("\n".join(lines[-tail:] if tail is not None else lines))
