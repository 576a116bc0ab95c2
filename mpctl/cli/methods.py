"""``mpctl methods``: what ``--spec`` accepts."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options import output_option, shared_options
from mpctl.cli.settings import terminal_of


@click.command("methods")
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, output: str, **shared: Any) -> None:
    """List speculation methods, what they need and their defaults."""
    terminal = terminal_of(ctx, shared)
    import json

    from mpctl.speculation.methods import METHODS

    if output in ("json", "yaml"):
        body = [
            {"name": m.name, "draft": m.needs_draft, "defaults": dict(m.defaults), "summary": m.summary}
            for m in METHODS.values()
        ]
        terminal.record("MethodList", {"items": body}, output)
    elif output == "name":
        terminal.result("\n".join(METHODS))
    else:
        rows = [
            [m.name, m.needs_draft, json.dumps(dict(m.defaults)) if m.defaults else "-", m.summary]
            for m in METHODS.values()
        ]
        terminal.table(["METHOD", "DRAFT", "DEFAULTS", "SUMMARY"], rows)
