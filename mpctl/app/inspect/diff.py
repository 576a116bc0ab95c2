"""Compare a service with a recorded revision, or with a change that was not made."""

from __future__ import annotations

from mpctl.app.change import prepare
from mpctl.app.change.change import unified
from mpctl.app.change.source import Source
from mpctl.app.requests import DiffRequest
from mpctl.app.session.base import Session
from mpctl.errors import InputError
from mpctl.rollout.ledger import live_revisions


def run(session: Session, request: DiffRequest) -> str:
    """A unified diff; empty when nothing differs.

    Raises:
        InputError: there is no such revision, or the change cannot be prepared.
    """
    if request.speculation is None:
        return _since(session, request.revision)
    if request.revision is not None:
        raise InputError("cannot be combined with --revision", field="--spec")
    return prepare(session, request.speculation).diff()


def of_manifest(source: Source, request: DiffRequest) -> str:
    """A unified diff of a change to a manifest in a file; empty when it has the spec already.

    Raises:
        InputError: no change is named, or it cannot be prepared.
    """
    if request.speculation is None:
        raise InputError("a manifest has no revisions", field="-f", hint="name the change with --spec METHOD")
    if request.revision is not None:
        raise InputError("cannot be combined with -f", field="--revision")
    return prepare(source, request.speculation).diff("in the file")


def _since(session: Session, number: int | None) -> str:
    live, revisions = session.platform.read(), session.store.revisions()
    if number is None:
        known = live_revisions(session.store.entries())  # a rejected candidate was never the service
        chosen = next((r for r in reversed(revisions) if r.text != live.text and r.number in known), None)
        if chosen is None:
            session.console.note(f"{session.title} has no other revision than the present one")
            return ""
    else:
        chosen = next((r for r in revisions if r.number == number), None)
        if chosen is None:
            raise InputError(f"{session.title} has no revision {number}", hint=session.command("history"))
    names = (f"{session.name} (revision {chosen.number})", f"{session.name} (live)")
    return unified(chosen.text, live.text, names)
