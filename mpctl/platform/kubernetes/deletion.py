"""Deletes what is recorded about a service. The operator's role does not permit it; ``mpctl rbac --purge`` does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from mpctl.errors import MpctlError
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION, LEASE, Kind
from mpctl.platform.kubernetes.create_once import create_once, metadata_of, owned_by
from mpctl.platform.kubernetes.ledger_objects import (
    ENTRIES,
    Appended,
    LedgerObject,
    entries_of,
    ledger_of,
    seals_of,
)
from mpctl.platform.kubernetes.sealed_records import newest_seals
from mpctl.rollout.ports import Pruned, Recorded

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
            item for item in client.list(CONFIG_MAP, namespace, labels=chosen) or [] if part_of(item) != names.LOAD
        ]
        lease = client.get(LEASE, names.lease_name(service), namespace)
        self._found: list[tuple[Kind, Json]] = [
            *((CONTROLLER_REVISION, item) for item in sorted(ledger, key=_number)),
            *((CONTROLLER_REVISION, item) for item in others),
            *((CONFIG_MAP, item) for item in records),
            *((LEASE, item) for item in ([lease] if lease else [])),
        ]

    def recorded(self) -> Recorded:
        """Number of revisions, entries and objects with records; other objects are those of an older version."""
        parts = [part_of(item) for _, item in self._found]
        try:
            ledger = ledger_of(self._items(names.LEDGER))
        except MpctlError:  # counted as far as it can be read
            ledger = ()
        revisions = {int(r.get("number") or 0) for each in ledger for r in each.appended.revisions}
        revisions |= {_number(item) for item in self._items(names.REVISION)}
        records = sum(part in _RECORDS for part in parts)
        others = len(parts) - parts.count(names.REVISION) - parts.count(names.LEDGER) - records
        entries = sum(len(each.appended.entries) for each in ledger) or parts.count(names.LEDGER)
        return Recorded(len(revisions), entries, records, others)

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

    def prune(self, operations: frozenset[str]) -> Pruned:
        """Fold the ledger with its revisions into few objects, and delete the records of these operations. May be
        repeated after any interruption: a folded object stands for those that it was made of.

        Raises:
            NotPermitted: nothing was deleted; the message names the right that is missing.
            MpctlError: the ledger cannot be read.
        """
        ledger = ledger_of(self._items(names.LEDGER))
        entries_of(ledger, self._service)  # a ledger that is not whole stays as it is
        seals = [*self._items(names.SEAL), *seals_of(ledger)]
        current = [s for (operation, _), s in newest_seals(seals).items() if operation not in operations]
        staying = {self._record_of(seal) for seal in current}
        pieces = {
            piece
            for item in self._items(names.RECORD)
            if item["metadata"]["name"] in staying
            for piece in str(_data(item).get("pieces", "")).split()
        }
        folded = self._folded(ledger, current)
        staying |= {item["metadata"]["name"] for item in folded}
        if not folded:  # records that belong to no operation
            staying |= {item["metadata"]["name"] for item in (*current, *self._items(names.REVISION))}

        def goes(item: Json) -> bool:
            name, part = item["metadata"]["name"], part_of(item)
            if part == names.BLOB:
                return not any(name.endswith(f"-blob-{piece[:20]}") for piece in pieces)
            return part in (names.RECORD, names.SEAL, names.REVISION, names.LEDGER) and name not in staying

        # The ledger's older objects go before the records, whose seals they hold.
        going = sorted((pair for pair in self._found if goes(pair[1])), key=lambda pair: pair[0] is CONFIG_MAP)
        self._delete(dict(reversed(going)).items(), dry_run=True)
        for item in folded:
            create_once(self._client, item["metadata"], item["revision"], item["data"])
        self._delete(going)
        present = {item["metadata"]["name"] for _, item in self._found}
        remaining = [pair for pair in self._found if pair not in going]
        remaining += [(CONTROLLER_REVISION, item) for item in folded if item["metadata"]["name"] not in present]
        return Pruned(len(going), _size(going), len(remaining), _size(remaining))

    def _folded(self, ledger: Sequence[LedgerObject], seals: Sequence[Json]) -> list[Json]:
        """The objects that stand for the ledger, its revisions and these seals. One that is full stays as it is."""
        entries = [record for each in ledger for record in each.appended.entries]
        revisions = {int(r["number"]): r for each in ledger for r in each.appended.revisions}
        revisions |= {_number(item): _data(item) for item in self._items(names.REVISION)}
        beside = [{**_data(seal), "number": _number(seal)} for seal in seals]
        parts = [entries[start : start + ENTRIES] for start in range(0, len(entries), ENTRIES)]
        if parts and len(parts[-1]) == ENTRIES:  # the last part has the seals, so it must not have a full one's name
            parts[-1:] = [parts[-1][:-1], parts[-1][-1:]]
        objects = []
        for number, part in enumerate(parts, start=1):
            final = number == len(parts)
            known = {entry.get("operation") for entry in part}
            taken = [n for n, record in sorted(revisions.items()) if final or record.get("operation") in known]
            held = Appended(tuple(part), tuple(revisions.pop(n) for n in taken), tuple(beside) if final else ())
            name = names.folded_name(self._service, held.first, held.last)
            metadata = metadata_of(self._namespace, self._service, name, names.LEDGER)
            objects.append({"metadata": metadata, "revision": held.first, "data": held.data()})
        return objects

    def _items(self, part: str) -> list[Json]:
        return [item for _, item in self._found if part_of(item) == part]

    def _record_of(self, seal: Json) -> str:
        """The ConfigMap that a seal vouches for."""
        data = _data(seal)
        return names.record_name(self._service, str(data["operation"]), str(data["name"]), _number(seal))

    def _delete(self, items: Iterable[tuple[Kind, Json]], *, dry_run: bool = False) -> None:
        for kind, item in items:
            self._client.delete(kind, item["metadata"]["name"], self._namespace, dry_run=dry_run)


def part_of(item: Json) -> str:
    """Return the part of a history that an object is, by its label; empty without a label."""
    return str((item["metadata"].get("labels") or {}).get(names.PART_LABEL, ""))


def _data(item: Json) -> Json:
    return item.get("data") or {}


def _size(items: Iterable[tuple[Kind, Json]]) -> int:
    """Bytes of objects as JSON."""
    return sum(len(json.dumps(item)) for _, item in items)


def _number(item: Json) -> int:
    return int(item.get("revision") or 0)
