"""The ledger: an append-only, hash-chained record of what operations did.

An entry names the digest of the one before it, so a removed or edited line shows. Each step is written down before it
acts, by the entry that ends the step before it (``then``), and after; a step that was begun and not done is repeated on
resume, which every step allows.
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
from mpctl.errors import MpctlError, Tampered
from mpctl.json_types import Json
from mpctl.records import decode
from mpctl.rollout.revision import Revision


class Event(StrEnum):
    """The event that a ledger entry records."""

    OPENED = "opened"  # an operation was planned and starts
    BEGUN = "begun"  # a step is about to act, and no entry before said so
    DONE = "done"  # the step acted
    FAILED = "failed"  # the step could not act; the reason is in data
    CLOSED = "closed"  # the operation ended; data says how


FORMAT = 4  # 1 held the texts of manifests, 2 two entries for each step, 3 plans without values


@dataclass(frozen=True)
class Entry:
    """An entry of the ledger. ``then``: the step that is about to act; ``format``: of the entry."""

    seq: int
    at: str
    operation: str
    event: Event
    step: str
    who: str
    data: Json
    previous: str
    digest: str = field(default="")
    format: int = FORMAT
    then: str = ""

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
        data: Json | None = None,
        then: str = "",
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
            then=then,
        )
        return cls(**{**entry.__dict__, "digest": entry._own_digest()})

    def _own_digest(self) -> str:
        content = {name: value for name, value in self.__dict__.items() if name != "digest"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def follows(self, last: Entry | None) -> bool:
        """Return whether this entry follows ``last`` and is unchanged."""
        seq, previous = (last.seq + 1, last.digest) if last else (1, "")
        return (self.seq, self.previous, self.digest) == (seq, previous, self._own_digest())

    def to_record(self) -> Json:
        """A JSON object."""
        return {**self.__dict__, "event": self.event.value}

    @classmethod
    def from_record(cls, record: Any) -> Entry:
        """The value :meth:`to_record` wrote.

        Raises:
            ValueError: it is no entry.
        """
        entry = decode(cls, record)
        if entry.format > FORMAT:
            raise ValueError(f"format {entry.format} of a newer mpctl")
        if entry.format < FORMAT:
            raise ValueError(
                f"format {entry.format} of an earlier mpctl: finish or roll back its operations with that version, "
                "and move the ledger aside"
            )
        return entry

    def to_line(self) -> str:
        """A line of JSON without a newline."""
        return json.dumps(self.to_record(), sort_keys=True)

    @classmethod
    def from_line(cls, line: str) -> Entry:
        """The value :meth:`to_line` wrote; raises as :meth:`from_record`."""
        return cls.from_record(bounded.loads(line))


def read_ledger(text: str, *, where: str) -> tuple[Entry, ...]:
    """Parse a ledger and check its chain. A torn last line (the process died while writing) is left out.

    Raises:
        MpctlError: a line cannot be read.
        Tampered: a line is missing or was changed.
    """
    *complete, torn = text.split("\n")
    if torn and not torn.startswith("{"):  # no entry begins like this
        complete.append(torn)
    entries = []
    for number, line in enumerate(complete, start=1):
        try:
            entries.append(Entry.from_line(line))
        except (ValueError, RecursionError) as error:
            raise MpctlError(
                f"{where}:{number}: not a ledger entry ({error})",
                hint="restore the file; nothing was changed",
            ) from error
    return checked_chain(entries, where=where)


def checked_chain(entries: Iterable[Entry], *, where: str) -> tuple[Entry, ...]:
    """The entries, whose chain is whole.

    Raises:
        Tampered: an entry is missing or was changed.
    """
    chain: list[Entry] = []
    for number, entry in enumerate(entries, start=1):
        if not entry.follows(chain[-1] if chain else None):
            raise Tampered(f"{where}:{number}: the chain is broken: an entry was removed or edited")
        chain.append(entry)
    return tuple(chain)


def live_revisions(entries: Iterable[Entry]) -> frozenset[int]:
    """Numbers of the revisions that the ledger says were live: the baseline of each plan, and what a step recorded."""
    numbers: list[object] = []
    for entry in entries:
        if entry.event is Event.DONE:
            numbers.append(entry.data.get("revision"))
        elif entry.event is Event.OPENED and _starts_from_live(entry):
            numbers.append(_named(entry, "baseline"))
    return frozenset(number for number in numbers if isinstance(number, int) and number > 0)


def recorded_revisions(entries: Iterable[Entry]) -> frozenset[int]:
    """Numbers of all revisions that the ledger names."""
    entries = tuple(entries)
    goals = (_named(entry, "goal") for entry in entries if entry.event is Event.OPENED)
    return live_revisions(entries) | {
        number for number in goals if isinstance(number, int) and number > 0
    }


def _starts_from_live(entry: Entry) -> bool:
    """Return whether the plan's baseline was live; a plan that undoes another starts from whatever that one left."""
    plan = entry.data.get("plan")
    if not isinstance(plan, dict) or not isinstance(rollback := plan.get("rollback"), dict):
        return False
    merged = bool(rollback.get("restored_revision"))
    return merged or rollback.get("undoes") is None or plan.get("overwrites") is True


def _named(entry: Entry, manifest: str) -> object:
    """The number of the revision that an OPENED entry names as ``manifest``."""
    plan = entry.data.get("plan")
    named = plan.get(manifest) if isinstance(plan, dict) else None
    return named.get("revision") if isinstance(named, dict) else None


def lost_revisions(entries: Iterable[Entry], revisions: Iterable[Revision]) -> tuple[int, ...]:
    """Numbers of the revisions that the ledger names and that are not found."""
    return tuple(sorted(recorded_revisions(entries) - {r.number for r in revisions}))


def lost_history(entries: Iterable[Entry], revisions: Iterable[Revision]) -> tuple[str, ...]:
    """Describe the differences between ledger and revisions; empty when they agree."""
    entries, revisions = tuple(entries), tuple(revisions)
    gaps = [
        f"revision {number} is lost: the ledger names it"
        for number in lost_revisions(entries, revisions)
    ]
    operations = {entry.operation for entry in entries}
    lost = dict.fromkeys(r.operation for r in revisions if r.operation not in operations)
    return (*gaps, *(f"the ledger has lost {name}, which recorded a revision" for name in lost))
