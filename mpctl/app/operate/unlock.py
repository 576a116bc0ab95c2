"""Free a service whose operator is gone."""

from __future__ import annotations

from mpctl.app.session.base import Session
from mpctl.errors import InputError, MpctlError
from mpctl.platform.kubernetes.store import KubernetesStore
from mpctl.rollout.ledger import Entry
from mpctl.rollout.operation import Operation, open_operation


def run(session: Session, *, force: bool = False) -> Operation | None:
    """Remove a dead operator's lease; ``force``: also that of a live one, whose command stops before its next write,
    and continue with a ledger that lost its newest entries. Returns the unfinished operation that can now be resumed.

    Raises:
        InputError: the service is on this machine, where a lock ends with its process.
        Conflict: the holder is alive.
        Cancelled: the user declined.
    """
    if not isinstance(session.store, KubernetesStore):
        raise InputError(
            "a lock of this machine ends with the process that holds it", hint=f"mpctl status {session.name}"
        )
    console, store, lease = session.console, session.store, session.store.held
    holder = lease.read()
    entries, operation = _readable(session, store)
    missing = store.missing_entries(entries)
    if holder is None and not (missing and force):
        console.note(f"{session.title} is not locked")
        return None
    if holder is not None:
        under_way = f"; {operation.id} is at {operation.begun or 'rest'}" if operation is not None else ""
        console.note(f"{session.title} is held by {holder.describe()}{under_way}")
        if not force:
            lease.require_dead(holder)
        console.confirm(f"Take {session.title} from {holder.who}?")
        lease.unlock(holder, force=force)
    if missing and force:
        console.note(f"tampering: {session.title}: {missing}")
        console.confirm(f"Continue {session.title} with the {len(entries)} entries that are left?")
        lease.forget_entries()
    console.note(f"{session.title} is free")
    return operation


def _readable(session: Session, store: KubernetesStore) -> tuple[tuple[Entry, ...], Operation | None]:
    """The ledger and its unfinished operation; none where it cannot be read, which is no reason to keep a lock."""
    entries: tuple[Entry, ...] = ()
    try:
        entries = store.surviving_entries()
        return entries, open_operation(entries)
    except MpctlError as error:
        session.console.note(error.message)
        return entries, None
