"""``mpctl diff``: the service against a revision, or against a change that was not made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.shared import name_argument, shared_options
from mpctl.cli.options.speculation import change_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import Settings
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.app.session.base import Session

_FAILED = 2  # 1 says that something differs


@click.command("diff")
@name_argument
@option("--revision", type=click.IntRange(1), help="Compare with this revision; default: the one before.")
@change_options(required=False)
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, revision: int | None, **options: Any) -> int:
    """Show what differs. Exit code 0: nothing, 1: something, more: an error (2 where it has no code of its own).

    \b
    Examples:
      mpctl diff                      from the revision before to the service as it is
      mpctl diff --revision 1
      mpctl diff --spec ngram         what a rollout would change
    """
    call = ctx.find_root().obj
    if isinstance(call, CliContext):
        call.failure = _FAILED
    settings = Settings.of(ctx, options)
    from mpctl.app.session.open import open_session
    from mpctl.cli.change import change_diff, read_change

    session = open_session(settings.place, settings.terminal, name)
    if options["spec"]:
        if revision is not None:
            raise InputError("cannot be combined with --revision", field="--spec")
        text = change_diff(read_change(session, options))
    else:
        text = _since(session, revision)
    if text:
        settings.terminal.result(text)
    return 1 if text else 0


def _since(session: Session, revision: int | None) -> str:
    from mpctl.cli.change import unified

    live = session.platform.read()
    revisions = session.store.revisions()
    if revision is None:
        chosen = next((r for r in reversed(revisions) if r.text != live.text), None)
        if chosen is None:
            session.console.note(f"{session.title} has no other revision than the present one")
            return ""
    else:
        chosen = next((r for r in revisions if r.number == revision), None)
        if chosen is None:
            raise InputError(f"{session.title} has no revision {revision}", hint=f"mpctl history {session.name}")
    names = (f"{session.name} (revision {chosen.number})", f"{session.name} (live)")
    return unified(chosen.text, live.text, names)
