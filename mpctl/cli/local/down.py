"""``mpctl local down``: stop a service; its history stays."""

from __future__ import annotations

import click

from mpctl import commands
from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import name_argument, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import in_context


@click.command("down", cls=SectionedCommand)
@name_argument
@option("--all", "every", is_flag=True, help="Stop every service of this machine, or of the namespace.")
@option("--orphans", is_flag=True, help="Also stop engines that no supervisor manages.")
@option("--force", is_flag=True, help="Stop a service during a rollout; 'mpctl local up' must precede its resume.")
@shared_options
@in_context
def command(context: CliContext, /, *, name: str | None, every: bool, orphans: bool, force: bool) -> None:
    """Stop a service and its engines; revisions, ledger and measurements stay.

    \b
    Examples:
      mpctl local down
      mpctl local down --all --orphans
    """
    from mpctl.app.local import down
    from mpctl.app.requests import LocalDownRequest

    terminal = context.terminal
    stopped = down(context.place, terminal, LocalDownRequest(name, every=every, orphans=orphans, force=force))
    for title in stopped.titles:
        terminal.note(f"{title} stopped")
    if every and not stopped.titles and not stopped.conflicts:
        terminal.note("no service is up")
    for orphan in stopped.orphans:
        terminal.note(f"stopped {orphan.arm} (pid {orphan.pid})")
    if stopped.titles and not orphans:
        terminal.next_command(commands.line("local", "up", "-f", "MANIFEST"))
    stopped.require_all()
