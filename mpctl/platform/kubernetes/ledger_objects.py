"""The history of a service as ControllerRevisions: which objects are its own, and what an object of the ledger holds.

Objects are created once and never changed, so that two writers cannot both have a name. They are a service's own by
their exact name, and by a controller that no server knows: a StatefulSet or DaemonSet whose selector matches adopts,
and then deletes, ControllerRevisions without a controller. The garbage collector leaves an object alone whose owner's
kind it cannot look up, also in another namespace or cluster to which it was restored.

An object holds what was appended at once: entries, the revisions that they name, and seals of records. Large ones are
compressed. ``mpctl prune`` folds many into one, which stands for every object whose entries it holds.
"""

from __future__ import annotations

import base64
import gzip
import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mpctl import bounded
from mpctl.errors import MpctlError, Tampered
from mpctl.json_fields import mapping_at, name_of, owners_of
from mpctl.json_types import Json
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import CONTROLLER_REVISION
from mpctl.platform.kubernetes.api.objects import last_writer
from mpctl.platform.kubernetes.api.replies import AlreadyExists, OutcomeUnknown, Stale
from mpctl.rollout.ledger import Entry

# A controller that is none: no StatefulSet or DaemonSet adopts what has one.
_OWNER = {"apiVersion": "mpctl.dev/v1", "kind": "Ledger"}
_TRIES = 4


def create_once(client: Client, metadata: Json, number: int, data: Json) -> Json | None:
    """Create a ControllerRevision, or return the existing one of the same name, which an unanswered try may have
    created.


    Raises:
        OutcomeUnknown: no try was answered.
        Stale: quota is counted optimistically, and was contended in every try.
    """
    name, namespace = metadata["name"], metadata["namespace"]
    body = {"metadata": metadata, "revision": number, "data": data}
    for remaining_tries in reversed(range(_TRIES)):
        try:
            client.create(CONTROLLER_REVISION, body)
            return None
        except AlreadyExists:
            return client.require(CONTROLLER_REVISION, name, namespace)
        except OutcomeUnknown:
            existing = client.get(CONTROLLER_REVISION, name, namespace)
            if existing is not None or not remaining_tries:
                if existing is None:
                    raise
                return existing
        except Stale:
            if not remaining_tries:
                raise
    return None


def metadata_of(namespace: str, service: str, name: str, part: str) -> Json:
    """Metadata of a ControllerRevision of a service's history."""
    uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{_OWNER['apiVersion']}/{namespace}/{service}"))
    owner = {**_OWNER, "name": service, "uid": uid, "controller": True}
    labels = names.labels(service, part)
    return {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": [owner]}


def owned_by(item: Json, service: str) -> bool:
    """Return whether a ControllerRevision is of a service's history. Until 0.9 they had no controller, as has one that
    its StatefulSet or DaemonSet left behind, whose ``data`` is a template."""
    metadata = item["metadata"]
    labels = mapping_at(metadata, "labels")
    if labels.get(names.SERVICE_LABEL) != names.label_of(service):
        return False
    if names.part_in(metadata["name"], service) != labels.get(names.PART_LABEL):
        return False
    controller = _controller(item)
    if controller is None:
        return mapping_at(item, "data").keys() != {"spec"}
    return all(controller.get(key) == value for key, value in _OWNER.items())


def look_alike(item: Json) -> str:
    """Describe a ControllerRevision that has mpctl's labels and is none of its own."""
    controller, metadata = _controller(item), item["metadata"]
    owner = (
        f"{controller.get('kind')} {controller.get('name')}" if controller else "an unknown owner"
    )
    return (
        f"ControllerRevision {metadata.get('namespace', '')}/{metadata['name']} of {owner} has mpctl's labels and is "
        f"none of its own; it is ignored{last_writer(item)}"
    )


def _controller(item: Json) -> Json | None:
    owners = owners_of(item)
    return next((owner for owner in owners if owner.get("controller")), None)


NEWEST = "mpctl.dev/newest-entry"  # annotation of the Lease
ENTRIES = 1000  # of one object: about 100 kB compressed, and an object may have 1.5 MB
_SEVERAL, _BESIDE, _TEXT, _PACKED = "entries", ("revisions", "seals"), "text", "packed"
_PLAIN = 50_000  # bytes of an object's data that is not compressed


@dataclass(frozen=True)
class NewestEntry:
    """The newest entry of a ledger as its Lease names it. ``source``: the Lease and its last writer, for messages."""

    seq: int
    digest: str
    source: str = ""


def newest_entry_of(lease: Json | None) -> NewestEntry | None:
    """Return the entry that a Lease names; None where it names none that could be one."""
    metadata = mapping_at(lease, "metadata")
    number, _, digest = str(mapping_at(metadata, "annotations").get(NEWEST, "")).partition(" ")
    if not number.isascii() or not number.isdecimal() or len(number) > 9:
        return None
    writer = last_writer(lease or {}, "metadata", "annotations", NEWEST)
    source = f"Lease {metadata.get('namespace', '')}/{metadata.get('name', '')}{writer}"
    return NewestEntry(int(number), digest, source)


def naming(newest: NewestEntry | None) -> dict[str, str]:
    """The annotation that names an entry."""
    return {NEWEST: f"{newest.seq} {newest.digest}"} if newest is not None else {}


@dataclass(frozen=True)
class Appended:
    """The content of an object of the ledger, as records."""

    entries: tuple[Any, ...]
    revisions: tuple[Json, ...] = ()
    seals: tuple[Json, ...] = ()

    @classmethod
    def of(cls, item: Json) -> Appended:
        """Read an object; what may not be an entry is left to its reader.

        Raises:
            ValueError: it is compressed, and cannot be read.
        """
        data = item.get("data")
        if isinstance(data, dict) and isinstance(data.get(_PACKED), str):
            data = bounded.loads(bounded.gunzip(base64.b64decode(data[_PACKED])))
        elif isinstance(data, dict) and isinstance(data.get(_TEXT), str):
            data = bounded.loads(data[_TEXT])
        several = data.get(_SEVERAL) if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(several, list) or not several:
            return cls((data,))
        revisions, seals = (
            [each for each in data.get(key) or () if isinstance(each, dict)] for key in _BESIDE
        )
        return cls(tuple(several), tuple(revisions), tuple(seals))

    def data(self) -> Json:
        """The data of the object that holds this: JSON as a text, since a restore by kubectl writes 1.0 as 1, which has
        another digest; compressed where it is large."""
        if len(self.entries) == 1 and not self.revisions and not self.seals:
            data: Json = self.entries[0]
        else:
            beside = {
                key: list(each)
                for key, each in zip(_BESIDE, (self.revisions, self.seals), strict=True)
                if each
            }
            data = {_SEVERAL: list(self.entries), **beside}
        text = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
        if len(text) <= _PLAIN:
            return {_TEXT: text.decode()}
        return {_PACKED: base64.b64encode(gzip.compress(text, mtime=0)).decode()}

    @property
    def first(self) -> int:
        """The number of the first entry; 0 where it says none."""
        return self._number(0)

    @property
    def last(self) -> int:
        """The number of the last entry; 0 where it says none."""
        return self._number(-1)

    def _number(self, index: int) -> int:
        entry = self.entries[index] if self.entries else None
        number = entry.get("seq") if isinstance(entry, dict) else None
        return number if isinstance(number, int) else 0


@dataclass(frozen=True)
class LedgerObject:
    """An object of the ledger that counts: ``item`` as the server has it."""

    item: Json
    appended: Appended

    @property
    def where(self) -> str:
        """For messages."""
        metadata = self.item["metadata"]
        return f"ControllerRevision {metadata.get('namespace', '')}/{metadata['name']}"

    @property
    def is_folded(self) -> bool:
        """Return whether it stands for others."""
        name = name_of(self.item)
        return name == names.folded_name(
            names.service_of_ledger(name), self.appended.first, self.appended.last
        )


def ledger_of(items: Iterable[Json]) -> tuple[LedgerObject, ...]:
    """The objects of a ledger, oldest first, without those that a folded one stands for.

    Raises:
        MpctlError: an object cannot be read.
    """
    objects = []
    for item in items:
        try:
            objects.append(LedgerObject(item, Appended.of(item)))
        except (ValueError, RecursionError) as error:
            raise MpctlError(
                f"{LedgerObject(item, Appended(())).where}: not a ledger entry ({error})",
                hint="nothing was changed",
            ) from error
    objects.sort(key=lambda each: (int(each.item.get("revision") or 0), -each.appended.last))
    counting, folded = [], 0
    for each in objects:
        if not 0 < each.appended.last <= folded:
            counting.append(each)
            folded = each.appended.last if each.is_folded else folded
    return tuple(counting)


def entries_of(objects: Iterable[LedgerObject], service: str) -> tuple[Entry, ...]:
    """The entries of a ledger, oldest first.

    Raises:
        MpctlError: an object holds no entry.
        Tampered: an entry is missing or forged; the message names its object and its last writer.
    """
    entries: list[Entry] = []
    for each in objects:
        name, where = name_of(each.item), each.where
        try:
            appended = [Entry.from_record(record) for record in each.appended.entries]
        except (ValueError, RecursionError) as error:
            raise MpctlError(
                f"{where}: not a ledger entry ({error})", hint="nothing was changed"
            ) from error
        named = name in (
            names.ledger_name(service, appended[0].seq),
            names.folded_name(service, appended[0].seq, appended[-1].seq),
        )
        for entry in appended:
            if not named or not entry.follows(entries[-1] if entries else None):
                before = f"entry {len(entries) + 1} of the ledger of {service} is missing or forged"
                raise Tampered(f"{where} does not follow: {before}{last_writer(each.item)}")
            entries.append(entry)
    return tuple(entries)


def seals_of(objects: Iterable[LedgerObject]) -> list[Json]:
    """The seals that were appended with entries, as objects of their own would have them."""
    return [
        {"metadata": each.item["metadata"], "revision": seal.get("number"), "data": seal}
        for each in objects
        for seal in each.appended.seals
    ]


def missing_after(entries: Sequence[Entry], newest: NewestEntry | None) -> str:
    """Describe the entries that were removed from the end of a ledger; empty if none was removed."""
    if newest is None or newest.seq == 0:
        return ""
    if len(entries) < newest.seq:
        lost = f"the ledger ends with entry {len(entries)}" if entries else "the ledger is empty"
        return f"{lost}, entry {newest.seq} is named by {newest.source}"
    if entries[newest.seq - 1].digest != newest.digest:
        return f"entry {newest.seq} of the ledger is not the one named by {newest.source}"
    return ""
