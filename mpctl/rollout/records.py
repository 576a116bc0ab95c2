"""What is kept: revisions and the ledger.

A revision is the whole service as it was, so going back never depends on reconstructing anything. The ledger is
append-only and hash-chained: an entry names the digest of the one before it, so a lost or edited line shows. Each
step writes ``begun`` before it acts and ``done`` after; what was begun and not done is repeated on resume, which
every step allows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from mpctl.errors import MpctlError

_Value = TypeVar("_Value")


def restored(what: object, read: Callable[[Any], _Value], record: Any, *, hint: str) -> _Value:
    """What ``read`` makes of a stored record.

    Raises:
        MpctlError: it is no such record; the message names ``what``.
    """
    try:
        return read(record)
    except KeyError as error:
        reason = f"it has no {error}"
        raise MpctlError(f"{what} is damaged: {reason}", hint=hint) from error
    except (MpctlError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise MpctlError(f"{what} is damaged: {error}", hint=hint) from error


def text_digest(text: str) -> str:
    """sha256 of a manifest's bytes, hex."""
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Revision:
    """The whole service at one moment. ``spec`` and ``why`` are for people; ``digest`` is of ``text``."""

    number: int
    text: str
    created: str
    who: str
    why: str
    spec: str
    operation: str

    @property
    def digest(self) -> str:
        """sha256 of the text."""
        return text_digest(self.text)

    def to_record(self) -> dict[str, Any]:
        """A JSON object; the digest is written beside the text so that a damaged copy shows."""
        return {**asdict(self), "digest": self.digest}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Revision:
        """The value :meth:`to_record` wrote.

        Raises:
            MpctlError: a field is missing or unknown, or the text is not the one the digest was made of.
        """
        values = dict(record)
        digest = str(values.pop("digest", ""))
        try:
            revision = cls(**values)
        except TypeError as error:
            raise MpctlError(f"revision {values.get('number', '?')} is damaged: {error}") from error
        if revision.digest != digest:
            raise MpctlError(
                f"revision {revision.number} is damaged: its text does not have the recorded digest {digest[:12]}",
                hint="restore its file; nothing was changed",
            )
        return revision


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
        record = json.loads(line)
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
