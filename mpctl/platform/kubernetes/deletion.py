"""Deletes what is recorded about a service. The operator's role does not permit it; ``mpctl rbac --purge`` does."""

from __future__ import annotations

import json
from collections.abc import Iterable

from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION, LEASE, Kind
from mpctl.platform.kubernetes.ledger_objects import records_of
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
        history = client.list(CONTROLLER_REVISION, namespace, labels=chosen) or []
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
        """Number of objects of each part; those of an older version are others."""
        parts = [part_of(item) for _, item in self._found]
        revisions, records = parts.count(names.REVISION), sum(part in _RECORDS for part in parts)
        ledger = [item for _, item in self._found if part_of(item) == names.LEDGER]
        others = len(parts) - revisions - len(ledger) - records
        return Recorded(revisions, sum(len(records_of(item)) for item in ledger), records, others)

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
        """Delete the records of these operations, and states of records that were replaced since.

        Raises:
            NotPermitted: nothing was deleted; the message names the right that is missing.
        """
        seals = [item for _, item in self._found if part_of(item) == names.SEAL]
        current = [s for (operation, _), s in newest_seals(seals).items() if operation not in operations]
        staying = {seal["metadata"]["name"] for seal in current} | {self._record_of(seal) for seal in current}
        pieces = {
            piece
            for _, item in self._found
            if item["metadata"]["name"] in staying
            for piece in str(_data(item).get("pieces", "")).split()
        }

        def goes(item: Json) -> bool:
            name, part = item["metadata"]["name"], part_of(item)
            if part == names.BLOB:
                return not any(name.endswith(f"-blob-{piece[:20]}") for piece in pieces)
            return part in (names.RECORD, names.SEAL) and name not in staying

        # Seals go first, the oldest before the newest, so that a record whose newest seal stands is whole.
        going = sorted(
            (pair for pair in self._found if goes(pair[1])), key=lambda pair: (pair[0] is CONFIG_MAP, _number(pair[1]))
        )
        self._delete(dict(reversed(going)).items(), dry_run=True)
        self._delete(going)
        remaining = [pair for pair in self._found if pair not in going]
        return Pruned(len(going), _size(going), len(remaining), _size(remaining))

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
