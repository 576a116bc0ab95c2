"""The ledger of a service as ControllerRevisions, one per append; its Lease names the newest entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mpctl.errors import MpctlError, Tampered
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.client import Json
from mpctl.platform.kubernetes.api.last_writer import last_writer
from mpctl.rollout.ledger import Entry

NEWEST = "mpctl.dev/newest-entry"  # annotation of the Lease
_SEVERAL = "entries"


@dataclass(frozen=True)
class NewestEntry:
    """The newest entry of a ledger as its Lease names it. ``source``: the Lease and its last writer, for messages."""

    seq: int
    digest: str
    source: str = ""


def newest_entry_of(lease: Json | None) -> NewestEntry | None:
    """Return the entry that a Lease names; None where it names none that could be one."""
    metadata = (lease or {}).get("metadata") or {}
    number, _, digest = str((metadata.get("annotations") or {}).get(NEWEST, "")).partition(" ")
    if not number.isascii() or not number.isdecimal() or len(number) > 9:
        return None
    writer = last_writer(lease or {}, "metadata", "annotations", NEWEST)
    source = f"Lease {metadata.get('namespace', '')}/{metadata.get('name', '')}{writer}"
    return NewestEntry(int(number), digest, source)


def naming(newest: NewestEntry | None) -> dict[str, str]:
    """The annotation that names an entry."""
    return {NEWEST: f"{newest.seq} {newest.digest}"} if newest is not None else {}


def entries_of(items: Iterable[Json], namespace: str, service: str) -> tuple[Entry, ...]:
    """The entries of a ledger, oldest first.

    Raises:
        MpctlError: an object holds no entry.
        Tampered: an entry is missing or forged; the message names its object and its last writer.
    """
    entries: list[Entry] = []
    for item in sorted(items, key=lambda item: int(item.get("revision") or 0)):
        name = item["metadata"]["name"]
        where = f"ControllerRevision {namespace}/{name}"
        try:
            appended = [Entry.from_record(record) for record in records_of(item)]
        except ValueError as error:
            raise MpctlError(f"{where}: not a ledger entry ({error})", hint="nothing was changed") from error
        named = name == names.ledger_name(service, appended[0].seq)
        for entry in appended:
            if not named or not entry.follows(entries[-1] if entries else None):
                before = f"entry {len(entries) + 1} of the ledger of {service} is missing or forged"
                raise Tampered(f"{where} does not follow: {before}{last_writer(item)}")
            entries.append(entry)
    return tuple(entries)


def data_of(entries: Sequence[Entry]) -> Json:
    """The data of the object that holds these entries: a single one as it is, several as ``entries``."""
    records = [entry.to_record() for entry in entries]
    return records[0] if len(records) == 1 else {_SEVERAL: records}


def records_of(item: Json) -> list[Any]:
    """The records in an object of the ledger; what may not be one is left to its reader."""
    data = item.get("data")
    several = data.get(_SEVERAL) if isinstance(data, dict) else None
    return several if isinstance(several, list) and several else [data]


def missing_after(entries: Sequence[Entry], newest: NewestEntry | None) -> str:
    """Describe the entries that were removed from the end of a ledger; empty if none was removed."""
    if newest is None or newest.seq == 0:
        return ""
    if len(entries) < newest.seq:
        lost = f"the ledger ends with entry {len(entries)}" if entries else "the ledger is empty"
        return f"{lost}, entry {newest.seq} is named by {newest.source}"
    if entries[newest.seq - 1].digest != newest.digest:
        return f"entry {newest.seq} of the ledger is not the one named by {newest.source}"
    return ""
