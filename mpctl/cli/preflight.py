"""``mpctl preflight``: check a change without making it."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.change import change_options, read_change, require_allowed
from mpctl.cli.options import name_argument, output_option, shared_options
from mpctl.cli.session import Settings, open_session
from mpctl.speculation import engine_opinion


@click.command("preflight")
@name_argument
@change_options()
@click.option(
    "--ask-engine", is_flag=True, help="Also ask the installed vLLM's own configuration class; takes seconds."
)
@output_option("table", "json", "yaml")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, ask_engine: bool, output: str, **options: Any) -> None:
    """Check a change without making it: what forbids it, what speaks against it, what could not be checked."""
    session = open_session(Settings.of(ctx, options), name)
    change = read_change(session, options)
    opinion = engine_opinion(change.spec.config() or {}) if ask_engine else None
    terminal = session.terminal
    if output == "table":
        rows = [[f.severity, f.id, f.reason, f.todo, f.source] for f in change.findings]
        if rows:
            terminal.table(["SEVERITY", "FINDING", "REASON", "TO DO", "SOURCE"], rows)
        for line in change.unchecked:
            terminal.note(f"unchecked: {line}")
        if opinion is not None:
            terminal.note(f"engine: {opinion.verdict} {opinion.message}".rstrip())
        if not rows:
            terminal.note(f"nothing speaks against {change.spec.describe()} on {session.name}")
    else:
        body = {
            "service": f"{session.namespace}/{session.name}",
            "speculation": change.spec.config(),
            "findings": [dict(f.__dict__) for f in change.findings],
            "unchecked": list(change.unchecked),
            "engine": dict(opinion.__dict__) if opinion else None,
        }
        terminal.record("Preflight", body, output)
    require_allowed(change, tuple(options["ignore"]))
