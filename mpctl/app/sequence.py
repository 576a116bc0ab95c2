"""A command for several services, one after another: how each ended, in a file from which the same command continues.

A service has a verdict when its command succeeded, or when the gate rejected the candidate or could not decide. It is
then not done again within the sequence. One that failed otherwise is tried again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from mpctl import commands
from mpctl.app.session.base import Session, who
from mpctl.errors import Conflict, GateRejected, MpctlError, RolledBack, Undecided
from mpctl.platform.state_files import read_json, state_root, try_lock, write_json
from mpctl.records import Record, restored
from mpctl.rollout.operation import Ending, Operation, operations

_VERDICTS = (0, GateRejected.exit_code, Undecided.exit_code)
_CODES = {
    Ending.REJECTED: GateRejected.exit_code,
    Ending.UNDECIDED: Undecided.exit_code,
    Ending.FAILED: RolledBack.exit_code,
}


@dataclass(frozen=True)
class ServiceEnding(Record):
    """The end of the command for one service, or why it has none."""

    result: str  # in words
    code: int | None = None  # exit code; None without an end
    figure: str = ""  # what was measured, with its confidence interval
    seconds: float | None = None  # None: not measured, or killed before it was recorded
    document: Any = None  # the command's result, where JSON was asked for

    @property
    def is_verdict(self) -> bool:
        """Whether the service is done; otherwise it is tried again."""
        return self.code in _VERDICTS


@dataclass(frozen=True)
class ServiceSequence(Record):
    """A command for several services. A service is its namespace, ``/`` and its name."""

    opened_at: str  # RFC 3339
    services: tuple[str, ...]
    endings: Mapping[str, ServiceEnding] = field(default_factory=dict)
    begun: str = ""  # the service whose command runs, or ran when it was killed
    earlier: tuple[str, ...] = ()  # its operations that had ended before

    @property
    def pending(self) -> tuple[str, ...]:
        """The services without a verdict."""
        return tuple(
            name
            for name in self.services
            if name not in self.endings or not self.endings[name].is_verdict
        )

    @property
    def code(self) -> int:
        """Exit code of the first service that failed; 0 where none did."""
        return next(filter(None, map(self._code, self.services)), 0)

    @property
    def is_stopped(self) -> bool:
        """Whether a rejected or undecided candidate keeps services from their turn."""
        verdicts = {*self.services} - {*self.pending}
        return bool(self.pending) and any(map(self._code, verdicts))

    def _code(self, name: str) -> int:
        return (self.endings[name].code or 0) if name in self.endings else 0

    def with_services(self, services: Sequence[str]) -> ServiceSequence:
        """The sequence for the services that are selected now; endings of others are dropped."""
        endings = {name: self.endings[name] for name in services if name in self.endings}
        return replace(self, services=tuple(services), endings=endings)

    def with_begun(self, session: Session) -> ServiceSequence:
        """The sequence in which the command for a service begins."""
        earlier = tuple(operation.id for operation in _ended(session))
        return replace(self, begun=service_name(session), earlier=earlier)

    def with_ending(self, name: str, ending: ServiceEnding) -> ServiceSequence:
        """The sequence in which the command for a service ended."""
        return replace(self, endings={**self.endings, name: ending}, begun="")

    def ending_of_killed(self, verb: str, session: Session) -> ServiceEnding | None:
        """How the operation of a killed command ended, which the command had no time to record; None where it opened
        none, or is to continue."""
        if self.begun != service_name(session):
            return None
        for operation in _ended(session):
            plan = operation.plan
            own = operation.who == who() and plan.kind.value == verb and not plan.rollback.automatic
            if own and operation.id not in self.earlier and operation.ending is not None:
                return ServiceEnding(operation.ending.value, _CODES.get(operation.ending, 0))
        return None


def service_name(session: Session) -> str:
    """Namespace, ``/`` and name."""
    return f"{session.namespace}/{session.name}"


def _ended(session: Session) -> list[Operation]:
    """The operations that have ended; none where the ledger cannot be read, which the service's command reports."""
    try:
        entries = session.store.entries()
        return [operation for operation in operations(entries) if operation.ending is not None]
    except MpctlError:
        return []


class SequenceFile:
    """The file of a sequence. ``identity``: what makes another command the same one."""

    def __init__(self, identity: str) -> None:
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self.path = state_root() / "sequences" / f"{digest}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out.

        Raises:
            Conflict: the same command runs in another process.
        """
        lock = try_lock(self.path.with_suffix(".lock"))
        if lock is None:
            raise Conflict(
                "the same command for these services runs in another process",
                hint=f"wait for it; '{commands.line('status')}' shows what it does",
            )
        try:
            yield
        finally:
            os.close(lock)

    def read(self) -> ServiceSequence | None:
        """The unfinished sequence; None without one.

        Raises:
            MpctlError: the file is damaged.
        """
        hint = f"delete {self.path} to start again"
        record = read_json(self.path, hint=hint)
        if record is None:
            return None
        return restored(str(self.path), ServiceSequence.from_record, record, hint=hint)

    def write(self, sequence: ServiceSequence) -> None:
        """Replace the file."""
        write_json(self.path, sequence.to_record())

    def delete(self) -> None:
        """Remove the file of a finished sequence."""
        self.path.unlink(missing_ok=True)
