"""One service's history in the cluster, apart from the service: implements ``mpctl.rollout.ports.Store``.

Revisions and the ledger are ControllerRevisions, one object per revision and per entry. The API server refuses any
later change to their data, and the namespace's ``edit`` role may not create them; who may write ConfigMaps cannot forge
them. An entry is created under its number, so two writers cannot both append.

Records of an operation (conditions, blocks with every request) are bundled in compressed ConfigMaps: one, a second when
the first is full. A record larger than an object may be is cut into pieces named by their content, which are written
before the bundle that names them. Each bundle has a seal: a ControllerRevision with its digest. A bundle without its
seal is reported as tampering and never read.

None of these objects has an owner: deleting the service does not delete its history.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from mpctl import bounded
from mpctl.errors import Conflict, MpctlError, Tampered
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.failure import AlreadyExists, OutcomeUnknown, Stale
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION, Kind
from mpctl.platform.kubernetes.api.last_writer import last_writer
from mpctl.platform.kubernetes.deletion import RecordedObjects
from mpctl.platform.kubernetes.lease import Lease
from mpctl.platform.kubernetes.ledger_objects import entries_of
from mpctl.rollout.ledger import Entry, older_ledger
from mpctl.rollout.ports import Pruned, Recorded
from mpctl.rollout.revision import Revision

# An object may have 1 MiB in etcd's default request limit of 1.5 MiB (Kubernetes, ConfigMap documentation).
_PIECE = 700_000  # compressed bytes of a ConfigMap: below 1 MiB also as base64
_BUNDLES = 2  # of an operation before raw results are left out; its workload is a third ConfigMap
_TRIES = 4


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
        self._sealed: set[str] = set()  # names of seals that were seen or written
        self._bundles: dict[str, list[dict[str, Any]]] = {}  # by operation; only this command writes while it runs
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
        found = [self._revision(item) for item in self._list(CONTROLLER_REVISION, names.REVISION)]
        revisions = tuple(sorted(found, key=lambda r: r.number))
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
        """Record a revision; adding the very same again is done already.

        Raises:
            Conflict: another revision has the number.
        """
        name = names.revision_name(self._service, revision.number)
        there = self._create_numbered(name, names.REVISION, revision.number, revision.to_record())
        if there is not None and self._revision(there) != revision:
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
        found = entries_of(self._list(CONTROLLER_REVISION, names.LEDGER), self._namespace, self._service)
        if not found:
            self._refuse_older()
        if self._known is not None:
            self._known.entries = found
        return found

    def _refuse_older(self) -> None:
        """Version 0.3 kept the ledger as lines in ConfigMaps."""
        name = names.older_ledger_name(self._service)
        if self._client.get(CONFIG_MAP, name, self._namespace) is not None:
            raise older_ledger(f"ConfigMap {self._namespace}/{name}")

    def append(self, entry: Entry) -> None:
        """Add an entry.

        Raises:
            Conflict: another writer added one since the ledger was read.
        """
        name = names.ledger_name(self._service, entry.seq)
        there = self._create_numbered(name, names.LEDGER, entry.seq, entry.to_record())
        if there is not None and there.get("data") != entry.to_record():
            by = (there.get("data") or {}).get("who", "another writer")
            raise Conflict(
                f"the ledger of {self._service} was written by {by} meanwhile",
                hint="mpctl status shows who is at work; the same command again continues from there",
            )
        if self._known is not None and self._known.entries is not None and entry not in self._known.entries:
            self._known.entries = (*self._known.entries, entry)

    def _create_numbered(self, name: str, part: str, number: int, data: Json) -> Json | None:
        """Create an object that nobody can change. Returns the one that already has the name, which may be ours from a
        try that was not answered."""
        body = {"metadata": self._metadata(name, part), "revision": number, "data": data}
        for left in reversed(range(_TRIES)):
            try:
                self._create(CONTROLLER_REVISION, body)
                return None
            except AlreadyExists:
                return self._client.require(CONTROLLER_REVISION, name, self._namespace)
            except Stale:  # not of this object, which nobody can change: quota is counted optimistically
                if not left:
                    raise
        return None

    # Records

    def save(self, operation: str, name: str, record: dict[str, Any]) -> None:
        """Keep a record; replaces one of the same name."""
        self.save_all(operation, {name: record})

    def save_all(
        self, operation: str, records: Mapping[str, dict[str, Any]], *, raw: Mapping[str, dict[str, Any]] | None = None
    ) -> None:
        """Keep records of an operation in its newest bundle, or in a new one when that is full. ``raw`` is left out
        where it would need a bundle more than most operations have."""
        bundles = self._read(operation)
        last = bundles[-1] if bundles else {}
        if raw and _has_room(len(bundles), last, {**raw, **records}):
            records = {**raw, **records}
        joined = {**last, **records}
        if last and len(_packed(joined)) > _PIECE:
            number, joined = len(bundles), dict(records)
        else:
            number = max(len(bundles) - 1, 0)
        self._write(operation, number, joined)
        self._bundles[operation] = [*bundles[:number], joined]

    def _write(self, operation: str, number: int, bundle: dict[str, Any]) -> None:
        packed, name = _packed(bundle), _bundle_name(number)
        pieces = [packed[i : i + _PIECE] for i in range(0, len(packed), _PIECE)]
        digests = [hashlib.sha256(piece).hexdigest() for piece in pieces]
        digest = hashlib.sha256(packed).hexdigest()
        head = {
            "metadata": self._metadata(names.record_name(self._service, operation, name), names.RECORD),
            "data": {"operation": operation, "name": name, "sha256": digest},
        }
        self._seal(operation, name, digest)
        if len(pieces) == 1:
            head["binaryData"] = {"record": base64.b64encode(packed).decode()}
        else:
            for piece_digest, piece in zip(digests, pieces, strict=True):
                blob = {
                    "metadata": self._metadata(names.blob_name(self._service, piece_digest), names.BLOB),
                    "binaryData": {"piece": base64.b64encode(piece).decode()},
                }
                self._client.apply(CONFIG_MAP, blob, force=True)
            head["data"]["pieces"] = " ".join(digests)
        self._client.apply(CONFIG_MAP, head, force=True)

    def _seal(self, operation: str, name: str, digest: str) -> None:
        seal = names.seal_name(self._service, operation, name, digest)
        data = {"operation": operation, "name": name, "sha256": digest}
        there = self._create_numbered(seal, names.SEAL, 1, data)
        if there is not None and there.get("data") != data:
            raise Tampered(f"ControllerRevision {self._namespace}/{seal} is no seal of ours{last_writer(there)}")
        self._sealed.add(seal)

    def load(self, operation: str, name: str) -> dict[str, Any] | None:
        """A record kept by :meth:`save`, or None. The bundles of an operation are read once.

        Raises:
            MpctlError: a piece is missing.
            Tampered: another writer wrote the record.
        """
        for bundle in reversed(self._read(operation)):
            if name in bundle:
                record: dict[str, Any] = bundle[name]
                return record
        return None

    def load_all(self, operation: str) -> dict[str, dict[str, Any]]:
        """Every record of an operation by its name; raises as :meth:`load`."""
        return {name: record for bundle in self._read(operation) for name, record in bundle.items()}

    def _read(self, operation: str) -> list[dict[str, Any]]:
        if operation not in self._bundles:
            found: list[dict[str, Any]] = []
            while (bundle := self._read_one(operation, len(found))) is not None:
                found.append(bundle)
            self._bundles[operation] = found
        return self._bundles[operation]

    def _read_one(self, operation: str, number: int) -> dict[str, Any] | None:
        name = _bundle_name(number)
        found = self._client.get(CONFIG_MAP, names.record_name(self._service, operation, name), self._namespace)
        if found is None:
            return None
        packed = self._packed(found)
        digest = hashlib.sha256(packed).hexdigest()
        if not self._is_sealed(operation, name, digest):
            what = f"ConfigMap {self._namespace}/{found['metadata']['name']}"
            raise Tampered(f"{what} does not hold what was kept of {operation}{last_writer(found)}")
        try:
            bundle: dict[str, Any] = bounded.loads(bounded.gunzip(packed))
        except ValueError as error:
            raise MpctlError(f"the records of {operation} are damaged: {error}") from error
        return bundle

    def _packed(self, found: Json) -> bytes:
        packed = _decoded(found, "record")
        for digest in str((found.get("data") or {}).get("pieces", "")).split():
            piece = self._client.require(CONFIG_MAP, names.blob_name(self._service, digest), self._namespace)
            packed += _decoded(piece, "piece")
        return packed

    def _is_sealed(self, operation: str, name: str, digest: str) -> bool:
        seal = names.seal_name(self._service, operation, name, digest)
        if seal not in self._sealed:
            there = self._client.get(CONTROLLER_REVISION, seal, self._namespace)
            if there is None or there.get("data") != {"operation": operation, "name": name, "sha256": digest}:
                return False
            self._sealed.add(seal)
        return True

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
        objects.delete()

    def prune(self, operations: frozenset[str]) -> Pruned:
        """Delete the records of these operations, and seals of bundles that were replaced since.

        Raises:
            NotPermitted: nothing was deleted; the message names the right that is missing.
        """
        pruned = RecordedObjects(self._client, self._namespace, self._service).prune(operations)
        for operation in operations:
            self._bundles.pop(operation, None)
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
        """Who holds the service now, in words; None when nobody does."""
        return self.held.holder()

    # Helpers

    def _metadata(self, name: str, part: str) -> Json:
        return {"name": name, "namespace": self._namespace, "labels": names.labels(self._service, part)}

    def _list(self, kind: Kind, part: str) -> list[Json]:
        wanted = names.labels(self._service, part)
        chosen = ",".join(f"{k}={v}" for k, v in wanted.items() if k.startswith("mpctl.dev/"))
        return self._client.list(kind, self._namespace, labels=chosen) or []

    def _create(self, kind: Kind, body: Json) -> None:
        def create() -> None:
            self._client.create(kind, body)

        decided(create, lambda: self._client.get(kind, body["metadata"]["name"], self._namespace) is not None)


def decided(write: Callable[[], None], happened: Callable[[], bool], tries: int = _TRIES) -> None:
    """Do a write; when its outcome is unknown, look whether it happened and only else do it again.

    Raises:
        OutcomeUnknown: it is still unknown after ``tries``.
    """
    for attempt in range(tries):
        try:
            write()
            return
        except OutcomeUnknown:
            if happened():
                return
            if attempt == tries - 1:
                raise


def _has_room(count: int, last: Mapping[str, Any], records: Mapping[str, Any]) -> bool:
    """Whether ``records`` fit the last of ``count`` bundles, or a new one that most operations have."""
    fits = len(_packed(records)) <= _PIECE
    return fits and (count < _BUNDLES or len(_packed({**last, **records})) <= _PIECE)


def _bundle_name(number: int) -> str:
    return f"records {number}"


def _packed(bundle: Mapping[str, Any]) -> bytes:
    return gzip.compress(json.dumps(bundle, sort_keys=True, separators=(",", ":")).encode(), mtime=0)


def _decoded(found: Json, key: str) -> bytes:
    """Bytes of an object's binary data; empty where it has none that can be read."""
    try:
        return base64.b64decode((found.get("binaryData") or {}).get(key, ""))
    except ValueError:
        return b""
