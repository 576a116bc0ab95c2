"""One service's history in the cluster, apart from the service: implements ``mpctl.rollout.ports.Store``.

Revisions are ControllerRevisions: the API server refuses any later change to their data, which is what a revision
promises, and ``kubectl get controllerrevisions`` lists them. The ledger is lines in ConfigMaps; an entry is added by a
replace with the version that was read, so two writers cannot both append. Records of an operation (prompts, blocks
with every request) are compressed; what is larger than an object may be is cut into pieces named by their content,
which are written before the record that names them. None of these objects has an owner: deleting the service does not
delete its history.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from mpctl import bounded
from mpctl.errors import Conflict, MpctlError
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.failure import AlreadyExists, OutcomeUnknown, Stale
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION, Kind
from mpctl.platform.kubernetes.lease import Lease
from mpctl.rollout.ledger import Entry, read_ledger
from mpctl.rollout.revision import Revision

# An object may have 1 MiB in etcd's default request limit of 1.5 MiB (Kubernetes, ConfigMap documentation).
_LEDGER_PART = 400_000  # bytes from which on the next part begins; an entry is far smaller than the rest
_PIECE = 500_000  # bytes of a record's piece before base64
_TRIES = 4


class KubernetesStore:
    """The history of one service."""

    def __init__(self, client: Client, namespace: str, service: str, who: str) -> None:
        self._client = client
        self._namespace = namespace
        self._service = service
        self.held = Lease(client, namespace, service, who)

    # Revisions

    def revisions(self) -> tuple[Revision, ...]:
        """All revisions, oldest first."""
        found = [Revision.from_record(item["data"]) for item in self._list(CONTROLLER_REVISION, names.REVISION)]
        return tuple(sorted(found, key=lambda r: r.number))

    def add_revision(self, revision: Revision) -> None:
        """Keep a revision; adding the very same again is done already.

        Raises:
            Conflict: another revision has the number.
        """
        name = names.revision_name(self._service, revision.number)
        body = {
            "metadata": self._metadata(name, names.REVISION),
            "revision": revision.number,
            "data": revision.to_record(),
        }
        try:
            self._create(CONTROLLER_REVISION, body)
        except AlreadyExists as error:
            there = self._client.require(CONTROLLER_REVISION, name, self._namespace)
            if Revision.from_record(there["data"]) != revision:
                raise Conflict(
                    f"revision {revision.number} of {self._service} was added by somebody else meanwhile",
                    hint="the same command again goes on from there",
                ) from error

    # Ledger

    def entries(self) -> tuple[Entry, ...]:
        """The ledger; its chain is checked over all parts."""
        return read_ledger("".join(_lines(p) for p in self._parts()), where=f"ledger of {self._service}")

    def append(self, entry: Entry) -> None:
        """Add an entry.

        Raises:
            Conflict: somebody else added one since the ledger was read.
        """
        line = entry.to_line() + "\n"
        for _ in range(_TRIES):
            parts = self._parts()
            ledger = read_ledger("".join(_lines(p) for p in parts), where=f"ledger of {self._service}")
            last = ledger[-1] if ledger else None
            if last == entry:
                return  # an earlier try that was not answered
            if (last.digest if last else "") != entry.previous:
                raise Conflict(
                    f"the ledger of {self._service} was written by {last.who if last else 'somebody'} meanwhile",
                    hint="mpctl status shows who is at work; the same command again goes on from there",
                )
            try:
                self._put_line(parts, line)
                return
            except (Stale, AlreadyExists, OutcomeUnknown):
                continue  # read again: the line is there, or may be tried again, or somebody else was first
        raise MpctlError(
            f"the ledger of {self._service} could not be written in {_TRIES} tries",
            hint="the same command again goes on",
        )

    def _put_line(self, parts: list[Json], line: str) -> None:
        if parts and len(_lines(parts[-1])) < _LEDGER_PART:
            last = parts[-1]
            body = {**last, "data": {"lines": _lines(last) + line}}
            self._client.replace(CONFIG_MAP, body)
            return
        name = names.ledger_name(self._service, len(parts))
        metadata = self._metadata(name, names.LEDGER)
        self._client.create(CONFIG_MAP, {"metadata": metadata, "data": {"lines": line}})

    def _parts(self) -> list[Json]:
        # By name and not by a list: a list may be served from a cache that is behind what was just written.
        parts: list[Json] = []
        while True:
            part = self._client.get(CONFIG_MAP, names.ledger_name(self._service, len(parts)), self._namespace)
            if part is None:
                return parts
            parts.append(part)
            if len(_lines(part)) < _LEDGER_PART:
                return parts

    # Records

    def save(self, operation: str, name: str, record: dict[str, Any]) -> None:
        """Keep a record; replaces one of the same name."""
        packed = gzip.compress(json.dumps(record, sort_keys=True).encode(), mtime=0)
        pieces = [packed[i : i + _PIECE] for i in range(0, len(packed), _PIECE)]
        digests = [hashlib.sha256(piece).hexdigest() for piece in pieces]
        head = {
            "metadata": self._metadata(names.record_name(self._service, operation, name), names.RECORD),
            "data": {"operation": operation, "name": name, "sha256": hashlib.sha256(packed).hexdigest()},
        }
        if len(pieces) == 1:
            head["binaryData"] = {"record": base64.b64encode(packed).decode()}
        else:
            for digest, piece in zip(digests, pieces, strict=True):
                blob = {
                    "metadata": self._metadata(names.blob_name(self._service, digest), names.BLOB),
                    "binaryData": {"piece": base64.b64encode(piece).decode()},
                }
                self._client.apply(CONFIG_MAP, blob, force=True)
            head["data"]["pieces"] = " ".join(digests)
        self._client.apply(CONFIG_MAP, head, force=True)

    def load(self, operation: str, name: str) -> dict[str, Any] | None:
        """A record kept by :meth:`save`, or None.

        Raises:
            MpctlError: a piece is missing or damaged.
        """
        found = self._client.get(CONFIG_MAP, names.record_name(self._service, operation, name), self._namespace)
        if found is None:
            return None
        data = found.get("data") or {}
        packed = base64.b64decode((found.get("binaryData") or {}).get("record", ""))
        for digest in data.get("pieces", "").split():
            piece = self._client.require(CONFIG_MAP, names.blob_name(self._service, digest), self._namespace)
            packed += base64.b64decode(piece["binaryData"]["piece"])
        if hashlib.sha256(packed).hexdigest() != data.get("sha256"):
            raise MpctlError(f"record {name} of {operation} is damaged: it does not have the recorded digest")
        try:
            record = bounded.loads(bounded.gunzip(packed))
        except ValueError as error:
            raise MpctlError(f"record {name} of {operation} is damaged: {error}") from error
        if not isinstance(record, dict):
            raise MpctlError(f"record {name} of {operation} is damaged: not an object")
        return record

    # Lease

    def lease(self, purpose: str) -> AbstractContextManager[None]:
        """Lock the service; a lost lease stops every later write of the client."""
        return self.held.hold(purpose)

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


def _lines(part: Json) -> str:
    return str((part.get("data") or {}).get("lines", ""))
