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
        raise InputError("a lock of this machine ends with the process that holds it", hint=session.command("status"))
    console, store, lease = session.console, session.store, session.store.held
    holder = lease.read()
    entries, operation, unreadable = _readable(session, store)
    missing = "" if unreadable else store.missing_entries(entries)
    if holder is None and not (missing and force):
        console.note(f"{session.title} is not locked")
        if unreadable is not None and force:
            raise unreadable  # what stops the commands is no lock, and force does not mend it
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
    console.note(f"{session.title} is free{'; its ledger still cannot be read' if unreadable else ''}")
    return operation


def _readable(
    session: Session, store: KubernetesStore
) -> tuple[tuple[Entry, ...], Operation | None, MpctlError | None]:
    """The ledger and its unfinished operation; none and the error where it cannot be read, which is no reason to keep a
    lock, and says nothing about what was removed from its end."""
    try:
        entries = store.surviving_entries()
    except MpctlError as error:
        session.console.note(error.message)
        return (), None, error
    finally:
        for look_alike in store.look_alikes():
            session.console.note(look_alike)
    try:
        return entries, open_operation(entries), None
    except MpctlError as error:
        session.console.note(error.message)
        return entries, None, None
