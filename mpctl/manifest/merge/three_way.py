"""Restore what mpctl changed in a manifest and keep what another writer changed elsewhere.

The live manifest is the start. Each field that mpctl writes (the speculative setting, a staged draft) gets its value of
the manifest to restore; every other field stays as it is live. A field of mpctl's own is replaced only where its live
value is one that mpctl recorded: what nobody recorded would be lost, and is a conflict.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any

from mpctl.errors import InputError, MpctlError
from mpctl.manifest.documents import load
from mpctl.manifest.kinds.inference_service import MOUNT
from mpctl.manifest.merge.differences import (
    ARGUMENTS,
    MISSING,
    STORAGE,
    by_name,
    differences,
    holds_draft,
    is_own_item,
    is_script,
    item_path,
    joined,
    listed,
    meaning,
    ordered,
    storage_changes,
    storage_of,
)
from mpctl.manifest.merge.foreign_changes import documents_of, foreign_changes
from mpctl.manifest.text.yaml_tree import dump


@dataclass(frozen=True)
class Clash:
    """A field to restore that another writer changed. ``recorded``: as mpctl left it; ``live``: as it is now."""

    path: str
    recorded: Any
    live: Any


class ClashError(MpctlError):
    """The fields that are to be restored were changed by another writer."""

    def __init__(self, clashes: Sequence[Clash]) -> None:
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
    bases = list(dict.fromkeys([written, *reversed(recorded)]))
    clashes: list[Clash] = []
    for base in bases:
        attempt = _Merge(bases)
        text = attempt.text(target, live, base)
        if attempt.clashes:
            clashes = clashes or attempt.clashes
        elif _is_right(text, target, live):
            return MergeResult(text, kept_fields(target, text))
    raise ClashError(clashes or [Clash("the speculative setting", "as mpctl left it", "as it is live")])


def kept_fields(recorded: str, live: str) -> tuple[str, ...]:
    """Paths of the fields in which a live manifest differs from a recorded one beyond what mpctl writes."""
    return _paths(recorded, live, own=False)


def own_changes(recorded: str, live: str) -> tuple[str, ...]:
    """Paths of the fields of mpctl's own in which two manifests differ."""
    changed = _paths(recorded, live, own=True)
    return changed or (() if _same_speculation(recorded, live) else ("the speculative setting",))


def _paths(before: str, after: str, *, own: bool) -> tuple[str, ...]:
    documents_before, documents_after = documents_of(before), documents_of(after)
    if len(documents_before) != len(documents_after):
        return () if own else ("the number of documents",)
    paths: list[str] = []
    for document, other in zip(documents_before, documents_after, strict=True):
        paths += [*differences(document, other, own=own), *storage_changes(document, other, own=own)]
    return tuple(dict.fromkeys(paths))


def _is_right(text: str, target: str, live: str) -> bool:
    """Return whether a merged text has the speculation to restore, and everything else from the live one."""
    return not foreign_changes(live, text) and _same_speculation(text, target)


def _same_speculation(first: str, second: str) -> bool:
    try:
        (service,), (other,) = load(first), load(second)
        return service.speculation() == other.speculation()
    except (InputError, ValueError):
        return False


@dataclass
class _Merge:
    """An attempt; ``base`` of each call is what changes inside a shell script are told from."""

    recorded: Sequence[str]
    clashes: list[Clash] = field(default_factory=list)
    _storage: dict[str, Any] = field(default_factory=dict)

    def text(self, target: str, live: str, base: str) -> str:
        """The merged text, in the form of the live one."""
        to, now, base_documents = documents_of(target), documents_of(live), documents_of(base)
        if not len(to) == len(now) == len(base_documents):
            self.clashes.append(Clash("the number of documents", len(base_documents), len(now)))
            return live
        recorded_files = [documents for documents in map(documents_of, self.recorded) if len(documents) == len(now)]
        merged = []
        for number, document in enumerate(now):
            recorded = [documents[number] for documents in recorded_files]
            self._storage = self._merged_storage(to[number], document, base_documents[number], recorded)
            merged.append(self._value(to[number], document, base_documents[number], recorded, "", ""))
        return _written(merged, live, target, base)

    def _merged_storage(self, to: Any, now: Any, base: Any, recorded: list[Any]) -> dict[str, Any]:
        """Every artifact by its path: those to restore where the live ones are mpctl's, else the live ones."""
        wanted, live = storage_of(to), storage_of(now)
        recorded_storages = [storage_of(document) for document in recorded]
        if live == storage_of(base) or (holds_draft(live) and live in recorded_storages):
            return wanted
        if live != wanted and (holds_draft(live) or holds_draft(wanted)):
            was = storage_of(base)
            for path in sorted({*live, *wanted}):
                if live.get(path, MISSING) != was.get(path, MISSING):
                    self.clashes.append(Clash(path, was.get(path, MISSING), live.get(path, MISSING)))
        return live

    def _value(self, to: Any, now: Any, base: Any, recorded: list[Any], path: str, key: str) -> Any:
        if to == now and type(to) is type(now):
            return now
        if isinstance(now, dict):
            return self._mapping(to, now, base, recorded, path)
        if isinstance(now, list) or (now is MISSING and isinstance(to, list)):
            return self._list(to, now, base, recorded, path, key)
        return now

    def _mapping(self, to: Any, now: dict[str, Any], base: Any, recorded: list[Any], path: str) -> dict[str, Any]:
        to, base = (value if isinstance(value, dict) else {} for value in (to, base))
        mappings = [value if isinstance(value, dict) else {} for value in recorded]
        result: dict[str, Any] = {}
        for name in dict.fromkeys([*now, *to]):
            below = joined(path, name)
            if name in STORAGE:
                value = self._storage.get(below, MISSING)
            else:
                among = [of.get(name, MISSING) for of in mappings]
                values = to.get(name, MISSING), now.get(name, MISSING), base.get(name, MISSING)
                value = self._value(*values, among, below, str(name))
            if value is not MISSING:
                result[name] = value
        return result

    def _list(self, to: Any, now: Any, base: Any, recorded: list[Any], path: str, key: str) -> Any:
        lists = by_name(key, (to, now, base))
        if lists is None:
            return now
        recorded_items = [items[0] for value in recorded if (items := by_name(key, (value,))) is not None]
        wanted, live, was = lists
        chosen = {}
        for name in dict.fromkeys([*live, *wanted]):
            values = tuple(items.get(name, MISSING) for items in (wanted, live, was))
            among = [items.get(name, MISSING) for items in recorded_items]
            value = self._item(values, among, item_path(path, key, name), key, name)
            if value is not MISSING:
                chosen[name] = value
        if not chosen and MISSING in (to, now):
            return MISSING
        return listed(key, ordered(chosen, list(live), list(wanted)))

    def _item(self, values: tuple[Any, Any, Any], recorded: list[Any], path: str, key: str, name: str) -> Any:
        to, now, base = values
        if to == now:
            return now
        if is_own_item(key, name, values):
            meant = meaning(now)
            if meant == meaning(to):
                return now
            if meant not in map(meaning, recorded):
                self.clashes.append(Clash(path, base, now))
            return to
        if key in ARGUMENTS:
            return _script(to, now, base)
        return self._value(to, now, base, recorded, path, "") if isinstance(now, dict) else now


def _script(to: Any, now: Any, base: Any) -> Any:
    """A shell script with the change from ``base`` to ``to``; anything else as it is live."""
    if isinstance(to, list) and isinstance(now, list) and isinstance(base, list) and len(to) == len(now) == len(base):
        return [_script(a, b, c) for a, b, c in zip(to, now, base, strict=True)]
    if not all(map(is_script, (to, now, base))):
        return now
    merged = merge_words(base, to, now)
    return now if merged is None else merged  # without the change the merged text is not what it should be


def _written(documents: list[Any], live: str, target: str, base: str) -> str:
    """The text of the merged documents: bytes of the live manifest where they can stay."""
    for text in (live, target):
        if documents_of(text) == documents:
            return text
    if len(documents) == 1 and isinstance(documents[0], dict):
        canonical = dump(documents[0])
        if dump(documents_of(live)[0]) == live:
            return canonical
        lines = merge_lines(base, target, live)
        if lines is not None and documents_of(lines) == documents:
            return lines
        return canonical
    lines = merge_lines(base, target, live)
    if lines is not None and documents_of(lines) == documents:
        return lines
    return "---\n".join(dump(document) for document in documents)


_Edit = tuple[int, int, list[str]]


def merge_lines(base: str, mine: str, theirs: str) -> str | None:
    """Both changes of ``base``; None where they overlap."""
    merged = _merged(*(text.splitlines(keepends=True) for text in (base, mine, theirs)))
    return None if merged is None else "".join(merged)


def merge_words(base: str, mine: str, theirs: str) -> str | None:
    """Both changes of a shell script, word by word; None where they overlap."""
    merged = _merged(*(re.findall(r"\s+|\S+", text) for text in (base, mine, theirs)))
    return None if merged is None else "".join(merged)


def _merged(base: list[str], mine: list[str], theirs: list[str]) -> list[str] | None:
    edits = sorted([*_edits(base, mine), *_edits(base, theirs)], key=lambda edit: edit[:2])
    result: list[str] = []
    position, last = 0, None
    for edit in edits:
        start, end, words = edit
        if edit == last:
            continue  # both made the same change
        if last is not None and (start < last[1] or (start == last[0] and start == last[1])):
            return None
        result += [*base[position:start], *words]
        position, last = end, edit
    return [*result, *base[position:]]


def _edits(base: Sequence[str], changed: Sequence[str]) -> list[_Edit]:
    matcher = SequenceMatcher(None, base, changed, autojunk=False)
    return [(i, j, list(changed[k:n])) for tag, i, j, k, n in matcher.get_opcodes() if tag != "equal"]


def with_recorded_storage(document: dict[str, Any], recorded: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """``document`` with its artifacts written as in the newest of ``recorded``, oldest first, that has no draft.

    Staging a draft turns ``storageUri`` into ``storageUris``; only a recorded manifest knows that it did. The document
    itself is returned where the recorded one loads other artifacts.
    """
    wanted = next(
        (storage for earlier in reversed([*recorded]) if not holds_draft(storage := storage_of(earlier))), None
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


def _place(document: dict[str, Any], path: str) -> tuple[Any, str]:
    """The mapping that holds a key, None without one, and the key."""
    *above, key = path.split(".")
    here: Any = document
    for name in above:
        here = here.get(name) if isinstance(here, dict) else None
    return here, key


def _artifacts(storage: dict[str, Any]) -> list[Any]:
    """The mounted artifacts with their paths, from either field."""
    artifacts: list[Any] = []
    for value in storage.values():
        artifacts += value if isinstance(value, list) else [{"uri": value, "mountPath": MOUNT}]
    return artifacts
