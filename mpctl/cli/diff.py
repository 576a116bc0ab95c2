"""``mpctl diff``: the service against a revision, or against a change that was not made."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.change import change_diff, change_options, read_change, unified
from mpctl.cli.options import name_argument, option, shared_options
from mpctl.cli.session import Settings, open_session
from mpctl.errors import InputError


@click.command("diff")
@name_argument
@option("--revision", type=click.IntRange(1), default=None, help="Compare with this revision; default: the one before.")
@change_options(required=False)
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, revision: int | None, **options: Any) -> int:
    """Show what differs. Exit code 0: nothing, 1: something, more: an error, as kubectl diff.

    \b
    Examples:
      mpctl diff                      from the revision before to the service as it is
      mpctl diff --revision 1
      mpctl diff --spec ngram         what a rollout would change
    """
    session = open_session(Settings.of(ctx, options), name)
    if options["spec"]:
        text = change_diff(read_change(session, options))
    else:
        live = session.platform.read()
        revisions = session.store.revisions()
        if revision is None:
            older = [r for r in revisions if r.text != live.text]
            if not older:
                session.terminal.note(f"service {session.name} has no other revision than the present one")
                return 0
            chosen = older[-1]
        else:
            found = [r for r in revisions if r.number == revision]
            if not found:
                raise InputError(f"service {session.name} has no revision {revision}", hint="mpctl history")
            chosen = found[0]
        names = (f"{session.name} (revision {chosen.number})", f"{session.name} (live)")
        text = unified(chosen.text, live.text, names)
    if text:
        session.terminal.result(text)
    return 1 if text else 0
