"""The ledger: an append-only, hash-chained record of what operations did.

An entry names the digest of the one before it, so a removed or edited line shows. Each step writes ``begun`` before it
acts and ``done`` after; a step that was begun and not done is repeated on resume, which every step allows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from mpctl import bounded
from mpctl.errors import MpctlError
from mpctl.rollout.revision import Revision


class Event(StrEnum):
    """What a ledger entry says happened."""

    OPENED = "opened"  # an operation was planned and starts
    BEGUN = "begun"  # a step is about to act
    DONE = "done"  # the step acted
    FAILED = "failed"  # the step could not act; the reason is in data
    CLOSED = "closed"  # the operation ended; data says how


@dataclass(frozen=True)
class Entry:
    """One line of the ledger."""

    seq: int
    at: str
    operation: str
    event: Event
    step: str
    who: str
    data: dict[str, Any]
    previous: str
    digest: str = field(default="")

    @classmethod
    def after(
        cls,
        last: Entry | None,
        *,
        at: datetime,
        operation: str,
        event: Event,
        who: str,
        step: str = "",
        data: dict[str, Any] | None = None,
    ) -> Entry:
        """The entry that follows ``last``, chained to it."""
        entry = cls(
            seq=last.seq + 1 if last else 1,
            at=at.isoformat(timespec="seconds"),
            operation=operation,
            event=event,
            step=step,
            who=who,
            data=data or {},
            previous=last.digest if last else "",
        )
        return cls(**{**entry.__dict__, "digest": entry._own_digest()})

    def _own_digest(self) -> str:
        content = {k: v for k, v in self.__dict__.items() if k != "digest"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def to_line(self) -> str:
        """One line of JSON without a newline."""
        return json.dumps(self.__dict__, sort_keys=True)

    @classmethod
    def from_line(cls, line: str) -> Entry:
        """The value :meth:`to_line` wrote."""
        record = bounded.loads(line)
        return cls(**{**record, "event": Event(record["event"])})


def read_ledger(text: str, *, where: str) -> tuple[Entry, ...]:
    """Parse a ledger and check its chain. A torn last line (the process died while writing) is left out.

    Raises:
        MpctlError: a line is missing, was changed or cannot be read.
    """
    entries: list[Entry] = []
    lines = text.split("\n")
    complete, torn = lines[:-1], lines[-1]
    for number, line in enumerate(complete, start=1):
        try:
            entry = Entry.from_line(line)
        except (ValueError, KeyError, TypeError) as error:
            raise MpctlError(
                f"{where}:{number}: not a ledger entry ({error})", hint="restore the file; nothing was changed"
            ) from error
        expected = entries[-1].digest if entries else ""
        if entry.previous != expected or entry._own_digest() != entry.digest:
            raise MpctlError(
                f"{where}:{number}: the chain is broken: an entry was removed or edited",
                hint="restore the file; nothing was changed",
            )
        entries.append(entry)
    del torn
    return tuple(entries)


def recorded_revisions(entries: Iterable[Entry]) -> frozenset[int]:
    """Numbers of the revisions that the ledger says were kept."""
    found = (entry.data.get("revision") for entry in entries if entry.event is Event.DONE)
    return frozenset(number for number in found if isinstance(number, int))


def lost_revisions(entries: Iterable[Entry], revisions: Iterable[Revision]) -> tuple[int, ...]:
    """Numbers of the revisions that the ledger names and that are not there."""
    return tuple(sorted(recorded_revisions(entries) - {r.number for r in revisions}))


def lost_history(entries: Iterable[Entry], revisions: Iterable[Revision]) -> tuple[str, ...]:
    """What ledger and revisions miss of each other, in words; empty when they agree."""
    entries, revisions = tuple(entries), tuple(revisions)
    gaps = [f"revision {number} is lost: the ledger names it" for number in lost_revisions(entries, revisions)]
    told = {entry.operation for entry in entries}
    untold = dict.fromkeys(r.operation for r in revisions if r.operation not in told)
    return (*gaps, *(f"the ledger has lost {name}, which recorded a revision" for name in untold))
