"""Fields of a manifest that mpctl itself writes, and the differences of two manifests by field."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mpctl.manifest.draft_storage import DRAFT_MOUNT, VOLUME
from mpctl.manifest.engine.command import canonical, parse
from mpctl.manifest.merge.items import ARGUMENTS, MISSING, by_name
from mpctl.manifest.speculation.setting import is_speculative

STORAGE = ("storageUri", "storageUris")
_STAGED = ("volumes", "volumeMounts")


def is_own_item(key: str, name: str, values: tuple[Any, ...]) -> bool:
    """Return whether an item of list ``key`` is of the speculative setting, or a staged draft's volume or mount."""
    if key in ARGUMENTS:
        words = [word for value in values if value is not MISSING for word in _words(value)]
        return any(is_speculative(flag) for flag in parse(words)[0])
    return key in _STAGED and any(isinstance(value, dict) and value.get("name") == VOLUME for value in values)


def meaning(value: Any) -> Any:
    """An item whatever its spelling: ``--flag=value`` and ``--flag value``, and JSON with any spaces, are the same."""
    if not isinstance(value, (str, list)):
        return value
    flag, equals, text = value.partition("=") if isinstance(value, str) else (value[0], "=", " ".join(value[1:]))
    try:
        return canonical(flag), json.loads(text)
    except ValueError:
        return canonical(flag), equals + text


def storage_of(document: Any, path: str = "") -> dict[str, Any]:
    """Every ``storageUri`` and ``storageUris`` by its path: a staged draft turns one into the other."""
    storage: dict[str, Any] = {}
    if isinstance(document, dict):
        for key, value in document.items():
            below = joined(path, key)
            storage |= {below: value} if key in STORAGE else storage_of(value, below)
    elif isinstance(document, list):
        for at, value in enumerate(document):
            storage |= storage_of(value, f"{path}[{at}]")
    return storage


def holds_draft(storage: dict[str, Any]) -> bool:
    """Return whether an artifact is mounted where mpctl mounts drafts."""
    lists = [value for value in storage.values() if isinstance(value, list)]
    return any(isinstance(entry, dict) and entry.get("mountPath") == DRAFT_MOUNT for value in lists for entry in value)


def storage_changes(before: Any, after: Any, *, own: bool) -> Iterator[str]:
    """Paths of the artifacts that differ. They are mpctl's own where either side has a staged draft."""
    stored_before, stored_after = storage_of(before), storage_of(after)
    if stored_before != stored_after and own is (holds_draft(stored_before) or holds_draft(stored_after)):
        yield from (
            path
            for path in sorted({*stored_before, *stored_after})
            if stored_before.get(path) != stored_after.get(path)
        )


def differences(before: Any, after: Any, *, own: bool, path: str = "", key: str = "") -> Iterator[str]:
    """Paths of the fields that differ, artifacts aside: those that mpctl writes with ``own``, the others without."""
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
        yield from () if own else (path or "the whole manifest",)
        return
    if key not in ARGUMENTS and MISSING in (before, after) and not any(_own_names(key, items)) and not own:
        yield path
        return
    for name in dict.fromkeys([*items[0], *items[1]]):
        values = items[0].get(name, MISSING), items[1].get(name, MISSING)
        below = item_path(path, key, name)
        if is_own_item(key, name, values):
            yield from [below] if own and meaning(values[0]) != meaning(values[1]) else []
        elif all(isinstance(value, dict) for value in values):
            yield from differences(*values, own=own, path=below)
        elif values[0] != values[1] and not own:
            yield below


def joined(path: str, name: object) -> str:
    """The path of a field below another."""
    return f"{path}.{name}" if path else str(name)


def item_path(path: str, key: str, name: str) -> str:
    """The path of a list's item: an argument by its flag, others by their name."""
    return f"{path} {name}" if key in ARGUMENTS else f"{path}[{name}]"


def _own_names(key: str, items: tuple[dict[str, Any], ...]) -> Iterator[bool]:
    for named_items in items:
        for name, value in named_items.items():
            yield is_own_item(key, name, (value,))


def _words(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]
