"""Stop services of this machine; their history stays."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.app.console import Console
from mpctl.app.requests import LocalDownRequest
from mpctl.app.session.local import LocalSession, known_services, open_local
from mpctl.app.session.place import Place
from mpctl.errors import Conflict
from mpctl.platform.local.orphans import Orphan, stop_orphans
from mpctl.rollout.operation import open_operation


@dataclass(frozen=True, slots=True)
class Stopped:
    """Services and orphaned engines that were stopped, and the conflicts of services that were not."""

    titles: tuple[str, ...]
    orphans: tuple[Orphan, ...]
    conflicts: tuple[Conflict, ...]

    def require_all(self) -> None:
        """Raise unless every service was stopped.

        Raises:
            Conflict: a service has an unfinished operation.
        """
        if len(self.conflicts) == 1:
            raise self.conflicts[0]
        if self.conflicts:
            hints = dict.fromkeys(c.hint for c in self.conflicts if c.hint)
            raise Conflict("; ".join(c.message for c in self.conflicts), hint="; ".join(hints))


def down(place: Place, console: Console, request: LocalDownRequest) -> Stopped:
    """Stop the services asked for; a conflict of one does not keep the others running.

    Raises:
        InputError: the service is not found, or several are up and none is named.
    """
    titles, conflicts = [], []
    for session in _sessions(place, console, request):
        try:
            _stop(session, force=request.force)
        except Conflict as conflict:
            conflicts.append(conflict)
        else:
            titles.append(session.title)
    return Stopped(tuple(titles), stop_orphans() if request.orphans else (), tuple(conflicts))


def _sessions(place: Place, console: Console, request: LocalDownRequest) -> list[LocalSession]:
    if request.every:
        return [LocalSession(namespace, name, console) for namespace, name in known_services(place.namespace)]
    if request.orphans and request.name is None:
        return []
    return [open_local(place, console, request.name)]


def _stop(session: LocalSession, *, force: bool) -> None:
    operation = None if force else open_operation(session.store.entries())
    if operation is not None:
        raise Conflict(
            f"{operation.id} of {session.title} is unfinished",
            hint=f"'{session.command('rollback')}' reverts it, '{session.command('resume')}' continues it; or --force",
        )
    with session.store.lease("local down"):
        session.platform.remove()
