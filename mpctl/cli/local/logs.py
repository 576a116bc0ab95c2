"""``mpctl local logs``: what an engine said."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options.shared import name_argument, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import Settings
from mpctl.errors import InputError


@click.command("logs")
@name_argument
@option("--arm", metavar="ID", help="Arm; default: the one that gets the traffic.")
@option("--tail", type=click.IntRange(0), help="Only the last lines.")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, arm: str | None, tail: int | None, **shared: Any) -> None:
    """Print what an engine said.

    \b
    Examples:
      mpctl local logs --tail 20
      mpctl local logs qwen --arm arm-0123456789
    """
    settings = Settings.of(ctx, shared)
    from mpctl.app.session.local import open_local
    from mpctl.platform.local.supervisor import log_path

    session = open_local(settings.place, settings.terminal, name)
    desired = session.platform.desired()
    path = log_path(session.platform.directory, arm or desired.route)
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.log"))) or "none"
        raise InputError(f"there is no log of {arm or desired.route}", hint=f"there are logs of: {known}")
    lines = path.read_text(errors="replace").splitlines()
    kept = lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]
    if kept:
        settings.terminal.result("\n".join(kept))
