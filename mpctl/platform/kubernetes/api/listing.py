"""A client for commands on many services at once: objects are listed once and looked up in memory.

A fleet's status would otherwise send a dozen requests per service. Objects that may not be listed are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mpctl.errors import NotPermitted
from mpctl.json_fields import labels_of, name_of
from mpctl.json_types import Json
from mpctl.platform.kubernetes.api import kinds, names
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import ObjectKind

_ISVC_LABEL = "serving.kserve.io/inferenceservice"
_NAMED = (kinds.INFERENCE_SERVICE, kinds.LLM_INFERENCE_SERVICE, kinds.DEPLOYMENT, kinds.LEASE)
_OF_MPCTL = f"{names.PART_LABEL}=lease"
_OF_SERVICE = (names.SERVICE_LABEL, _ISVC_LABEL)
Found = tuple[Json, ...]


class ListingClient(Client):
    """Reads of one namespace, or of all (``scope`` None). Nothing is read twice, so a client serves one command.

    Engines are not queried: ``mpctl status NAME`` does that.
    """

    listing = True
    scope: str | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lists: dict[tuple[ObjectKind, str, str], Found | None] = {}
        self._by_name: dict[tuple[ObjectKind, str, str], dict[tuple[str | None, str], Json]] = {}
        self._by_service: dict[tuple[ObjectKind, str, str], dict[str, list[Json]]] = {}
        self._single: dict[tuple[ObjectKind, str | None, str], Json | None] = {}

    def get(self, kind: ObjectKind, name: str, namespace: str | None = None) -> Json | None:
        """Return an object, from the list of its kind if that may be read."""
        if kind is kinds.CONFIG_MAP:
            return None
        labels = _OF_MPCTL if kind is kinds.LEASE else ""
        key = (kind, labels, "")
        if kind in _NAMED and self._whole(*key) is not None:
            return self._by_name[key].get((namespace, name))
        if (kind, namespace, name) not in self._single:
            self._single[kind, namespace, name] = super().get(kind, name, namespace)
        return self._single[kind, namespace, name]

    def list(
        self, kind: ObjectKind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Json] | None:
        """Return the selected objects, from a wider list if that may be read."""
        wanted = _terms(labels)
        wide = None if wanted is None else _wide(kind, wanted)
        if wanted is None or wide is None:
            return super().list(kind, namespace, labels=labels, fields=fields)
        objects = self._whole(kind, wide, fields)
        if objects is None:
            return super().list(kind, namespace, labels=labels, fields=fields)
        return [
            record
            for record in self._near(kind, wide, fields, wanted)
            if namespace in (None, record["metadata"].get("namespace"))
            and wanted.items() <= labels_of(record).items()
        ]

    def _near(
        self, kind: ObjectKind, wide: str, fields: str, wanted: Mapping[str, str]
    ) -> Iterable[Json]:
        """Return the listed objects of one service, or all if the selector names no service."""
        label = next((label for label in _OF_SERVICE if label in wanted), None)
        whole = self._whole(kind, wide, fields) or ()
        if label is None:
            return whole
        key = (kind, wide, label)
        if key not in self._by_service:
            self._by_service[key] = {}
            for record in whole:
                self._by_service[key].setdefault(labels_of(record).get(label, ""), []).append(
                    record
                )
        return self._by_service[key].get(wanted[label], ())

    def _whole(self, kind: ObjectKind, labels: str, fields: str) -> Found | None:
        """Return all objects of the scope; None if they may not be listed or the server does not know the kind."""
        key = (kind, labels, fields)
        if key not in self._lists:
            try:
                objects = super().list(kind, self.scope, labels=labels, fields=fields)
            except NotPermitted:
                objects = None
            self._lists[key] = None if objects is None else tuple(objects)
            self._by_name[key] = {
                (o["metadata"].get("namespace"), name_of(o)): o for o in objects or ()
            }
        return self._lists[key]


def _terms(labels: str) -> dict[str, str] | None:
    """A selector as equal labels; None where it has other terms."""
    pairs = [term.partition("=") for term in labels.split(",") if term]
    if any(
        not equals or "!" in key or " " in key or value.startswith("=")
        for key, equals, value in pairs
    ):
        return None
    return {key: value for key, _, value in pairs}


def _wide(kind: ObjectKind, wanted: Mapping[str, str]) -> str | None:
    """The selector of the list that holds the wanted objects of every service; None where it would hold too much."""
    if kind is kinds.POD:
        return _ISVC_LABEL if _ISVC_LABEL in wanted else None
    if kind is kinds.CONTROLLER_REVISION:
        part = wanted.get(names.PART_LABEL)
        return None if part is None else f"{names.PART_LABEL}={part}"
    return "" if kind in _NAMED or kind is kinds.EVENT else None
