"""Deletes what is recorded about a service. The operator's role does not permit it; ``mpctl rbac --purge`` does."""

from __future__ import annotations

import json
from collections.abc import Iterable

from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION, LEASE, Kind
from mpctl.rollout.ports import Pruned, Recorded

_RECORDS = (names.RECORD, names.BLOB, names.SEAL)


class RecordedObjects:
    """The objects of one service that hold its history, by kind, in the order in which they are deleted.

    The ledger goes first: without it nothing is taken for an unfinished operation when the deletion is interrupted and
    started again. The lease goes last.
    """

    def __init__(self, client: Client, namespace: str, service: str) -> None:
        self._client, self._namespace = client, namespace
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
        revisions, entries = parts.count(names.REVISION), parts.count(names.LEDGER)
        records = sum(part in _RECORDS for part in parts)
        return Recorded(revisions, entries, records, len(parts) - revisions - entries - records)

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
        """Delete the records of these operations, and seals of bundles that were replaced since.

        Raises:
            NotPermitted: nothing was deleted; the message names the right that is missing.
        """
        records = [item for kind, item in self._found if kind is CONFIG_MAP and part_of(item) == names.RECORD]
        kept = [item for item in records if _data(item).get("operation") not in operations]
        pieces = {piece for item in kept for piece in str(_data(item).get("pieces", "")).split()}
        current = {(_data(item).get("operation"), _data(item).get("name"), _data(item).get("sha256")) for item in kept}

        def goes(kind: Kind, item: Json) -> bool:
            part, data = part_of(item), _data(item)
            if kind is CONFIG_MAP and part == names.RECORD:
                return data.get("operation") in operations
            if kind is CONFIG_MAP and part == names.BLOB:
                return not any(item["metadata"]["name"].endswith(f"-blob-{piece[:20]}") for piece in pieces)
            vouched = (data.get("operation"), data.get("name"), data.get("sha256"))
            return kind is CONTROLLER_REVISION and part == names.SEAL and vouched not in current

        # Records go before the seals that vouch for them.
        going = sorted((pair for pair in self._found if goes(*pair)), key=lambda pair: pair[0] is not CONFIG_MAP)
        self._delete(dict(reversed(going)).items(), dry_run=True)
        self._delete(going)
        left = [pair for pair in self._found if pair not in going]
        return Pruned(len(going), _size(going), len(left), _size(left))

    def _delete(self, items: Iterable[tuple[Kind, Json]], *, dry_run: bool = False) -> None:
        for kind, item in items:
            self._client.delete(kind, item["metadata"]["name"], self._namespace, dry_run=dry_run)


def part_of(item: Json) -> str:
    """Which part of a history an object is, by its label; empty without one."""
    return str((item["metadata"].get("labels") or {}).get(names.PART_LABEL, ""))


def _data(item: Json) -> Json:
    return item.get("data") or {}


def _size(items: Iterable[tuple[Kind, Json]]) -> int:
    """Bytes of objects as JSON."""
    return sum(len(json.dumps(item)) for _, item in items)


def _number(item: Json) -> int:
    return int(item.get("revision") or 0)
