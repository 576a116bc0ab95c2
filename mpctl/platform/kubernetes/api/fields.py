"""Comparison of two objects field by field. Pure."""

from __future__ import annotations

from typing import Any


def changed_fields(before: Any, after: Any, path: str = "") -> tuple[str, ...]:
    """Dotted paths of the smallest fields that differ; a list is one field unless its items have names."""
    if isinstance(before, dict) and isinstance(after, dict):
        changed: list[str] = []
        for key in sorted({*before, *after}):
            if before.get(key) != after.get(key):
                changed += changed_fields(before.get(key), after.get(key), f"{path}.{key}" if path else key)
        return tuple(changed)
    named = _by_name(before), _by_name(after)
    if named[0] is not None and named[1] is not None and before != after:
        changed = []
        for key in sorted({*named[0], *named[1]}):
            if named[0].get(key) != named[1].get(key):
                changed += changed_fields(named[0].get(key), named[1].get(key), f"{path}[{key}]")
        return tuple(changed)
    return () if before == after else (path,)


def added_fields(recorded: Any, now: Any, path: str = "") -> tuple[str, ...] | None:
    """Return the dotted paths of fields that only ``now`` has; None if a field of ``recorded`` is missing or has
    another value. A list of another length or order is another value."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        added: list[str] = []
        for key, value in now.items():
            below = f"{path}.{key}" if path else str(key)
            nested = added_fields(recorded[key], value, below) if key in recorded else (below,)
            if nested is None:
                return None
            added += nested
        return None if recorded.keys() - now.keys() else tuple(sorted(added))
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        added = []
        for index, (before, after) in enumerate(zip(recorded, now, strict=True)):
            name = after.get("name", index) if isinstance(after, dict) else index
            nested = added_fields(before, after, f"{path}[{name}]")
            if nested is None:
                return None
            added += nested
        return tuple(added)
    return () if type(recorded) is type(now) and recorded == now else None


def _by_name(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, list) or not all(isinstance(item, dict) and "name" in item for item in value):
        return None
    return {str(item["name"]): item for item in value}
