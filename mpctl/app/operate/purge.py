"""Delete what was recorded about a service."""

from __future__ import annotations

from mpctl import commands
from mpctl.app.session.base import Session
from mpctl.errors import Conflict, MpctlError, NotPermitted
from mpctl.platform.kubernetes.api.failure import Unreachable
from mpctl.platform.kubernetes.store import KubernetesStore
from mpctl.rollout.ports import Recorded
from mpctl.rollout.retention import only_copies, require_finished


def run(session: Session, *, force: bool = False) -> Recorded:
    """Delete revisions, ledger, records and lock; the service itself stays as it is. Returns what was deleted.

    ``force``: also a history that cannot be read, in which an unfinished operation would not show.

    Raises:
        Conflict: an operation is unfinished, a retained baseline runs, or the history cannot be read.
        NotPermitted: with the roles that permit it.
        Cancelled: the user declined.
    """
    try:
        return _purge(session, force=force)
    except NotPermitted as error:
        raise NotPermitted(error.message, hint=_hint(session)) from error


def _purge(session: Session, *, force: bool) -> Recorded:
    recorded = session.store.recorded()
    if not recorded.total:
        return recorded
    lost = _lost(session, force=force)
    consequence = "the live service does not change"
    if lost is None:
        consequence += "; its history cannot be read, so an unfinished operation would not show"
    elif lost:
        numbers = ", ".join(str(number) for number in lost)
        consequence += (
            f"\nrevision{'s' if len(lost) > 1 else ''} {numbers} cannot be restored afterwards: no other copy is known"
        )
    session.console.confirm(
        f"Delete {recorded.describe()} of {session.title} ({session.place})?\n{consequence}",
        typed="" if lost == () else session.name,
    )
    with session.store.lease("purge"):
        _lost(session, force=force)
        session.store.purge()
    return recorded


def _lost(session: Session, *, force: bool) -> tuple[int, ...] | None:
    """Revisions that nothing else restores; None where the history cannot be read."""
    try:
        entries, revisions = session.store.entries(), session.store.revisions()
    except (NotPermitted, Unreachable):
        raise
    except MpctlError as error:
        if force:
            return None
        raise Conflict(
            f"{error.message}; an unfinished operation would not show",
            hint=f"{session.command('history', '--purge', '--force')} deletes it all the same",
        ) from error
    live = session.live_text()
    retained = None if live is None else session.platform.retained_baseline()
    require_finished(session.title, session.command, entries, retained)
    return only_copies(entries, revisions, live)


def _hint(session: Session) -> str | None:
    if not isinstance(session.store, KubernetesStore):
        return None
    roles = commands.line("rbac", "--purge", namespace=session.namespace)
    return f"the operator role deletes no history; '{roles}' prints roles that do"
