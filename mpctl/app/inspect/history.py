"""Recorded revisions and operations of a service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpctl.app.session.base import Session
from mpctl.errors import InputError
from mpctl.rollout.ledger import live_revisions, lost_history
from mpctl.rollout.operation import Operation, operations
from mpctl.rollout.revision import Revision, spec_text


@dataclass(frozen=True)
class History:
    """``live``: the number of the revision that is the live manifest; None when none is. ``served``: numbers of those
    that were live; the others are candidates that were not promoted. ``absence``: why the service itself is not
    found."""

    revisions: tuple[Revision, ...]
    operations: tuple[Operation, ...]
    live: int | None
    gaps: tuple[str, ...]
    served: frozenset[int] = frozenset()
    absence: InputError | None = None

    def status(self, revision: Revision) -> str:
        """``live``, ``superseded``, or ``candidate`` for one that was not promoted."""
        if revision.number == self.live:
            return "live"
        return "superseded" if revision.number in self.served else "candidate"

    def to_record(self) -> dict[str, Any]:
        """A JSON object, without the manifests."""
        return {
            "revisions": [revision_record(r) for r in self.revisions],
            "operations": [_operation_record(operation) for operation in self.operations],
        }


def revision_record(revision: Revision) -> dict[str, Any]:
    """A revision as a JSON object, without its manifest."""
    record = {k: v for k, v in revision.to_record().items() if k != "text"}
    return {**record, "spec": spec_text(revision.spec)}


def _operation_record(operation: Operation) -> dict[str, Any]:
    return {
        "id": operation.id,
        "openedAt": operation.opened_at,
        "closedAt": operation.closed_at,
        "by": operation.who,
        "spec": operation.plan.spec_text,
        "ending": operation.ending.value if operation.ending else None,
        "detail": operation.detail,
    }


def read_history(session: Session) -> History:
    """All revisions and operations, oldest first, and the gaps in them."""
    revisions, entries = session.store.revisions(), session.store.entries()
    text = session.live_text()
    live = max((r.number for r in revisions if r.text == text), default=None)
    return History(
        revisions,
        operations(entries),
        live,
        lost_history(entries, revisions),
        live_revisions(entries),
        absence=session.absence() if text is None else None,
    )


def read_revision(session: Session, number: int) -> Revision:
    """One revision.

    Raises:
        InputError: there is none of this number.
    """
    revisions = session.store.revisions()
    chosen = next((r for r in revisions if r.number == number), None)
    if chosen is None:
        known = ", ".join(str(r.number) for r in revisions) or "none"
        raise InputError(f"{session.title} has no revision {number}; known: {known}", field="--revision")
    return chosen
