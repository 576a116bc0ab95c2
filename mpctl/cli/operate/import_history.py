"""``mpctl import``: record an exported history for a service."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import ask_options, shared_options
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import in_context


@click.command("import", cls=SectionedCommand)
@click.argument("file", type=File(), metavar="FILE")
@option("-s", "--service", metavar="NAME", help="Service to import for (default: the one that was exported).")
@ask_options
@shared_options
@in_context
def command(context: CliContext, /, file: str, *, service: str | None) -> None:
    """Record an exported history for a service that has none.

    \b
    Examples:
      mpctl import qwen.json
      mpctl import qwen.json -s qwen-2 -n chat --context other

    Digests of the file, of each revision and of the ledger are checked first. The service itself does not change;
    interrupted, the same command continues.
    """
    from mpctl.app.operate.transfer import read_export, restore

    document = read_export(file)
    session = context.open_session(service or str(document["service"]), gone=True)
    revisions, entries = restore(session, document, path=file)
    context.terminal.note(f"imported {revisions} revisions and {entries} ledger entries for {session.title}")
