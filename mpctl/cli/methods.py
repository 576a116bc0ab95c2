"""``mpctl methods``: what ``--spec`` accepts."""

from __future__ import annotations

import json
from typing import Any

import click

from mpctl.cli.options import output_option, shared_options
from mpctl.cli.session import Settings
from mpctl.speculation import METHODS


@click.command("methods")
@output_option("table", "json", "yaml", "name")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, output: str, **shared: Any) -> None:
    """List speculation methods, what they need and their defaults."""
    terminal = Settings.of(ctx, shared).terminal
    if output == "table":
        rows = [
            [m.name, m.needs_draft, json.dumps(dict(m.defaults)) if m.defaults else "-", m.summary]
            for m in METHODS.values()
        ]
        terminal.table(["METHOD", "DRAFT", "DEFAULTS", "SUMMARY"], rows)
    elif output == "name":
        terminal.result("\n".join(METHODS))
    else:
        body = [
            {"name": m.name, "draft": m.needs_draft, "defaults": dict(m.defaults), "summary": m.summary}
            for m in METHODS.values()
        ]
        terminal.record("MethodList", {"items": body}, output)
