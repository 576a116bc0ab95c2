"""A service's history in the cluster, apart from the service: implements ``mpctl.rollout.ports.Store``.

The ledger is ControllerRevisions, one per append, which also holds the revisions that its entries name and the seals of
records that were kept since the last one. The API server refuses any later change to their data, and the namespace's
``edit`` role may not create them; who may write ConfigMaps cannot forge them. Entries are created under the number of
the first, so two writers cannot both append. ``mpctl.platform.kubernetes.ledger_objects`` says which objects count.

Records of an operation are ConfigMaps with seals (``mpctl.platform.kubernetes.sealed_records``). The Lease names the
newest entry of the ledger, so entries that were removed from its end are missed.

The service owns none of these objects: deleting it does not delete its history.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from mpctl import bounded, commands
from mpctl.errors import Conflict, MpctlError, NotPermitted, Tampered
from mpctl.json_fields import mapping_at, name_of
from mpctl.json_types import Json
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import CONTROLLER_REVISION, SECRET
from mpctl.platform.kubernetes.api.objects import last_writer
from mpctl.platform.kubernetes.lease import Lease
from mpctl.platform.kubernetes.ledger_objects import (
    ENTRIES,
    Appended,
    LedgerObject,
    NewestEntry,
    create_once,
    entries_of,
    ledger_of,
    look_alike,
    metadata_of,
    missing_after,
    owned_by,
    seals_of,
)
from mpctl.platform.kubernetes.sealed_records import RecordedObjects, SealedRecords
from mpctl.rollout.ledger import Entry
from mpctl.rollout.ports import PruneResult, RecordCounts
from mpctl.rollout.revision import Revision


@dataclass
class _Known:
    """Ledger and revisions as a command that holds the lease knows them; None until they are read. ``waiting`` and
    ``added``: entries and revisions that the next append writes."""

    entries: tuple[Entry, ...] | None = None
    revisions: tuple[Revision, ...] | None = None
    ledger: tuple[LedgerObject, ...] | None = None
    waiting: tuple[Entry, ...] = ()
    added: tuple[Revision, ...] = ()


class KubernetesStore:
    """The history of one service."""

    def __init__(self, client: Client, namespace: str, service: str, who: str) -> None:
        self._client = client
        self._namespace = namespace
        self._service = service
        self._records = SealedRecords(client, namespace, service, lambda: seals_of(self._ledger()))
        self._known: _Known | None = None
        self._look_alikes: dict[str, str] = {}
        self.held = Lease(client, namespace, service, who)
        self.held.was_used = lambda: bool(self._list(names.LEDGER))

    # Revisions

    def revisions(self) -> tuple[Revision, ...]:
        """All revisions, oldest first.

        Raises:
            Tampered: an object is not what its name says, or two hold different revisions of one number.
        """
        if self._known is not None and self._known.revisions is not None:
            return self._known.revisions
        recorded = [self._revision(item) for item in self._list(names.REVISION)]
        by_number = {revision.number: revision for revision in recorded}
        appended = (
            (each.where, Revision.from_record(record, where=each.where))
            for each in self._ledger()
            for record in each.appended.revisions
        )
        for where, revision in appended:
            if by_number.setdefault(revision.number, revision) != revision:
                raise Tampered(
                    f"{where} holds another revision {revision.number} of {self._service} than was recorded"
                )
        revisions = tuple(sorted(by_number.values(), key=lambda r: r.number))
        if self._known is not None:
            self._known.revisions = revisions
        return revisions

    def _revision(self, item: Json) -> Revision:
        name = name_of(item)
        revision = Revision.from_record(
            mapping_at(item, "data"), where=f"ControllerRevision {self._namespace}/{name}"
        )
        allowed_names = (
            names.revision_name(self._service, revision.number),
            f"mpctl-{self._service}-{revision.number}",
        )
        if name not in allowed_names:
            raise Tampered(
                f"ControllerRevision {self._namespace}/{name} claims to be revision {revision.number} of "
                f"{self._service}{last_writer(item)}"
            )
        return revision

    def add_revision(self, revision: Revision) -> None:
        """Record a revision; recording the same revision again changes nothing. Within the lease it is written with the
        next entry.

        Raises:
            Conflict: another revision has the number.
        """
        cache = self._known
        if cache is None:
            self._write_revision(revision)
            return
        present = next((r for r in self.revisions() if r.number == revision.number), None)
        if present is None:
            cache.revisions = (*self.revisions(), revision)
            cache.added = (*cache.added, revision)
        elif present != revision:
            raise self._added_by_another(revision)

    def _write_revision(self, revision: Revision) -> None:
        name = names.revision_name(self._service, revision.number)
        existing = self._create_numbered(
            name, names.REVISION, revision.number, revision.to_record()
        )
        if existing is not None and self._revision(existing) != revision:
            raise self._added_by_another(revision)

    def _added_by_another(self, revision: Revision) -> Conflict:
        return Conflict(
            f"revision {revision.number} of {self._service} was added by another writer meanwhile",
            hint="run the same command again",
        )

    # Ledger

    def entries(self) -> tuple[Entry, ...]:
        """The ledger, oldest first.

        Raises:
            Tampered: an entry is missing or forged.
        """
        if self._known is not None and self._known.entries is not None:
            return self._known.entries
        if self._known is None:
            self.held.read()  # before the ledger, whose newest entry it names
        entries = self.surviving_entries()
        if missing := self.missing_entries(entries):
            raise Tampered(
                f"{self._namespace}/{self._service}: {missing}",
                hint="entries were deleted, or the Lease names one that never was; the API server's audit log names "
                f"the user. Restore deleted entries from a backup, or continue with the {len(entries)} that are left: "
                + commands.line("unlock", self._service, "--force", namespace=self._namespace),
            )
        if self._known is not None:
            self._known.entries = entries
            self._name_newest(entries)
        return entries

    def surviving_entries(self) -> tuple[Entry, ...]:
        """Return the ledger without entries removed from its end; raises as :meth:`entries` for other missing
        entries."""
        return entries_of(self._ledger(), self._service)

    def missing_entries(self, entries: tuple[Entry, ...]) -> str:
        """Describe the entries missing after these, by the Lease as last read; empty if none is missing."""
        return missing_after(entries, self.held.newest_entry)

    def look_alikes(self) -> tuple[str, ...]:
        """Describe the objects that only look like the history's own, among those read so far."""
        return tuple(self._look_alikes[name] for name in sorted(self._look_alikes))

    def _ledger(self) -> tuple[LedgerObject, ...]:
        if self._known is not None and self._known.ledger is not None:
            return self._known.ledger
        objects = ledger_of(self._list(names.LEDGER))
        if self._known is not None:
            self._known.ledger = objects
        return objects

    def _name_newest(self, entries: tuple[Entry, ...]) -> None:
        if entries:
            self.held.newest_entry = NewestEntry(entries[-1].seq, entries[-1].digest)

    def append(self, *entries: Entry, with_next: bool = False) -> None:
        """Add entries, in one object under the number of the first, with the revisions and the seals of records that
        came since. ``with_next``: with the next ones, where the lease is held.

        Raises:
            Conflict: another writer added one since the ledger was read.
        """
        cache = self._known
        if cache is None:
            for part in _parts(entries):
                self._append(Appended(part))
            return
        entries = (*(e for e in cache.waiting if not entries or e.seq < entries[0].seq), *entries)
        cache.waiting = entries  # until they are written: the next entry follows them, also after a failed write
        if not with_next:
            self._append_with_seals(cache, entries)
        if cache.entries is not None:
            cache.entries = (*(e for e in cache.entries if e.seq < entries[0].seq), *entries)
            if not with_next:
                self._name_newest(cache.entries)

    def _append_with_seals(self, known: _Known, entries: tuple[Entry, ...]) -> None:
        seals = tuple(self._records.write())
        revisions = tuple(revision.to_record() for revision in known.added)
        for part in _parts(entries):
            item = self._append(Appended(part, revisions, seals))
            known.ledger = None if known.ledger is None else (*known.ledger, item)
            revisions, seals = (), ()
        self._records.sealed()
        known.waiting, known.added = (), ()

    def _append(self, appended: Appended) -> LedgerObject:
        data, name = appended.data(), names.ledger_name(self._service, appended.first)
        existing = self._create_numbered(name, names.LEDGER, appended.first, data)
        if existing is None or existing.get("data") == data:
            return LedgerObject(
                {"metadata": {"namespace": self._namespace, "name": name}}, appended
            )
        if not owned_by(existing, self._service):
            raise Conflict(
                f"entry {appended.first} of the ledger of {self._service} cannot be written: {look_alike(existing)}",
                hint="delete what owns it",
            )
        (record, *_) = Appended.of(existing).entries
        by = record.get("who", "another writer") if isinstance(record, dict) else "another writer"
        status = commands.line("status", self._service, namespace=self._namespace)
        raise Conflict(
            f"the ledger of {self._service} was written by {by} meanwhile",
            hint=f"{status} shows who is at work; the same command again continues from there",
        )

    def _create_numbered(self, name: str, part: str, number: int, data: Json) -> Json | None:
        return create_once(
            self._client, metadata_of(self._namespace, self._service, name, part), number, data
        )

    # Records

    def save(self, operation: str, name: str, record: Json, *, only: bool = False) -> None:
        """Keep a record; replaces one of the same name. ``only``: the operation has no other, so one that another
        writer destroyed is replaced, too."""
        self._records.save_all(
            operation, {name: record}, with_entry=only and self._known is not None, replaces=only
        )

    def save_all(
        self,
        operation: str,
        records: Mapping[str, Json],
        *,
        raw: Mapping[str, Json] | None = None,
    ) -> None:
        """Keep records of an operation, and raw results where there is room; within the lease with the next entry, or
        after some time."""
        self._records.save_all(operation, records, raw=raw, with_entry=self._known is not None)

    def load(self, operation: str, name: str, *, again: bool = False) -> Json | None:
        """A record kept by :meth:`save`, or None; ``again``: read what another command saved meanwhile.

        Raises:
            Tampered: another writer changed or removed it.
        """
        if again:
            self._records.forget((operation,))
        return self._records.load_all(operation).get(name)

    def seal(self, value: Json) -> bool:
        """Keep a value in the namespace's Secret for it, where the administrator has made one and let mpctl write."""
        data = {self._service: base64.b64encode(json.dumps(value).encode()).decode()}
        try:
            if self._client.get(SECRET, names.SEALED, self._namespace) is None:
                return False
            self._client.merge(SECRET, names.SEALED, self._namespace, {"data": data})
        except NotPermitted:
            return False
        return True

    def unseal(self) -> Json | None:
        """The value of :meth:`seal`; None where the Secret has none or may not be read."""
        try:
            secret = self._client.get(SECRET, names.SEALED, self._namespace) or {}
            value = bounded.loads(
                base64.b64decode(mapping_at(secret, "data").get(self._service, ""))
            )
        except (NotPermitted, ValueError):
            return None
        return value if isinstance(value, dict) else None

    # Deletion

    def recorded(self) -> RecordCounts:
        """Number of objects of each kind."""
        return RecordedObjects(self._client, self._namespace, self._service).recorded()

    def purge(self) -> None:
        """Delete every object of the history.

        Raises:
            NotPermitted: nothing was deleted; the message names the right that is missing.
        """
        objects = RecordedObjects(self._client, self._namespace, self._service)
        objects.require_permitted()
        self.held.forget_entries()
        objects.delete()

    def prune(self, operations: frozenset[str]) -> PruneResult:
        """Delete the records of these operations, and fold the ledger with its revisions into few objects.

        Raises:
            NotPermitted: nothing was deleted; the message names the right that is missing.
        """
        pruned = RecordedObjects(self._client, self._namespace, self._service).prune(operations)
        self._records.forget(operations)
        if self._known is not None:
            self._known.ledger = None
        return pruned

    # Lease

    @contextmanager
    def lease(self, purpose: str) -> Iterator[None]:
        """Lock the service; a lost lease stops every later write of the client.

        Within it ledger and revisions are read once: nobody else adds to them, and an entry of another writer under the
        same number is a conflict when ours is created.
        """
        with self.held.hold(purpose):
            self._known = _Known()
            try:
                yield
            except BaseException:
                with suppress(MpctlError):  # the first error is the one to report
                    self._flush()
                raise
            else:
                self._flush()
            finally:
                self._known = None

    def _flush(self) -> None:
        """Write what waits for an entry that did not come."""
        cache = self._known
        if cache is not None and cache.waiting:
            self.append()
        self._records.flush()
        for revision in cache.added if cache is not None else ():
            self._write_revision(revision)

    def holder(self) -> str | None:
        """Describe the present holder of the service's Lease; None without a holder."""
        return self.held.holder()

    # Helpers

    def _list(self, part: str) -> list[Json]:
        chosen = f"{names.SERVICE_LABEL}={names.label_of(self._service)},{names.PART_LABEL}={part}"
        items = self._client.list(CONTROLLER_REVISION, self._namespace, labels=chosen) or []
        self._look_alikes |= {
            name_of(i): look_alike(i) for i in items if not owned_by(i, self._service)
        }
        return [item for item in items if owned_by(item, self._service)]


def _parts(entries: tuple[Entry, ...]) -> Iterator[tuple[Json, ...]]:
    """Records of entries in the order and the number that one object may hold."""
    for start in range(0, len(entries), ENTRIES):
        yield tuple(entry.to_record() for entry in entries[start : start + ENTRIES])
