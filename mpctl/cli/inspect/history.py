"""``mpctl history``: what was recorded, and a revision as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.options.shared import name_argument, output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import Settings
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.app.session.base import Session
    from mpctl.cli.terminal import Terminal
    from mpctl.rollout.operation import Operation
    from mpctl.rollout.revision import Revision


@click.command("history")
@name_argument
@option("--revision", type=click.IntRange(1), help="Print this revision instead of the list.")
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, revision: int | None, output: str, **shared: Any) -> None:
    """List recorded revisions and operations, or print one revision byte for byte.

    \b
    Examples:
      mpctl history
      mpctl history --revision 1 -o yaml > service.yaml
    """
    settings = Settings.of(ctx, shared)
    from mpctl.app.session.open import open_session

    session = open_session(settings.place, settings.terminal, name, gone=True)
    if revision is None:
        show_list(session, settings.terminal, output)
    else:
        show_revision(session, settings.terminal, revision, output)


def show_revision(session: Session, terminal: Terminal, number: int, output: str) -> None:
    """Print a revision: the manifest as it was, or its record as JSON."""
    revisions = session.store.revisions()
    chosen = next((r for r in revisions if r.number == number), None)
    if chosen is None:
        known = ", ".join(str(r.number) for r in revisions) or "none"
        raise InputError(f"{session.title} has no revision {number}; there are: {known}", field="--revision")
    if output == "json":
        terminal.record("Revision", chosen.to_record(), output)
    elif output == "name":
        terminal.result(str(number))
    else:
        terminal.exact(chosen.text)


def show_list(session: Session, terminal: Terminal, output: str) -> None:
    """Print all revisions and operations."""
    from mpctl.rollout.ledger import lost_history
    from mpctl.rollout.operation import operations

    revisions, entries = session.store.revisions(), session.store.entries()
    every = operations(entries)
    for gap in lost_history(entries, revisions):
        terminal.warn(gap)
    if output in ("json", "yaml"):
        body = {
            "revisions": [{k: v for k, v in r.to_record().items() if k != "text"} for r in revisions],
            "operations": [_operation(op) for op in every],
        }
        terminal.record("History", body, output)
    elif output == "name":
        for item in revisions:
            terminal.result(str(item.number))
    elif not every and not revisions:
        terminal.note(f"{session.title} has no recorded revision yet")
    else:
        live = session.live_text()
        header = ["REVISION", "RECORDED", "STATUS", "SPEC", "WHY"]
        rows = [_row(r, revisions, live) for r in revisions]
        if output == "wide":
            header = [*header, "BY", "DIGEST"]
            rows = [[*row, r.who, r.digest[:12]] for row, r in zip(rows, revisions, strict=True)]
        terminal.table(header, rows)
        endings = [
            [op.id, op.opened_at, op.plan.spec, op.ending.value if op.ending else f"at {op.begun or 'rest'}", op.detail]
            for op in every
        ]
        terminal.result("")
        terminal.table(["OPERATION", "OPENED", "SPEC", "ENDED", "REASON"], endings)


def _row(revision: Revision, revisions: tuple[Revision, ...], live: str | None) -> list[str]:
    newest = max((r.number for r in revisions if r.text == live), default=None)
    status = "live" if revision.number == newest else "superseded"
    return [str(revision.number), revision.created, status, revision.spec, revision.why]


def _operation(operation: Operation) -> dict[str, Any]:
    return {
        "id": operation.id,
        "openedAt": operation.opened_at,
        "closedAt": operation.closed_at,
        "by": operation.who,
        "spec": operation.plan.spec,
        "ending": operation.ending.value if operation.ending else None,
        "detail": operation.detail,
    }
