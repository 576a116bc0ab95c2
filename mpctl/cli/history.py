"""``mpctl history``: what was recorded, and a revision as it was."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options import name_argument, option, output_option, shared_options
from mpctl.cli.session import Settings, open_session
from mpctl.errors import InputError
from mpctl.rollout.operation import Operation, operations
from mpctl.rollout.records import Revision


@click.command("history")
@name_argument
@option("--revision", type=click.IntRange(1), default=None, help="Print this revision instead of the list.")
@output_option("table", "wide", "yaml", "json", "name")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, revision: int | None, output: str, **shared: Any) -> None:
    """List recorded revisions and operations, or print one revision byte for byte.

    \b
    Examples:
      mpctl history
      mpctl history --revision 1 -o yaml > service.yaml
    """
    session = open_session(Settings.of(ctx, shared), name)
    revisions = session.store.revisions()
    if revision is not None:
        chosen = next((r for r in revisions if r.number == revision), None)
        if chosen is None:
            known = ", ".join(str(r.number) for r in revisions) or "none"
            raise InputError(
                f"service {session.name} has no revision {revision}; there are: {known}", field="--revision"
            )
        if output == "json":
            session.terminal.record("Revision", chosen.to_record(), output)
        else:
            click.echo(chosen.text, nl=False)
        return
    if output in ("json", "yaml"):
        body = {
            "revisions": [{k: v for k, v in r.to_record().items() if k != "text"} for r in revisions],
            "operations": [_operation(op) for op in operations(session.store.entries())],
        }
        session.terminal.record("History", body, output)
    elif output == "name":
        for item in revisions:
            session.terminal.result(str(item.number))
    elif not revisions:
        session.terminal.note(f"service {session.namespace}/{session.name} has no recorded revision yet")
    else:
        live = session.platform.read().text
        header = ["REVISION", "RECORDED", "STATUS", "SPEC", "WHY"]
        rows = [_row(r, revisions, live) for r in revisions]
        if output == "wide":
            header = [*header, "BY", "DIGEST"]
            rows = [[*row, r.who, r.digest[:12]] for row, r in zip(rows, revisions, strict=True)]
        session.terminal.table(header, rows)
        endings = [
            [op.id, op.opened_at, op.plan.spec, op.ending.value if op.ending else f"at {op.begun or 'rest'}", op.detail]
            for op in operations(session.store.entries())
        ]
        session.terminal.result("")
        session.terminal.table(["OPERATION", "OPENED", "SPEC", "ENDED", "REASON"], endings)


def _row(revision: Revision, revisions: tuple[Revision, ...], live: str) -> list[str]:
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
