"""Rules for deleting the history of a service, and the consequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mpctl.errors import Conflict
from mpctl.rollout.ledger import Entry, live_revisions
from mpctl.rollout.operation import open_operation, open_retirement, operations
from mpctl.rollout.plan import Kind
from mpctl.rollout.ports import RetainedBaseline
from mpctl.rollout.revision import Revision

KEPT = 10  # operations whose measurements stay


def prunable(entries: Sequence[Entry], keep: int = KEPT) -> frozenset[str]:
    """Names of the operations and workloads whose measurements may go: all but the last ``keep`` operations and the
    unfinished ones. Revisions and the ledger stay, so every rollback stays possible."""
    every = operations(entries)
    recent = [operation for operation in every if operation.plan.kind is not Kind.RETIRE]
    retained = {operation.id for operation in recent[max(len(recent) - keep, 0) :]}
    retained |= {operation.id for operation in every if operation.ending is None}
    named = {name for o in every if o.id in retained for name in (o.id, o.plan.workload)}
    return frozenset(name for o in every for name in (o.id, o.plan.workload) if name and name not in named)


def require_finished(
    title: str, command: Callable[[str], str], entries: Sequence[Entry], retained: RetainedBaseline | None
) -> None:
    """Refuse to delete a history that something still needs. ``command``: a verb as a command on the service.

    Raises:
        Conflict: an operation is unfinished, or a retained baseline runs.
    """
    operation = open_operation(entries)
    if operation is not None:
        raise Conflict(
            f"{operation.id} of {title} is unfinished",
            hint=f"'{command('rollback')}' undoes it, '{command('resume')}' continues it, '{command('abandon')}' ends "
            "it where it stands",
        )
    if retained is not None or open_retirement(entries) is not None:
        raise Conflict(f"{title} has a retained baseline", hint=f"stop it with '{command('retire')}'")


def only_copies(entries: Sequence[Entry], revisions: Sequence[Revision], live: str | None) -> tuple[int, ...]:
    """Numbers of the revisions that served and differ from the live manifest: nothing else restores them."""
    served = live_revisions(entries)
    return tuple(r.number for r in revisions if r.text != live and (r.number in served or not entries))
