"""A service's history as one document: written by ``mpctl export``, read by ``mpctl import``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpctl import __version__, bounded, commands
from mpctl.app.files import read_file
from mpctl.app.session.base import Session
from mpctl.errors import Conflict, InputError, MpctlError, Tampered
from mpctl.platform.local.files import part_of_path, write_text
from mpctl.records import decode
from mpctl.rollout.ledger import Entry, checked, lost_revisions
from mpctl.rollout.operation import open_operation, operations
from mpctl.rollout.revision import Revision

_KIND = "History"
_FORMAT = 1
_SOURCE = ("import", "source")  # the record of the document that is being imported


@dataclass(frozen=True)
class _Body:
    """The fields of an export."""

    format: int
    kind: str
    mpctl: str
    service: str
    namespace: str
    revisions: list[dict[str, Any]]
    entries: list[dict[str, Any]]
    records: dict[str, dict[str, dict[str, Any]]]


def export(session: Session) -> dict[str, Any]:
    """Return everything recorded about a service, with its digest.

    Raises:
        MpctlError: nothing is recorded, or a record is damaged.
    """
    entries, revisions = session.store.entries(), session.store.revisions()
    if not entries and not revisions:
        raise MpctlError(f"nothing is recorded about {session.title}")
    records = {name: session.store.load_all(name) for name in _measured(entries)}
    body = {
        "format": _FORMAT,
        "kind": _KIND,
        "mpctl": __version__,
        "service": session.name,
        "namespace": session.namespace,
        "revisions": [revision.to_record() for revision in revisions],
        "entries": [entry.to_record() for entry in entries],
        "records": {name: record for name, record in records.items() if record},
    }
    return {**body, "sha256": _digest(body)}


def write_export(path: Path, text: str) -> None:
    """Write an export for its owner alone: manifests may hold secrets."""
    write_text(path, text)


def read_export(path: str) -> dict[str, Any]:
    """The document of a file.

    Raises:
        InputError: it is no export.
        Tampered: its content does not have its digest.
    """
    try:
        document = bounded.loads(read_file(path, "the history"))
    except ValueError as error:
        raise InputError(f"not JSON: {error}", file=path) from error
    if not isinstance(document, dict) or document.get("kind") != _KIND or document.get("format") != _FORMAT:
        raise InputError(
            "not a history that this mpctl exported",
            file=path,
            hint=f"write it with '{commands.line('export', 'SERVICE')}'",
        )
    body = {key: value for key, value in document.items() if key != "sha256"}
    if document.get("sha256") != _digest(body):
        raise Tampered(f"{path} was changed after it was exported", hint="export it again; nothing was imported")
    try:
        decode(_Body, body)
    except ValueError as error:
        raise InputError(f"not a history that mpctl exported: {error}", file=path) from error
    return body


def restore(session: Session, document: Mapping[str, Any], *, path: str) -> tuple[int, int]:
    """Record an exported history for a service that has none. Returns the number of revisions and of ledger entries.
    An interrupted import is finished by the same command.

    Raises:
        Conflict: the service has another history, or the exported one has an unfinished operation.
        InputError: a name in it would lead out of the place of the records.
        Tampered: a revision or an entry does not have its digest.
        Cancelled: the user declined.
    """
    revisions = tuple(Revision.from_record(record, where=path) for record in document["revisions"])
    try:
        entries = checked([Entry.from_record(record) for record in document["entries"]], where=path)
    except ValueError as error:
        raise InputError(f"not a ledger of this version: {error}", file=path) from error
    operation = open_operation(entries)
    if operation is not None:
        raise Conflict(
            f"{operation.id} of service {document['service']} was unfinished when it was exported",
            hint="finish or roll it back where it runs, then export again",
        )
    for names in (_measured(entries), *document["records"].values()):
        for name in names:
            part_of_path(name)
    if missing := lost_revisions(entries, revisions):
        raise InputError(f"revision {missing[0]} is missing", file=path)
    session.console.confirm(
        f"Import the history of service {document['namespace']}/{document['service']} for {session.title} "
        f"({session.place}): {len(revisions)} revisions, {len(operations(entries))} operations?"
    )
    with session.store.lease("import"):
        _require_unused(session, document, revisions, entries)
        session.store.save(*_SOURCE, {"sha256": _digest(document)})
        for revision in revisions[len(session.store.revisions()) :]:
            session.store.add_revision(revision)
        for name in _measured(entries):
            records = document["records"].get(name)
            if records and not session.store.load_all(name):
                session.store.save_all(name, records)
        if following := entries[len(session.store.entries()) :]:
            session.store.append(*following)
    return len(revisions), len(entries)


def _measured(entries: tuple[Entry, ...]) -> tuple[str, ...]:
    """Names under which the operations of a ledger keep records."""
    held = [name for operation in operations(entries) for name in (operation.id, operation.plan.workload) if name]
    return tuple(dict.fromkeys(held))


def _require_unused(
    session: Session, document: Mapping[str, Any], revisions: tuple[Revision, ...], entries: tuple[Entry, ...]
) -> None:
    """Refuse a service that has a history, unless an import of the same document was interrupted.

    Raises:
        Conflict: also where that history is a beginning of the document's: what followed did not happen here.
    """
    recorded, written = session.store.revisions(), session.store.entries()
    if (recorded, written) in (((), ()), (revisions, entries)):
        return
    begun = session.store.load(*_SOURCE) == {"sha256": _digest(document)}
    if not begun or recorded != revisions[: len(recorded)] or written != entries[: len(written)]:
        raise Conflict(
            f"{session.title} has a history of its own",
            hint=f"export it, then delete it with '{session.command('history', '--purge')}' to import another",
        )


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
