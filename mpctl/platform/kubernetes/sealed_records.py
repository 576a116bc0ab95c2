"""Records of operations (conditions, blocks with every request): ConfigMaps that are sealed, and their deletion.

The records of an operation are bundled in a compressed ConfigMap, with a second bundle when the first is full. A bundle
larger than an object may be is cut into pieces named by their content, which are written before it.

Each state of a bundle has a number and a seal, its digest, in a ControllerRevision, which nobody can change and few may
create: that of the next entry of the ledger, or one of its own while a measurement goes on for long. The newest seal
alone counts, so an earlier state that another writer puts back is tampering like any other change. A bundle has two
ConfigMaps that take turns: a state is written beside the sealed one and sealed then, so a command that dies in between
leaves the sealed state whole.

The operator's role does not permit to delete a history; ``mpctl rbac --allow purge`` does.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mpctl import bounded, commands
from mpctl.errors import Conflict, InputError, MpctlError, Tampered
from mpctl.json_fields import labels_of, mapping_at, name_of
from mpctl.json_types import Json, JsonView
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION, LEASE, ObjectKind
from mpctl.platform.kubernetes.api.objects import last_writer
from mpctl.platform.kubernetes.ledger_objects import (
    ENTRIES,
    Appended,
    LedgerObject,
    create_once,
    entries_of,
    ledger_of,
    metadata_of,
    owned_by,
    seals_of,
)
from mpctl.rollout.ports import PruneResult, RecordCounts

# An object may have 1 MiB in etcd's default request limit of 1.5 MiB (Kubernetes, ConfigMap documentation).
_PIECE = 700_000  # compressed bytes of a ConfigMap: below 1 MiB also as base64
_BUNDLES = 2  # of an operation before raw results are left out; its workload is a third one
_TRIES = 4
_FIRST_S = (
    30.0  # of records that wait for an entry, before they are sealed without one; doubled each time
)

Bundle = Json


@dataclass(frozen=True)
class _State:
    """A bundle's records. ``number``: of the newest seal; ``unsealed``: they changed since."""

    number: int
    records: Bundle
    unsealed: bool = False


class SealedRecords:
    """The records of one service. ``appended``: seals that were appended to the ledger."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        service: str,
        appended: Callable[[], list[Json]] = list,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._namespace, self._service = client, namespace, service
        self._appended = appended
        self._elapsed = elapsed
        # By operation; only this command writes while it runs.
        self._known: dict[str, list[_State]] = {}
        self._unsealed_since: float | None = None
        self._next_s = _FIRST_S

    def save_all(
        self,
        operation: str,
        records: Mapping[str, Bundle],
        *,
        raw: Mapping[str, Bundle] | None = None,
        with_entry: bool = False,
        replaces: bool = False,
    ) -> None:
        """Keep records of an operation in its newest bundle, or in a new one when that is full. ``raw`` is left out
        where it would need a bundle more than most operations have.

        ``with_entry``: they are sealed by the next entry of the ledger (:meth:`write`), or when many seconds of a
        measurement are at stake. ``replaces``: they are all that the operation has, so what another writer destroyed
        is written again.

        Raises:
            Conflict: another writer sealed records of the operation meanwhile, or holds the ConfigMap's name.
        """
        bundle = self._read(operation, replaces=replaces)
        last = bundle[-1] if bundle else _State(0, {})
        if raw:
            every = {**raw, **records}
            # They fit the last bundle, or a new one that most operations have.
            has_room = len(bundle) < _BUNDLES or len(_packed({**last.records, **every})) <= _PIECE
            if has_room and len(_packed(every)) <= _PIECE:
                records = every
        before, joined = bundle[:-1], {**last.records, **records}
        if bundle and joined == last.records:
            return  # as the newest seal says, or the next one will
        if last.records and len(_packed(joined)) > _PIECE:
            before, last, joined = bundle, _State(0, {}), dict(records)
        self._known[operation] = [*before, _State(last.number, joined, unsealed=True)]
        if self._unsealed_since is None:
            self._unsealed_since = self._elapsed()
        if not with_entry:
            self.flush()
        elif self._elapsed() - self._unsealed_since >= self._next_s:
            self.flush()
            self._next_s *= (
                2  # few seals however long it measures; what a crash loses is less than half
            )

    def load_all(self, operation: str) -> dict[str, Bundle]:
        """Every record of an operation by its name. Its bundles are read once.

        Raises:
            Tampered: another writer changed or removed a record.
        """
        return {
            name: record
            for state in self._read(operation)
            for name, record in state.records.items()
        }

    def forget(self, operations: Iterable[str]) -> None:
        """Read the records of these operations again."""
        for operation in operations:
            self._known.pop(operation, None)

    # Writing

    def write(self) -> list[Json]:
        """Write the records that are not sealed beside the sealed ones; their seals, to be appended to the ledger.
        Those count once :meth:`sealed` is called."""
        return [
            {**self._write(operation, _bundle_name(place), state), "number": state.number + 1}
            for operation, states in self._known.items()
            for place, state in enumerate(states)
            if state.unsealed
        ]

    def sealed(self) -> None:
        """Note that the seals of :meth:`write` are recorded."""
        for operation, states in self._known.items():
            self._known[operation] = [_State(s.number + s.unsealed, s.records) for s in states]
        self._unsealed_since = None

    def flush(self) -> None:
        """Write and seal what is not sealed, by seals of their own."""
        for seal in self.write():
            self._seal(seal)
        self.sealed()

    def _write(self, operation: str, bundle: str, state: _State) -> Json:
        packed = _packed(state.records)
        pieces = [packed[i : i + _PIECE] for i in range(0, len(packed), _PIECE)]
        digests = [hashlib.sha256(piece).hexdigest() for piece in pieces]
        data = {
            "operation": operation,
            "name": bundle,
            "sha256": hashlib.sha256(packed).hexdigest(),
        }
        metadata = self._metadata(
            names.record_name(self._service, operation, bundle, state.number + 1), names.RECORD
        )
        record: Json = {"metadata": metadata, "data": data}
        if len(pieces) == 1:
            record["binaryData"] = {"record": base64.b64encode(packed).decode()}
        else:
            for digest, piece in zip(digests, pieces, strict=True):
                blob = {
                    "metadata": self._metadata(names.blob_name(self._service, digest), names.BLOB),
                    "binaryData": {"piece": base64.b64encode(piece).decode()},
                }
                self._apply(blob)
            record["data"] = {**data, "pieces": " ".join(digests)}
        self._apply(record)
        return data

    def _apply(self, config_map: Json) -> None:
        """Write a ConfigMap.

        Raises:
            Conflict: another writer's is in the way and cannot be changed.
        """
        try:
            self._client.apply(CONFIG_MAP, config_map, force=True)
        except InputError as error:
            name = name_of(config_map)
            present = self._client.get(CONFIG_MAP, name, self._namespace)
            if present is None or not present.get("immutable"):
                raise
            raise Conflict(
                f"ConfigMap {self._namespace}/{name} is immutable, so records cannot be written{last_writer(present)}",
                hint=commands.kubectl("delete", "configmap", name, namespace=self._namespace)
                + ", then the same command again",
            ) from error

    def _seal(self, seal: Json) -> None:
        number, operation = seal["number"], seal["operation"]
        data = {key: value for key, value in seal.items() if key != "number"}
        name = names.seal_name(self._service, operation, seal["name"], number)
        metadata = metadata_of(self._namespace, self._service, name, names.SEAL)
        metadata["labels"][names.OPERATION_LABEL] = names.label_of(operation)
        existing = create_once(self._client, metadata, number, data)
        if existing is not None and existing.get("data") != data:
            status = commands.line("status", self._service, namespace=self._namespace)
            raise Conflict(
                f"records of {operation} were sealed by another writer meanwhile{last_writer(existing)}",
                hint=f"{status} shows who is at work; the same command again continues from there",
            )

    def _metadata(self, name: str, part: str) -> Json:
        return {
            "name": name,
            "namespace": self._namespace,
            "labels": names.labels(self._service, part),
        }

    # Reading

    def _read(self, operation: str, *, replaces: bool = False) -> list[_State]:
        if operation not in self._known:
            try:
                self._known[operation] = self._read_sealed(operation)
            except Tampered:
                if not replaces:
                    raise
                self._known[operation] = [
                    _State(number_of(seal), {}) for seal in self._newest_seals(operation)[:1]
                ]
        return self._known[operation]

    def _read_sealed(self, operation: str) -> list[_State]:
        seals = self._newest_seals(operation)
        for remaining_tries in reversed(range(_TRIES)):
            try:
                return [_State(number_of(seal), self._opened(operation, seal)) for seal in seals]
            except Tampered:
                newer = self._newest_seals(
                    operation
                )  # whoever works on the operation wrote twice meanwhile
                if newer == seals or not remaining_tries:
                    raise
                seals = newer
        return []

    def _newest_seals(self, operation: str) -> list[Json]:
        """The newest seal of each bundle, in the order of the bundles."""
        chosen = (
            f"{names.SERVICE_LABEL}={names.label_of(self._service)},{names.PART_LABEL}={names.SEAL},"
            f"{names.OPERATION_LABEL}={names.label_of(operation)}"
        )
        listed = self._client.list(CONTROLLER_REVISION, self._namespace, labels=chosen) or []
        owned = [item for item in listed if owned_by(item, self._service)]
        newest = newest_seals([*owned, *self._appended()])
        seals: list[Json] = []
        while (seal := newest.get((operation, _bundle_name(len(seals))))) is not None:
            seals.append(seal)
        return seals

    def _opened(self, operation: str, seal: Json) -> Bundle:
        """The records that a seal vouches for."""
        bundle, digest = seal["data"]["name"], seal["data"]["sha256"]
        name = names.record_name(self._service, operation, bundle, number_of(seal))
        what = f"ConfigMap {self._namespace}/{name}"
        config_map = self._client.get(CONFIG_MAP, name, self._namespace)
        if config_map is None:
            raise Tampered(f"{what} is missing, which held records of {operation}")
        packed = self._packed(config_map)
        if hashlib.sha256(packed).hexdigest() != digest:
            raise Tampered(
                f"{what} does not hold what was kept of {operation}{last_writer(config_map)}"
            )
        try:
            records: Bundle = bounded.loads(bounded.gunzip(packed))
        except ValueError as error:
            raise MpctlError(f"the records of {operation} are damaged: {error}") from error
        return records

    def _packed(self, config_map: Json) -> bytes:
        packed = _decoded(config_map, "record")
        for digest in str(mapping_at(config_map, "data").get("pieces", "")).split():
            piece = self._client.get(
                CONFIG_MAP, names.blob_name(self._service, digest), self._namespace
            )
            packed += _decoded(piece or {}, "piece")
        return packed


def newest_seals(seals: Iterable[Json]) -> dict[tuple[str, str], Json]:
    """The newest seal of each bundle, by operation and bundle."""
    newest: dict[tuple[str, str], Json] = {}
    for seal in seals:
        data = mapping_at(seal, "data")
        key = str(data.get("operation")), str(data.get("name"))
        if key not in newest or number_of(seal) > number_of(newest[key]):
            newest[key] = seal
    return newest


def number_of(seal: Json) -> int:
    """Return the number of the bundle's state that a seal vouches for."""
    return int(seal.get("revision") or 0)


def _bundle_name(number: int) -> str:
    return f"records {number}"


def _packed(bundle: JsonView) -> bytes:
    return gzip.compress(
        json.dumps(bundle, sort_keys=True, separators=(",", ":")).encode(), mtime=0
    )


def _decoded(config_map: Json, key: str) -> bytes:
    """Bytes of an object's binary data; empty where it has none that can be read."""
    try:
        return base64.b64decode(mapping_at(config_map, "binaryData").get(key, ""))
    except ValueError:
        return b""


_RECORDS = (names.RECORD, names.BLOB, names.SEAL)


class RecordedObjects:
    """The objects of one service that hold its history, by kind, in the order in which they are deleted.

    The ledger goes first: without it nothing is taken for an unfinished operation when the deletion is interrupted and
    started again. The lease goes last.
    """

    def __init__(self, client: Client, namespace: str, service: str) -> None:
        self._client, self._namespace, self._service = client, namespace, service
        chosen = f"{names.SERVICE_LABEL}={names.label_of(service)}"
        listed = client.list(CONTROLLER_REVISION, namespace, labels=chosen) or []
        history = [item for item in listed if owned_by(item, service)]
        ledger = [item for item in history if part_of(item) == names.LEDGER]
        others = [item for item in history if part_of(item) != names.LEDGER]
        records = [
            item
            for item in client.list(CONFIG_MAP, namespace, labels=chosen) or []
            if part_of(item) != names.LOAD
        ]
        lease = client.get(LEASE, names.lease_name(service), namespace)
        self._found: list[tuple[ObjectKind, Json]] = [
            *((CONTROLLER_REVISION, item) for item in sorted(ledger, key=number_of)),
            *((CONTROLLER_REVISION, item) for item in others),
            *((CONFIG_MAP, item) for item in records),
            *((LEASE, item) for item in ([lease] if lease else [])),
        ]

    def recorded(self) -> RecordCounts:
        """Number of revisions, entries and objects with records; other objects are those of an older version."""
        parts = [part_of(item) for _, item in self._found]
        try:
            ledger = ledger_of(self._items(names.LEDGER))
        except MpctlError:  # counted as far as it can be read
            ledger = ()
        revisions = {int(r.get("number") or 0) for each in ledger for r in each.appended.revisions}
        revisions |= {number_of(item) for item in self._items(names.REVISION)}
        records = sum(part in _RECORDS for part in parts)
        others = len(parts) - parts.count(names.REVISION) - parts.count(names.LEDGER) - records
        entries = sum(len(each.appended.entries) for each in ledger) or parts.count(names.LEDGER)
        return RecordCounts(len(revisions), entries, records, others)

    def require_permitted(self) -> None:
        """Ask the API server whether each kind may be deleted, so that a refusal comes before the first deletion.

        Raises:
            NotPermitted: with the right that is missing.
        """
        first = dict(reversed(self._found))
        self._delete(first.items(), dry_run=True)

    def delete(self) -> None:
        """Delete them; may be repeated."""
        self._delete(self._found)

    def prune(self, operations: frozenset[str]) -> PruneResult:
        """Fold the ledger with its revisions into few objects, and delete the records of these operations. May be
        repeated after any interruption: a folded object stands for those that it was made of.

        Raises:
            NotPermitted: nothing was deleted; the message names the right that is missing.
            MpctlError: the ledger cannot be read.
        """
        ledger = ledger_of(self._items(names.LEDGER))
        entries_of(ledger, self._service)  # a ledger that is not whole stays as it is
        seals = [*self._items(names.SEAL), *seals_of(ledger)]
        current = [
            s for (operation, _), s in newest_seals(seals).items() if operation not in operations
        ]
        # The ConfigMaps that the seals vouch for.
        staying = {
            names.record_name(
                self._service, str(data["operation"]), str(data["name"]), number_of(seal)
            )
            for seal in current
            for data in [_data(seal)]
        }
        pieces = {
            piece
            for item in self._items(names.RECORD)
            if name_of(item) in staying
            for piece in str(_data(item).get("pieces", "")).split()
        }
        folded = self._folded(ledger, current)
        staying |= {name_of(item) for item in folded}
        if not folded:  # records that belong to no operation
            staying |= {name_of(item) for item in (*current, *self._items(names.REVISION))}

        def goes(item: Json) -> bool:
            name, part = name_of(item), part_of(item)
            if part == names.BLOB:
                return not any(name.endswith(f"-blob-{piece[:20]}") for piece in pieces)
            return (
                part in (names.RECORD, names.SEAL, names.REVISION, names.LEDGER)
                and name not in staying
            )

        # The ledger's older objects go before the records, whose seals they hold.
        going = sorted(
            (pair for pair in self._found if goes(pair[1])), key=lambda pair: pair[0] is CONFIG_MAP
        )
        self._delete(dict(reversed(going)).items(), dry_run=True)
        for item in folded:
            create_once(self._client, item["metadata"], item["revision"], item["data"])
        self._delete(going)
        present = {name_of(item) for _, item in self._found}
        remaining = [pair for pair in self._found if pair not in going]
        remaining += [
            (CONTROLLER_REVISION, item) for item in folded if name_of(item) not in present
        ]
        return PruneResult(len(going), _size(going), len(remaining), _size(remaining))

    def _folded(self, ledger: Sequence[LedgerObject], seals: Sequence[Json]) -> list[Json]:
        """The objects that stand for the ledger, its revisions and these seals. One that is full stays as it is."""
        entries = [record for each in ledger for record in each.appended.entries]
        revisions = {int(r["number"]): r for each in ledger for r in each.appended.revisions}
        revisions |= {number_of(item): _data(item) for item in self._items(names.REVISION)}
        beside = [{**_data(seal), "number": number_of(seal)} for seal in seals]
        parts = [entries[start : start + ENTRIES] for start in range(0, len(entries), ENTRIES)]
        if (
            parts and len(parts[-1]) == ENTRIES
        ):  # the last part has the seals, so it must not have a full one's name
            parts[-1:] = [parts[-1][:-1], parts[-1][-1:]]
        objects = []
        for number, part in enumerate(parts, start=1):
            final = number == len(parts)
            operations = {entry.get("operation") for entry in part}
            taken = [
                n
                for n, record in sorted(revisions.items())
                if final or record.get("operation") in operations
            ]
            appended = Appended(
                tuple(part), tuple(revisions.pop(n) for n in taken), tuple(beside) if final else ()
            )
            name = names.folded_name(self._service, appended.first, appended.last)
            metadata = metadata_of(self._namespace, self._service, name, names.LEDGER)
            objects.append(
                {"metadata": metadata, "revision": appended.first, "data": appended.data()}
            )
        return objects

    def _items(self, part: str) -> list[Json]:
        return [item for _, item in self._found if part_of(item) == part]

    def _delete(self, items: Iterable[tuple[ObjectKind, Json]], *, dry_run: bool = False) -> None:
        for kind, item in items:
            self._client.delete(kind, name_of(item), self._namespace, dry_run=dry_run)


def part_of(item: Json) -> str:
    """Return the part of a history that an object is, by its label; empty without a label."""
    return str(labels_of(item).get(names.PART_LABEL, ""))


def _data(item: Json) -> Json:
    return mapping_at(item, "data")


def _size(items: Iterable[tuple[ObjectKind, Json]]) -> int:
    """Bytes of objects as JSON."""
    return sum(len(json.dumps(item)) for _, item in items)
