"""The last writer of an object or of one of its fields, from its managed fields.

A manager is a name that the client chooses; the user is in the API server's audit log alone.
"""

from __future__ import annotations

from typing import Any

from mpctl.platform.kubernetes.api.client import Json


def last_writer(item: Json, *path: str) -> str:
    """Return ``, last written by MANAGER at TIME``; empty where the object does not say. ``path``: keys of a field
    whose writer is meant; that of the object where no manager owns the field."""
    written = writer_of(item, *path)
    if written is None:
        return ""
    manager, time = written
    return f", last written by {manager or 'an unnamed client'} at {time or 'an unknown time'}"


def writer_of(item: Json, *path: str) -> tuple[str, str] | None:
    """Return the manager that wrote a field last, and when; None where the object does not say."""
    fields = (item.get("metadata") or {}).get("managedFields")
    written = [f for f in fields or () if isinstance(f, dict)]
    written = [f for f in written if _owns(f.get("fieldsV1"), path)] or written
    if not written:
        return None
    time, manager = max((str(f.get("time", "")), str(f.get("manager", ""))) for f in written)
    return manager, time


def _owns(fields: Any, path: tuple[str, ...]) -> bool:
    for key in path:
        fields = fields.get(f"f:{key}") if isinstance(fields, dict) else None
    return fields is not None
