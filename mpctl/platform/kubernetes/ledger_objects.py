"""The ledger of a service as ControllerRevisions, one per entry."""

from __future__ import annotations

from collections.abc import Iterable

from mpctl.errors import MpctlError, Tampered
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.client import Json
from mpctl.platform.kubernetes.api.last_writer import last_writer
from mpctl.rollout.ledger import Entry


def entries_of(items: Iterable[Json], namespace: str, service: str) -> tuple[Entry, ...]:
    """The entries of a ledger, oldest first.

    Raises:
        MpctlError: an object holds no entry.
        Tampered: an entry is missing or forged; the message names its object and its last writer.
    """
    found: list[Entry] = []
    for item in sorted(items, key=lambda item: int(item.get("revision") or 0)):
        name = item["metadata"]["name"]
        where = f"ControllerRevision {namespace}/{name}"
        try:
            entry = Entry.from_record(item.get("data"))
        except ValueError as error:
            raise MpctlError(f"{where}: not a ledger entry ({error})", hint="nothing was changed") from error
        if name != names.ledger_name(service, entry.seq) or not entry.follows(found[-1] if found else None):
            before = f"entry {len(found) + 1} of the ledger of {service} is missing or forged"
            raise Tampered(f"{where} does not follow: {before}{last_writer(item)}")
        found.append(entry)
    return tuple(found)
