"""Restore what mpctl changed in a manifest and keep what another writer changed elsewhere.

The live manifest gets the speculative setting and the draft's staging of the manifest to restore, by the editor that
changes no other byte. Both are replaced only where the live manifest has them as in one that mpctl recorded: what
nobody recorded would be lost, and is a conflict.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mpctl.errors import InputError, MpctlError
from mpctl.json_fields import list_at
from mpctl.json_types import Json
from mpctl.manifest.documents import load
from mpctl.manifest.kinds.inference_service import MOUNT
from mpctl.manifest.merge.differences import (
    MISSING,
    STAGED,
    STORAGE,
    FieldChange,
    differences,
    holds_draft,
    is_staged,
    storage_changes,
    storage_of,
)
from mpctl.manifest.merge.foreign_changes import documents_of, foreign_changes
from mpctl.manifest.text.yaml_tree import dump


class ClashError(MpctlError):
    """The fields that are to be restored were changed by another writer."""

    def __init__(self, clashes: Sequence[FieldChange]) -> None:
        self.clashes = tuple(clashes)
        super().__init__(f"{', '.join(c.path for c in clashes)} changed")


@dataclass(frozen=True)
class MergeResult:
    """``text``: the manifest to write; ``preserved``: paths of fields that differ from the manifest to restore, because
    another writer changed them."""

    text: str
    preserved: tuple[str, ...]


def merge(target: str, live: str, written: str, recorded: Sequence[str]) -> MergeResult:
    """``live`` with mpctl's own fields as in ``target``.

    ``written``: the manifest as mpctl last wrote it; ``recorded``: every manifest that mpctl recorded.

    Raises:
        ClashError: a field to restore has a value that mpctl did not record.
    """
    if live in (written, target) and not foreign_changes(live, target):
        return MergeResult(target, ())
    changed = [_changes(base, live, own=True) for base in (written, *recorded)]
    if all(changed):
        raise ClashError(changed[0])
    try:
        (wanted,), (service,) = load(target), load(live)
        text = _with_staging_of(target, service.with_speculation(wanted.speculation()).to_yaml())
    except (InputError, ValueError):  # not one service, or a setting that cannot be edited
        text = live
    if foreign_changes(live, text) or not _same_speculation(text, target):
        raise ClashError(
            [FieldChange("the speculative setting", "as mpctl left it", "as it is live")]
        )
    return MergeResult(text, kept_fields(target, text))


def kept_fields(recorded: str, live: str) -> tuple[str, ...]:
    """Paths of the fields in which a live manifest differs from a recorded one beyond what mpctl writes."""
    return _paths(_changes(recorded, live, own=False))


def own_changes(recorded: str, live: str) -> tuple[str, ...]:
    """Paths of the fields of mpctl's own in which two manifests differ."""
    return _paths(_changes(recorded, live, own=True))


def _paths(changes: Iterable[FieldChange]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(change.path for change in changes))


def _changes(before: str, after: str, *, own: bool) -> list[FieldChange]:
    documents_before, documents_after = documents_of(before), documents_of(after)
    if len(documents_before) != len(documents_after):
        return [FieldChange("the number of documents", len(documents_before), len(documents_after))]
    changes: list[FieldChange] = []
    for document, other in zip(documents_before, documents_after, strict=True):
        changes += [
            *differences(document, other, own=own),
            *storage_changes(document, other, own=own),
        ]
    if own and not changes and not _same_speculation(before, after):
        return [FieldChange("the speculative setting", "as mpctl left it", "as it is live")]
    return changes


def _same_speculation(first: str, second: str) -> bool:
    try:
        (service,), (other,) = load(first), load(second)
        return service.speculation() == other.speculation()
    except (InputError, ValueError):
        return False


def _with_staging_of(target: str, text: str) -> str:
    """Return the manifest with the draft's artifacts, volume and mounts of another."""
    documents, wanted = documents_of(text), documents_of(target)
    if len(documents) != len(wanted):
        return text
    staged = []
    for document, to in zip(documents, wanted, strict=True):
        own_storage = holds_draft(storage_of(document)) or holds_draft(storage_of(to))
        staged.append(_with_staging(document, to, STORAGE if own_storage else ()))
    return text if staged == documents else "---\n".join(dump(document) for document in staged)


def _with_staging(value: Any, to: Any, storage: tuple[str, ...]) -> Any:
    if isinstance(value, list):
        others = [item for item in to if isinstance(item, dict)] if isinstance(to, list) else []
        named = {item.get("name"): item for item in others}
        return [
            _with_staging(item, named.get(item.get("name")), storage)
            if isinstance(item, dict)
            else item
            for item in value
        ]
    if not isinstance(value, dict):
        return value
    wanted = to if isinstance(to, dict) else {}
    result: Json = {}
    for key in dict.fromkeys([*value, *(key for key in wanted if key in (*storage, *STAGED))]):
        if key in storage:
            result[key] = wanted.get(key, MISSING)
        elif key in STAGED and any(map(is_staged, [*list_at(value, key), *list_at(wanted, key)])):
            others = [item for item in list_at(value, key) if not is_staged(item)]
            items = [*others, *(item for item in list_at(wanted, key) if is_staged(item))]
            result[key] = items or (MISSING if key not in value or key not in wanted else [])
        elif key in value:
            result[key] = _with_staging(value[key], wanted.get(key), storage)
    return {key: inner for key, inner in result.items() if inner is not MISSING}


def with_recorded_storage(document: Json, recorded: Iterable[Json]) -> Json:
    """``document`` with its artifacts written as in the newest of ``recorded``, oldest first, that has no draft.

    Staging a draft turns ``storageUri`` into ``storageUris``; only a recorded manifest knows that it did. The document
    itself is returned where the recorded one loads other artifacts.
    """
    wanted = next(
        (
            storage
            for earlier in reversed([*recorded])
            if not holds_draft(storage := storage_of(earlier))
        ),
        None,
    )
    present = storage_of(document)
    if wanted is None or wanted == present or _artifacts(wanted) != _artifacts(present):
        return document
    restored = copy.deepcopy(document)
    for path in present:
        holder, key = _place(restored, path)
        del holder[key]
    for path, value in wanted.items():
        holder, key = _place(restored, path)
        if not isinstance(holder, dict):
            return document  # the recorded manifest has another structure
        holder[key] = value
    return restored


def _place(document: Json, path: str) -> tuple[Any, str]:
    """The mapping that holds a key, None without one, and the key."""
    *above, key = path.split(".")
    here: Any = document
    for name in above:
        here = here.get(name) if isinstance(here, dict) else None
    return here, key


def _artifacts(storage: Json) -> list[Any]:
    """The mounted artifacts with their paths, from either field."""
    artifacts: list[Any] = []
    for value in storage.values():
        artifacts += value if isinstance(value, list) else [{"uri": value, "mountPath": MOUNT}]
    return artifacts
