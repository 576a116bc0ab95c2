"""Delete the measurements of older operations; revisions and the ledger stay."""

from __future__ import annotations

from mpctl.app.session.base import Session
from mpctl.rollout.ports import Pruned
from mpctl.rollout.retention import prunable


def run(session: Session, keep: int) -> Pruned:
    """Delete the measurements of all but the last ``keep`` operations. Nothing that a rollback needs is among them.

    Raises:
        NotPermitted: the right that is missing; nothing was deleted.
        Cancelled: the user declined.
    """
    names = prunable(session.store.entries(), keep)
    session.console.confirm(
        f"Delete the measurements of {session.title} but for the last {keep} operations ({session.place})?\n"
        "revisions and the ledger stay, in as few objects as possible: every rollback stays possible"
    )
    with session.store.lease("prune"):
        return session.store.prune(names)
