"""``mpctl export``: a service's history as one file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import name_argument, shared_options
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import in_context


@click.command("export", cls=SectionedCommand)
@name_argument
@option("--output-file", type=File(), metavar="FILE", help="File to write (default: standard output).")
@shared_options
@in_context
def command(context: CliContext, /, name: str | None, *, output_file: str | None) -> None:
    """Write revisions, ledger and measurements of a service to one file.

    \b
    Examples:
      mpctl export qwen --output-file qwen.json
      mpctl export qwen > qwen.json
      mpctl import qwen.json --context other

    Works for a deleted service, too. The manifests are written as they are recorded, with the secrets that they hold.
    """
    from mpctl.app.operate.transfer import export, write_export

    text = json.dumps(export(context.open_session(name, gone=True)), sort_keys=True) + "\n"
    if output_file in (None, "-"):
        context.terminal.exact(text)
        return
    write_export(Path(str(output_file)), text)
    context.terminal.note(f"wrote {output_file}")
