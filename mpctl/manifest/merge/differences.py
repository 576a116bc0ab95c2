"""The differences of two manifests by field, and the fields that mpctl itself writes.

Lists are compared by the names of their items, so that a change of one item is no change of its neighbours: an item of
``args`` or ``command`` is a flag with its values; other items are named by the key that Kubernetes merges them by. A
list whose items have no name of their own is one value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from mpctl.json_types import Json
from mpctl.manifest.draft_storage import DRAFT_MOUNT, VOLUME
from mpctl.manifest.engine.engine_command import canonical, parse
from mpctl.manifest.speculation.setting import is_speculative

ARGUMENTS = ("args", "command")
_NAMED_BY = ("mountPath", "name", "uri")


class MissingValue:
    """The value of a field that a manifest does not have."""

    def __repr__(self) -> str:
        return "(not set)"


MISSING: Final = MissingValue()
Items = Json


@dataclass(frozen=True)
class FieldChange:
    """A field in which two manifests differ."""

    path: str
    before: Any
    after: Any


def by_name(key: str, values: Sequence[Any]) -> tuple[Items, ...] | None:
    """Each of the lists as its items by name, in order; None where one of them must be compared as a whole.

    ``key``: the field that holds the lists. A missing list has no items.
    """
    lists = [[] if value is MISSING or value is None else value for value in values]
    if not all(isinstance(value, list) for value in lists):
        return None
    if key in ARGUMENTS:
        words = all(isinstance(item, str) for value in lists for item in value)
        return tuple(_arguments(value) for value in lists) if words else None
    for name in _NAMED_BY:
        if all(_are_named(value, name) for value in lists):
            return tuple({str(item[name]): item for item in value} for value in lists)
    return None


def _are_named(value: list[Any], key: str) -> bool:
    names = [item.get(key) for item in value if isinstance(item, dict)]
    return (
        len(names) == len(value) and None not in names and len(set(map(str, names))) == len(names)
    )


def _arguments(words: list[str]) -> Items:
    """Flags by their long names, each with its values; words that belong to no flag by their place."""
    flags, positional = parse(words)
    begins = {flag.index: flag.name for flag in flags} | {
        at: f"word {n}" for n, at in enumerate(positional, 1)
    }
    arguments: Items = {}
    for begin, end in pairwise([*sorted(begins), len(words)]):
        name, count = canonical(begins[begin]) if words[begin].startswith("-") else begins[begin], 1
        unique = name
        while unique in arguments:
            count += 1
            unique = f"{name} ({count})"
        own_words = words[begin:end]
        arguments[unique] = own_words[0] if len(own_words) == 1 else own_words
    return arguments


STORAGE = ("storageUri", "storageUris")
STAGED = ("volumes", "volumeMounts")


def is_own_item(key: str, values: tuple[Any, ...]) -> bool:
    """Return whether an item of list ``key`` is of the speculative setting, or a staged draft's volume or mount."""
    if key in ARGUMENTS:
        lists = (value if isinstance(value, list) else [value] for value in values)
        words = [word for listed in lists for word in listed if word is not MISSING]
        return any(is_speculative(flag) for flag in parse(words)[0])
    return key in STAGED and any(map(is_staged, values))


def is_staged(item: Any) -> bool:
    """Return whether an item of a list of volumes or mounts is a staged draft's."""
    return isinstance(item, dict) and item.get("name") == VOLUME


def meaning(value: Any) -> Any:
    """An item whatever its spelling: ``--flag=value`` and ``--flag value``, and JSON with any spaces, are the same."""
    if not isinstance(value, (str, list)):
        return value
    flag, equals, text = (
        value.partition("=") if isinstance(value, str) else (value[0], "=", " ".join(value[1:]))
    )
    try:
        return canonical(flag), json.loads(text)
    except ValueError:
        return canonical(flag), equals + text


def storage_of(document: Any, path: str = "") -> Json:
    """Every ``storageUri`` and ``storageUris`` by its path: a staged draft turns one into the other."""
    storage: Json = {}
    if isinstance(document, dict):
        for key, value in document.items():
            below = joined(path, key)
            storage |= {below: value} if key in STORAGE else storage_of(value, below)
    elif isinstance(document, list):
        for index, value in enumerate(document):
            storage |= storage_of(value, f"{path}[{index}]")
    return storage


def holds_draft(storage: Json) -> bool:
    """Return whether an artifact is mounted where mpctl mounts drafts."""
    lists = [value for value in storage.values() if isinstance(value, list)]
    return any(
        isinstance(entry, dict) and entry.get("mountPath") == DRAFT_MOUNT
        for value in lists
        for entry in value
    )


def storage_changes(before: Any, after: Any, *, own: bool) -> Iterator[FieldChange]:
    """Artifacts that differ. They are mpctl's own where either side has a staged draft."""
    stored_before, stored_after = storage_of(before), storage_of(after)
    if stored_before != stored_after and own is (
        holds_draft(stored_before) or holds_draft(stored_after)
    ):
        for path in sorted({*stored_before, *stored_after}):
            values = stored_before.get(path, MISSING), stored_after.get(path, MISSING)
            if values[0] != values[1]:
                yield FieldChange(path, *values)


def differences(
    before: Any, after: Any, *, own: bool, path: str = "", key: str = ""
) -> Iterator[FieldChange]:
    """Fields that differ, artifacts aside: those that mpctl writes with ``own``, the others without."""
    if before == after and type(before) is type(after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after}, key=str):
            values = before.get(name, MISSING), after.get(name, MISSING)
            if name not in STORAGE:
                yield from differences(*values, own=own, path=joined(path, name), key=str(name))
        return
    items = by_name(key, (before, after)) if list in (type(before), type(after)) else None
    if items is None:
        if not own:
            yield FieldChange(path or "the whole manifest", before, after)
        return
    has_own = any(is_own_item(key, (value,)) for item in items for value in item.values())
    if key not in ARGUMENTS and MISSING in (before, after) and not has_own and not own:
        yield FieldChange(path, before, after)
        return
    for name in dict.fromkeys([*items[0], *items[1]]):
        values = items[0].get(name, MISSING), items[1].get(name, MISSING)
        below = f"{path} {name}" if key in ARGUMENTS else f"{path}[{name}]"
        if is_own_item(key, values):
            if own and meaning(values[0]) != meaning(values[1]):
                yield FieldChange(below, *values)
        elif all(isinstance(value, dict) for value in values):
            yield from differences(*values, own=own, path=below)
        elif values[0] != values[1] and not own:
            yield FieldChange(below, *values)


def joined(path: str, name: object) -> str:
    """The path of a field below another."""
    return f"{path}.{name}" if path else str(name)
