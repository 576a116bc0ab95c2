"""Free a service whose operator is gone."""

from __future__ import annotations

from mpctl.app.session.base import Session
from mpctl.errors import InputError
from mpctl.platform.kubernetes.store import KubernetesStore
from mpctl.rollout.operation import Operation, open_operation


def run(session: Session, *, force: bool = False) -> Operation | None:
    """Remove a dead operator's lease; ``force``: also that of a live one, whose command stops before its next write.
    Returns the unfinished operation that can now be resumed.

    Raises:
        InputError: the service is on this machine, where a lock ends with its process.
        Conflict: the holder is alive.
        Cancelled: the user declined.
    """
    if not isinstance(session.store, KubernetesStore):
        raise InputError(
            "a lock of this machine ends with the process that holds it", hint=f"mpctl status {session.name}"
        )
    console, lease = session.console, session.store.held
    holder = lease.read()
    if holder is None:
        console.note(f"{session.title} is not locked")
        return None
    operation = open_operation(session.store.entries())
    under_way = f"; {operation.id} is at {operation.begun or 'rest'}" if operation is not None else ""
    console.note(f"{session.title} is held by {holder.describe()}{under_way}")
    if not force:
        lease.require_dead(holder)
    console.confirm(f"Take {session.title} from {holder.who}?")
    lease.unlock(holder, force=force)
    console.note(f"{session.title} is free")
    return operation
