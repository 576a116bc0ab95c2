"""``mpctl preflight``: check a change without making it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.shared import file_option, name_argument, output_option, shared_options
from mpctl.cli.options.speculation import change_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import Settings

if TYPE_CHECKING:
    from mpctl.cli.change import Change


@click.command("preflight")
@name_argument
@file_option
@change_options()
@option("--ask-engine", is_flag=True, help="Also ask the installed vLLM's own configuration class; takes seconds.")
@output_option
@shared_options
@click.pass_context
def command(
    ctx: click.Context, /, name: str | None, file: str | None, *, ask_engine: bool, output: str, **options: Any
) -> None:
    """Check a change without making it: what forbids it, what speaks against it, what could not be checked.

    \b
    Examples:
      mpctl preflight --spec eagle3 --draft /models/head
      mpctl preflight --spec ngram --ask-engine -o json
      mpctl preflight -f service.yaml --spec ngram           a manifest, before it is applied
    """
    settings = Settings.of(ctx, options)
    from mpctl.cli.change import read_change, require_allowed
    from mpctl.cli.source import open_source
    from mpctl.methods import engine_opinion

    session = open_source(settings, name, file)
    change = read_change(session, options)
    opinion = engine_opinion(change.spec.config() or {}) if ask_engine else None
    terminal = settings.terminal
    if output in ("json", "yaml"):
        body = {
            "service": "/".join(filter(None, (session.namespace, session.name))),
            "speculation": change.spec.config(),
            "findings": [dict(f.__dict__) for f in change.findings],
            "unchecked": list(change.unchecked),
            "draft": change.chosen.draft if change.chosen else None,
            "draftReason": change.chosen.reason if change.chosen else None,
            "match": [dict(c.__dict__) for c in change.checks],
            "staging": {"mode": change.staging.mode, "path": change.staging.path} if change.staging else None,
            "kvPoolTokens": _pool(change),
            "engine": dict(opinion.__dict__) if opinion else None,
        }
        terminal.record("Preflight", body, output)
    elif output == "name":
        for finding in change.findings:
            terminal.result(finding.id)
    elif change.findings:
        rows = [[f.severity, f.id, f.reason, f.todo, f.source] for f in change.findings]
        terminal.table(["SEVERITY", "FINDING", "REASON", "TO DO", "SOURCE"], rows)
    else:
        terminal.note(f"nothing speaks against {change.spec.describe()} on {session.name}")
    if output in ("table", "wide") and change.checks:
        terminal.result("")
        terminal.table(["MATCH", "VERDICT", "WHY"], [[c.id, c.verdict, c.text or "-"] for c in change.checks])
    if change.chosen is not None and change.chosen.reason:
        terminal.note(f"draft {change.chosen.draft}: {change.chosen.reason}; --draft names another")
    for line in change.unchecked:
        terminal.note(f"unchecked: {line}")
    if opinion is not None:
        terminal.note(f"engine: {opinion.verdict} {opinion.message}".rstrip())
    require_allowed(change, tuple(options["ignore"]))
    if file is None:
        terminal.note("rollout with the same options measures it")
    else:
        terminal.note("render with the same options prints the changed manifest")


def _pool(change: Change) -> dict[str, Any] | None:
    """The KV pool in tokens before and after, from the pessimistic to the optimistic end."""
    found = change.memory
    if found is None:
        return None
    before, after = found.before, found.after
    return {"before": [before.low, before.high], "after": [after.low, after.high], "basis": found.basis}
