"""An API server in memory for the tests of ``KubernetesStore``: names, managed fields, ControllerRevisions whose data
nobody can change. ``as_`` names the writer that managed fields show.

Left out: watches, dry runs, server-side apply's ownership of fields, rights (a test says who writes what).
"""

from __future__ import annotations

import copy
from typing import Any

from mpctl.errors import InputError, NotPermitted
from mpctl.platform.kubernetes.api.kinds import CONTROLLER_REVISION, ObjectKind
from mpctl.platform.kubernetes.api.replies import AlreadyExists, OutcomeUnknown

Json = dict[str, Any]


class Immutable(Exception):
    """The API server refuses a change of a ControllerRevision's data."""


class FakeApi:
    """Objects by plural and name, of one namespace. ``unanswered``: how many writes are done but not answered."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.reads = self.writes = self.unanswered = 0
        self._version = 0
        self.guard = None
        self.forbids = ""  # plural of the kind that may not be deleted

    def get(self, kind: ObjectKind, name: str, namespace: str | None = None) -> Json | None:
        self.reads += 1
        return copy.deepcopy(self.objects.get((kind.plural, name)))

    def require(self, kind: ObjectKind, name: str, namespace: str | None = None) -> Json:
        value = self.get(kind, name, namespace)
        if value is None:
            raise InputError(f"{kind.plural} {name} not found")
        return value

    def list(
        self, kind: ObjectKind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> list[Json]:
        self.reads += 1
        wanted = dict(pair.split("=") for pair in labels.split(",") if pair)
        return [
            copy.deepcopy(item)
            for (plural, _), item in sorted(self.objects.items())
            if plural == kind.plural
            and wanted.items() <= (item["metadata"].get("labels") or {}).items()
        ]

    def create(self, kind: ObjectKind, body: Json, *, as_: str = "mpctl") -> Json:
        key = kind.plural, body["metadata"]["name"]
        if key in self.objects:
            raise AlreadyExists(f"{kind.plural} {key[1]} already exists")
        return self._keep(key, body, as_)

    def apply(
        self, kind: ObjectKind, body: Json, *, force: bool = False, as_: str = "mpctl"
    ) -> Json:
        if self.objects.get((kind.plural, body["metadata"]["name"]), {}).get("immutable"):
            raise InputError("data: Forbidden: field is immutable when `immutable` is set")
        return self._keep((kind.plural, body["metadata"]["name"]), body, as_)

    def replace(self, kind: ObjectKind, body: Json, *, as_: str = "mpctl") -> Json:
        return self._keep((kind.plural, body["metadata"]["name"]), body, as_)

    def merge(
        self, kind: ObjectKind, name: str, namespace: str | None, patch: Json, *, as_: str = "mpctl"
    ) -> Json:
        return self._keep((kind.plural, name), merged(self.objects[kind.plural, name], patch), as_)

    def delete(
        self, kind: ObjectKind, name: str, namespace: str | None = None, *, dry_run: bool = False
    ) -> None:
        if self.forbids == kind.plural:
            raise NotPermitted(f"cannot delete {kind.plural}")
        if not dry_run:
            del self.objects[kind.plural, name]

    def _keep(self, key: tuple[str, str], body: Json, writer: str) -> Json:
        self.writes += 1
        self._version += 1
        old = self.objects.get(key)
        if old is not None and key[0] == CONTROLLER_REVISION.plural and old["data"] != body["data"]:
            raise Immutable(key[1])
        body_copy = copy.deepcopy(body)
        text = f"2026-11-22T00:00:{self._version % 60:02}Z"
        body_copy["metadata"]["managedFields"] = [{"manager": writer, "time": text}]
        body_copy["metadata"]["resourceVersion"] = str(self._version)
        self.objects[key] = body_copy
        if self.unanswered:
            self.unanswered -= 1
            raise OutcomeUnknown("no answer")
        return copy.deepcopy(body_copy)

    def of(self, plural: str) -> list[Json]:
        """Objects of one kind."""
        return [item for (kind, _), item in self.objects.items() if kind == plural]

    def named(self, part: str) -> list[str]:
        """Names of mpctl's objects of one part."""
        return [
            n
            for (_, n), o in sorted(self.objects.items())
            if o["metadata"]["labels"]["mpctl.dev/part"] == part
        ]


def merged(item: Json, patch: Json) -> Json:
    """A JSON merge patch (RFC 7386)."""
    fields = {**item, **{k: v for k, v in patch.items() if not isinstance(v, dict)}}
    fields |= {k: merged(item.get(k) or {}, v) for k, v in patch.items() if isinstance(v, dict)}
    return {k: v for k, v in fields.items() if v is not None}
