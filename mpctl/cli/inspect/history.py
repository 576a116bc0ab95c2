"""``mpctl history``: recorded revisions and operations, or one revision as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import ask_options, name_argument, output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.printer import columns
from mpctl.cli.secrets import presentable, show_secrets_option
from mpctl.cli.settings import in_context
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.app.inspect.history import History
    from mpctl.app.session.base import Session
    from mpctl.rollout.operation import Operation
    from mpctl.rollout.revision import Revision


@click.command("history", cls=SectionedCommand)
@name_argument
@option("--revision", type=click.IntRange(1), help="Print this revision instead of the list.")
@show_secrets_option
@option("--purge", is_flag=True, envvar=None, help="Delete all that is recorded about the service, which stays.")
@option("--prune", is_flag=True, envvar=None, help="Delete the measurements of older operations.")
@option("--keep", type=click.IntRange(0), default=10, help="With --prune: operations to keep whole (default: 10).")
@option("--force", is_flag=True, envvar=None, help="With --purge: also a history that cannot be read.")
@ask_options
@output_option
@shared_options
@in_context
def command(
    context: CliContext,
    /,
    name: str | None,
    revision: int | None,
    *,
    show_secrets: bool,
    purge: bool,
    prune: bool,
    keep: int,
    force: bool,
) -> None:
    """List recorded revisions and operations, or print the manifest of one revision.

    \b
    Examples:
      mpctl history
      mpctl history --revision 1 -o yaml
      mpctl history --revision 1 -o yaml --show-secrets > service.yaml     byte for byte
      mpctl history qwen --prune --keep 3    revisions and the ledger stay
      mpctl history qwen --purge
    """
    from mpctl.app.inspect.history import read_history, read_revision

    if (revision is not None) + purge + prune > 1:
        raise InputError("--revision, --purge and --prune cannot be combined", field="--purge" if purge else "--prune")
    if force and not purge:
        raise InputError("is for --purge only", field="--force")
    session = context.open_session(name, gone=True)
    if purge:
        _purge(context, session, force=force)
        return
    if prune:
        _prune(context, session, keep)
        return
    if revision is not None:
        _show_revision(context, read_revision(session, revision), show_secrets=show_secrets)
        return
    history = read_history(session)
    for gap in history.gaps:
        context.terminal.warn(gap)
    context.emit(
        "History",
        record=history.to_record,
        names=lambda: [str(r.number) for r in history.revisions],
        table=lambda wide: history_table(history, wide=wide),
    )
    if history.absence is not None:
        context.terminal.note(f"{history.absence.message}; {history.absence.hint}")
        context.terminal.note(f"'mpctl history {session.name} --purge' removes these records")
    if context.output in ("table", "wide") and not history.operations and not history.revisions:
        context.terminal.note(f"{session.title} has no recorded revision")


def _prune(context: CliContext, session: Session, keep: int) -> None:
    from mpctl.app.operate import prune

    pruned = prune.run(session, keep)
    context.terminal.note(
        f"deleted {pruned.objects} objects ({pruned.size / 1024:.0f} KiB) of {session.title}; "
        f"{pruned.remaining} are left ({pruned.remaining_size / 1024:.0f} KiB)"
    )


def _purge(context: CliContext, session: Session, *, force: bool) -> None:
    from mpctl.app.operate import purge

    deleted = purge.run(session, force=force)
    if deleted.total:
        context.terminal.note(f"deleted {deleted.describe()} of {session.title}")
    else:
        context.terminal.note(f"nothing is recorded about {session.title}")


def _show_revision(context: CliContext, revision: Revision, *, show_secrets: bool) -> None:
    """The manifest as it was, whatever ``-o`` says but json and name."""
    text = presentable(context.terminal, revision.text, show_secrets=show_secrets) if context.output != "name" else ""
    if context.output in ("json", "name"):
        context.emit(
            "Revision",
            record=lambda: {**revision.to_record(), "text": text},
            names=lambda: [str(revision.number)],
            table=lambda _wide: "",
        )
    else:
        context.terminal.exact(text)


def history_table(history: History, *, wide: bool) -> str:
    """Revisions, then operations; empty when there is neither."""
    if not history.operations and not history.revisions:
        return ""
    header = ["REVISION", "RECORDED", "STATUS", "SPEC", "WHY", *(["BY", "DIGEST"] if wide else [])]
    revisions = [[*_row(r, history), *([r.who, r.digest[:12]] if wide else [])] for r in history.revisions]
    endings = [[op.id, op.opened_at, op.plan.spec_text, _ended(op), op.detail] for op in history.operations]
    operations = columns([["OPERATION", "OPENED", "SPEC", "ENDED", "REASON"], *endings])
    return f"{columns([header, *revisions])}\n\n{operations}"


def _ended(operation: Operation) -> str:
    return operation.ending.value if operation.ending else f"at {operation.begun or 'rest'}"


def _row(revision: Revision, history: History) -> list[str]:
    from mpctl.rollout.revision import spec_text

    return [str(revision.number), revision.created, history.status(revision), spec_text(revision.spec), revision.why]
