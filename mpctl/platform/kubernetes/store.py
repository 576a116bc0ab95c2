"""One service's history in the cluster, apart from the service: implements ``mpctl.rollout.ports.Store``.

Revisions and the ledger are ControllerRevisions, one object per revision and per append. The API server refuses any
later change to their data, and the namespace's ``edit`` role may not create them; who may write ConfigMaps cannot forge
them. Entries are created under the number of the first, so two writers cannot both append.

Records of an operation are ConfigMaps with seals (``mpctl.platform.kubernetes.sealed_records``). The Lease names the
newest entry of the ledger, so entries that were removed from its end are missed.

None of these objects has an owner: deleting the service does not delete its history.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from mpctl.errors import Conflict, Tampered
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.kinds import CONTROLLER_REVISION, Kind
from mpctl.platform.kubernetes.api.last_writer import last_writer
from mpctl.platform.kubernetes.create_once import create_once
from mpctl.platform.kubernetes.deletion import RecordedObjects
from mpctl.platform.kubernetes.lease import Lease
from mpctl.platform.kubernetes.ledger_objects import NewestEntry, data_of, entries_of, missing_after, records_of
from mpctl.platform.kubernetes.sealed_records import SealedRecords
from mpctl.rollout.ledger import Entry
from mpctl.rollout.ports import Pruned, Recorded
from mpctl.rollout.revision import Revision


@dataclass
class _Known:
    """Ledger and revisions as a command that holds the lease knows them; None until they are read."""

    entries: tuple[Entry, ...] | None = None
    revisions: tuple[Revision, ...] | None = None


class KubernetesStore:
    """The history of one service."""

    def __init__(self, client: Client, namespace: str, service: str, who: str) -> None:
        self._client = client
        self._namespace = namespace
        self._service = service
        self._records = SealedRecords(client, namespace, service)
        self._known: _Known | None = None
        self.held = Lease(client, namespace, service, who)

    # Revisions

    def revisions(self) -> tuple[Revision, ...]:
        """All revisions, oldest first.

        Raises:
            Tampered: an object is not what its name says.
        """
        if self._known is not None and self._known.revisions is not None:
            return self._known.revisions
        recorded = [self._revision(item) for item in self._list(CONTROLLER_REVISION, names.REVISION)]
        revisions = tuple(sorted(recorded, key=lambda r: r.number))
        if self._known is not None:
            self._known.revisions = revisions
        return revisions

    def _revision(self, item: Json) -> Revision:
        name = item["metadata"]["name"]
        revision = Revision.from_record(item.get("data") or {}, where=f"ControllerRevision {self._namespace}/{name}")
        if names.revision_name(self._service, revision.number) != name:
            raise Tampered(
                f"ControllerRevision {self._namespace}/{name} claims to be revision {revision.number} of "
                f"{self._service}{last_writer(item)}"
            )
        return revision

    def add_revision(self, revision: Revision) -> None:
        """Record a revision; recording the same revision again changes nothing.

        Raises:
            Conflict: another revision has the number.
        """
        name = names.revision_name(self._service, revision.number)
        existing = self._create_numbered(name, names.REVISION, revision.number, revision.to_record())
        if existing is not None and self._revision(existing) != revision:
            raise Conflict(
                f"revision {revision.number} of {self._service} was added by another writer meanwhile",
                hint="run the same command again",
            )
        if self._known is not None and self._known.revisions is not None and revision not in self._known.revisions:
            self._known.revisions = (*self._known.revisions, revision)

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
            raise Tampered(f"{self._namespace}/{self._service}: {missing}", hint=_accept(self._service, len(entries)))
        if self._known is not None:
            self._known.entries = entries
            self._name_newest(entries)
        return entries

    def surviving_entries(self) -> tuple[Entry, ...]:
        """Return the ledger without entries removed from its end; raises as :meth:`entries` for other missing
        entries."""
        return entries_of(self._list(CONTROLLER_REVISION, names.LEDGER), self._namespace, self._service)

    def missing_entries(self, entries: tuple[Entry, ...]) -> str:
        """Describe the entries missing after these, by the Lease as last read; empty if none is missing."""
        return missing_after(entries, self.held.newest_entry)

    def _name_newest(self, entries: tuple[Entry, ...]) -> None:
        if entries:
            self.held.newest_entry = NewestEntry(entries[-1].seq, entries[-1].digest)

    def append(self, *entries: Entry) -> None:
        """Add entries, in one object under the number of the first.

        Raises:
            Conflict: another writer added one since the ledger was read.
        """
        first, data = entries[0].seq, data_of(entries)
        existing = self._create_numbered(names.ledger_name(self._service, first), names.LEDGER, first, data)
        if existing is not None and existing.get("data") != data:
            by = (records_of(existing)[0] or {}).get("who", "another writer")
            raise Conflict(
                f"the ledger of {self._service} was written by {by} meanwhile",
                hint="mpctl status shows who is at work; the same command again continues from there",
            )
        if self._known is not None and self._known.entries is not None and entries[-1] not in self._known.entries:
            self._known.entries = (*self._known.entries, *entries)
            self._name_newest(self._known.entries)

    def _create_numbered(self, name: str, part: str, number: int, data: Json) -> Json | None:
        metadata = {"name": name, "namespace": self._namespace, "labels": names.labels(self._service, part)}
        return create_once(self._client, metadata, number, data)

    # Records

    def save(self, operation: str, name: str, record: dict[str, Any]) -> None:
        """Keep a record; replaces one of the same name."""
        self.save_all(operation, {name: record})

    def save_all(
        self, operation: str, records: Mapping[str, dict[str, Any]], *, raw: Mapping[str, dict[str, Any]] | None = None
    ) -> None:
        """Keep records of an operation, and raw results where there is room."""
        self._records.save_all(operation, records, raw=raw)

    def load(self, operation: str, name: str) -> dict[str, Any] | None:
        """A record kept by :meth:`save`, or None.

        Raises:
            Tampered: another writer changed or removed it.
        """
        return self._records.load_all(operation).get(name)

    def load_all(self, operation: str) -> dict[str, dict[str, Any]]:
        """Every record of an operation by its name; raises as :meth:`load`."""
        return self._records.load_all(operation)

    # Deletion

    def recorded(self) -> Recorded:
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

    def prune(self, operations: frozenset[str]) -> Pruned:
        """Delete the records of these operations, and seals of bundles that were replaced since.

        Raises:
            NotPermitted: nothing was deleted; the message names the right that is missing.
        """
        pruned = RecordedObjects(self._client, self._namespace, self._service).prune(operations)
        self._records.forget(operations)
        return pruned

    # Lease

    def lease(self, purpose: str) -> AbstractContextManager[None]:
        """Lock the service; a lost lease stops every later write of the client.

        Within it ledger and revisions are read once: nobody else adds to them, and an entry of another writer under the
        same number is a conflict when ours is created.
        """
        return self._alone(purpose)

    @contextmanager
    def _alone(self, purpose: str) -> Iterator[None]:
        with self.held.hold(purpose):
            self._known = _Known()
            try:
                yield
            finally:
                self._known = None

    def holder(self) -> str | None:
        """Describe the present holder of the service's Lease; None without a holder."""
        return self.held.holder()

    # Helpers

    def _list(self, kind: Kind, part: str) -> list[Json]:
        wanted = names.labels(self._service, part)
        chosen = ",".join(f"{k}={v}" for k, v in wanted.items() if k.startswith("mpctl.dev/"))
        return self._client.list(kind, self._namespace, labels=chosen) or []


def _accept(service: str, remaining: int) -> str:
    return (
        "entries were deleted, or the Lease names one that never was; the API server's audit log names the user. "
        f"Restore deleted entries from a backup, or continue with the {remaining} that are left: mpctl unlock "
        f"{service} --force"
    )
