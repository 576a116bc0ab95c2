"""An API server in memory behind the HTTP that mpctl's client speaks: resourceVersions, uids and generations, dry runs,
preconditions, selectors, watches of one object, server-side apply, foreground deletion, managed fields, and the state
before the last change, for a stale read.

Left out: validation and defaults, webhooks, ownership of fields (an apply merges), rights, namespaces (there is one),
pages of a list, watches of several objects, a history of events before the version that a watch names.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from fake_api import merged

from mpctl.platform.kubernetes.api import kinds
from mpctl.platform.kubernetes.api.kinds import ObjectKind
from tests.sweep.clock import clock

Json = dict[str, Any]
Key = tuple[str, str]  # kind, name

NAMESPACE = "chat"
NOT_INSTALLED = (
    "LLMInferenceService",
    "LLMInferenceServiceConfig",
    "LeaderWorkerSet",
    "VLLMRuntime",
    "ScaledObject",
)
KINDS = {
    (kind.group, kind.plural): kind
    for kind in vars(kinds).values()
    if isinstance(kind, ObjectKind) and kind.name not in NOT_INSTALLED
}
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/[^/]+(?=/))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?"
    r"(?:/(?P<sub>[^/]+))?$"
)
_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
FOREGROUND = "foregroundDeletion"


def copied(item: Any) -> Any:
    """A copy of JSON, several times as fast as ``copy.deepcopy``."""
    return json.loads(json.dumps(item))


class Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, reason: str, message: str, name: str = ""):
        super().__init__(message)
        self.code, self.reason, self.name = code, reason, name

    def status(self) -> Json:
        """The body of the answer."""
        details = {"name": self.name} if self.name else {}
        text = {"kind": "Status", "status": "Failure", "message": str(self), "reason": self.reason}
        return {**text, "details": details, "code": self.code}


@dataclass(frozen=True)
class Request:
    """A request as the server understands it. ``kind``: None for one that no kind serves."""

    method: str
    path: str
    query: dict[str, str]
    body: Json
    kind: ObjectKind | None
    name: str
    subresource: str
    apply: bool

    @classmethod
    def of(cls, method: str, url: str, body: bytes | None, content_type: str) -> Request:
        """Parse a request."""
        split = urlsplit(url)
        match = _PATH.match(split.path)
        parts = (
            {key: unquote(value or "") for key, value in match.groupdict().items()} if match else {}
        )
        kind = KINDS.get((parts.get("group", ""), parts.get("plural", "")))
        content = json.loads(body) if body else {}
        return cls(
            method,
            split.path,
            dict(parse_qsl(split.query)),
            content,
            kind,
            parts.get("name", ""),
            parts.get("sub", ""),
            "apply" in content_type,
        )

    @property
    def watches(self) -> bool:
        return "watch" in self.query

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    def __str__(self) -> str:
        verb = "watch" if self.watches else _VERBS[self.method]
        verb = "list" if verb == "get" and self.kind is not None and not self.name else verb
        what = self.kind.plural if self.kind else self.path.rpartition("/")[2]
        dry = " (dry run)" if "dryRun" in self.query else ""
        return f"{verb} {what}{'/' + self.subresource if self.subresource else ''}{dry}"


@dataclass
class ApiServer:
    """Objects by kind and name. ``changes``: every change, the oldest first, with None for a deletion."""

    objects: dict[Key, Json] = field(default_factory=dict)
    changes: list[tuple[Key, Json | None]] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(100))

    # What controllers and tests use

    def of(self, kind: ObjectKind) -> list[Json]:
        """Objects of a kind."""
        return [
            copied(item) for (name, _), item in sorted(self.objects.items()) if name == kind.name
        ]

    def find(self, kind: ObjectKind, name: str) -> Json | None:
        """An object, or None."""
        return copied(self.objects.get((kind.name, name)))

    def put(self, kind: ObjectKind, body: Json, manager: str) -> Json:
        """Create or replace an object as a controller does, its status included."""
        return self._store(kind, body, manager, status=True)

    def remove(self, kind: ObjectKind, name: str) -> None:
        """Delete an object."""
        if self.objects.pop((kind.name, name), None) is not None:
            self.changes.append(((kind.name, name), None))

    # Requests

    def answer(self, request: Request, *, stale: bool = False) -> tuple[int, Any]:
        """Carry out a request; its code and body. ``stale``: read as before the last change of what is asked for."""
        try:
            return self._answer(request, self._before(request) if stale else self.objects)
        except Refusal as refusal:
            return refusal.code, refusal.status()

    def _answer(self, request: Request, objects: dict[Key, Json]) -> tuple[int, Any]:
        if request.path == "/version":
            return 200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0"}
        if request.kind is None:
            return 404, {"message": "404 page not found"}
        if request.subresource == "log":
            return 200, ""
        if request.method == "GET":
            return 200, self._read(request, objects)
        if request.method == "DELETE":
            return 200, self._delete(request)
        return (201 if request.method == "POST" else 200), self._write(request)

    def _read(self, request: Request, objects: dict[Key, Json]) -> Json:
        kind = request.kind
        assert kind is not None
        if not request.name:
            items = [item for (name, _), item in sorted(objects.items()) if name == kind.name]
            fit = [item for item in items if _selected(item, request.query)]
            return {
                "kind": f"{kind.name}List",
                "apiVersion": kind.api_version,
                "metadata": {},
                "items": fit,
            }
        item = objects.get((kind.name, request.name))
        if item is None:
            raise Refusal(
                404, "NotFound", f'{kind.resource} "{request.name}" not found', request.name
            )
        return item

    def changed(self, request: Request, *, missed: bool) -> bytes:
        """Wait for a change of the object that a watch names; an event's line, empty where none comes. ``missed``: the
        event is lost."""
        name = request.query["fieldSelector"].removeprefix("metadata.name=")
        assert request.kind is not None
        for _ in range(int(request.query["timeoutSeconds"])):
            item = self.objects.get((request.kind.name, name))
            version = item["metadata"]["resourceVersion"] if item else ""
            if version != request.query["resourceVersion"] and not missed:
                return (
                    json.dumps(
                        {"type": "MODIFIED" if item else "DELETED", "object": item or {}}
                    ).encode()
                    + b"\n"
                )
            clock.sleep(1.0)
        return b""

    def _write(self, request: Request) -> Json:
        kind, body = request.kind, copied(request.body)
        assert kind is not None
        name = request.name or body["metadata"]["name"]
        present = self.objects.get((kind.name, name))
        if request.method == "POST" and present is not None:
            raise Refusal(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', name)
        if request.method != "POST" and present is None and not request.apply:
            raise Refusal(404, "NotFound", f'{kind.resource} "{name}" not found', name)
        if present is not None:
            _require_same(kind, present, body.get("metadata") or {})
            if request.method == "PATCH":
                body = merged(copied(present), body)
        if (
            present is not None
            and present.get("data") != body.get("data")
            and kind is kinds.CONTROLLER_REVISION
        ):
            raise Refusal(422, "Invalid", "data is immutable", name)
        status = request.subresource == "status"
        return self._store(kind, body, "mpctl", status=status, dry_run="dryRun" in request.query)

    def _delete(self, request: Request) -> Json:
        kind = request.kind
        assert kind is not None
        present = self.objects.get((kind.name, request.name))
        if present is None:
            raise Refusal(
                404, "NotFound", f'{kind.resource} "{request.name}" not found', request.name
            )
        _require_same(kind, present, request.body.get("preconditions") or {})
        if request.body.get("dryRun"):  # with a body the real server does not look into the query
            return present
        if request.body.get("propagationPolicy") == "Foreground":
            self.mark_deleted(kind, request.name, finalizers=[FOREGROUND])
        else:
            self.remove(kind, request.name)
        return {"kind": "Status", "status": "Success"}

    def mark_deleted(
        self, kind: ObjectKind, name: str, finalizers: list[str] | None = None
    ) -> None:
        """Let an object end: a controller removes it later."""
        item = self.find(kind, name)
        if item is not None and "deletionTimestamp" not in item["metadata"]:
            item["metadata"] |= {"deletionTimestamp": _now(), "finalizers": finalizers or []}
            self.put(kind, item, "garbage-collector")

    def _store(
        self, kind: ObjectKind, body: Json, manager: str, *, status: bool, dry_run: bool = False
    ) -> Json:
        key = kind.name, body["metadata"]["name"]
        present = self.objects.get(key)
        item = copied({"apiVersion": kind.api_version, "kind": kind.name, **body})
        metadata = item["metadata"]
        if kind.namespaced:
            metadata["namespace"] = NAMESPACE
        before = (
            present["metadata"]
            if present
            else {"uid": f"uid-{next(self._numbers)}", "creationTimestamp": _now()}
        )
        metadata |= {key: before[key] for key in ("uid", "creationTimestamp")}
        entries = before.get("managedFields") or []
        # A list that is sent replaces the stored one; an empty one does not, and an empty entry stands for none.
        sent = [entry for entry in metadata.pop("managedFields", None) or entries if entry]
        if present and not status and "status" in present:
            item["status"] = present["status"]
        if kind is kinds.JOB and present is None:
            _label_job(item)
        changed_spec = present is None or present.get("spec") != item.get("spec")
        metadata["generation"] = before.get("generation", 0) + changed_spec
        metadata["resourceVersion"] = before.get("resourceVersion", "")
        if present is not None and _unmanaged(present) == item and sent == entries:
            return copied(present)
        metadata["resourceVersion"] = str(next(self._numbers))
        metadata["managedFields"] = _managed(sent, present or {}, item, manager)
        if not dry_run:
            self.objects[key] = item
            self.changes.append((key, item))
        return copied(item)

    # A stale read

    def _before(self, request: Request) -> dict[Key, Json]:
        """The objects before the last change of what a request asks for."""
        name = request.kind.name if request.kind else ""
        wanted = [
            place for place, (key, _) in enumerate(self.changes) if _asked(key, name, request.name)
        ]
        objects: dict[Key, Json] = {}
        for key, item in self.changes[: wanted[-1]] if wanted else self.changes:
            if item is None:
                objects.pop(key, None)
            else:
                objects[key] = item
        return objects

    def differs_when_stale(self, request: Request) -> bool:
        """Return whether a stale answer is another than the present one."""
        return self.answer(request) != self.answer(request, stale=True)


def _asked(key: Key, kind: str, name: str) -> bool:
    return key[0] == kind and name in ("", key[1])


def _require_same(kind: ObjectKind, present: Json, wanted: Json) -> None:
    for field_name in ("resourceVersion", "uid"):
        if wanted.get(field_name) not in (None, "", present["metadata"][field_name]):
            text = f'Operation cannot be fulfilled on {kind.resource} "{present["metadata"]["name"]}": it was modified'
            raise Refusal(409, "Conflict", text, present["metadata"]["name"])


def _selected(item: Json, query: dict[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    for term in filter(None, query.get("labelSelector", "").split(",")):
        name, equals, value = term.partition("=")
        if name not in labels or (equals and labels[name] != value.removeprefix("=")):
            return False
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = term.partition("=")
        place: Any = item
        for part in path.split("."):
            place = (place or {}).get(part)
        if str(place) != value:
            return False
    return True


def _label_job(job: Json) -> None:
    """Selector and labels as the API server gives them to a new Job."""
    uid, name = job["metadata"]["uid"], job["metadata"]["name"]
    own = {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}
    job["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    named = {"batch.kubernetes.io/job-name": name, "job-name": name}
    job["spec"]["template"]["metadata"]["labels"] |= {**own, **named}


def _unmanaged(item: Json) -> Json:
    return {
        **item,
        "metadata": {
            key: value for key, value in item["metadata"].items() if key != "managedFields"
        },
    }


def _managed(entries: list[Json], before: Json, after: Json, manager: str) -> list[Json]:
    """The entries, with the fields that a manager changed as its own."""
    old, new = _leaves(_unmanaged(before) if before else {}), _leaves(_unmanaged(after))
    changed = [path for path, value in new.items() if old.get(path) != value]
    lost = {*changed, *(path for path in old if path not in new)}
    kept = []
    for entry in entries:
        paths = [path for path in _paths(entry["fieldsV1"]) if path not in lost]
        if entry["manager"] == manager and changed:
            changed = [*paths, *changed]
        elif paths:
            kept.append({**entry, "fieldsV1": _tree(paths)})
    if changed:
        written = {
            "manager": manager,
            "operation": "Update",
            "time": _now(),
            "fieldsType": "FieldsV1",
        }
        kept.append({**written, "fieldsV1": _tree(changed)})
    return kept


_SERVERS_OWN = ("resourceVersion", "uid", "generation", "creationTimestamp", "name", "namespace")


def _leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    if not isinstance(value, dict) or not value:
        return {path: json.dumps(value, sort_keys=True)}
    leaves: dict[tuple[str, ...], str] = {}
    for key, item in value.items():
        if (path == ("metadata",) and key in _SERVERS_OWN) or (
            not path and key in ("kind", "apiVersion")
        ):
            continue
        leaves |= _leaves(item, (*path, key))
    return leaves


def _tree(paths: Any) -> Json:
    tree: Json = {}
    for path in paths:
        place = tree
        for key in path:
            place = place.setdefault(f"f:{key}", {})
    return tree


def _paths(tree: Json, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not tree:
        return [path]
    return [
        found
        for key, item in tree.items()
        for found in _paths(item, (*path, key.removeprefix("f:")))
    ]


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(clock.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
