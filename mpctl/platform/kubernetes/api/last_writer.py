"""The last writer of an object, from its managed fields."""

from __future__ import annotations

from mpctl.platform.kubernetes.api.client import Json


def last_writer(item: Json) -> str:
    """Return ``, last written by MANAGER at TIME``; empty where the object does not say."""
    fields = (item.get("metadata") or {}).get("managedFields")
    written = [(str(f.get("time", "")), str(f.get("manager", ""))) for f in fields or () if isinstance(f, dict)]
    if not written:
        return ""
    time, manager = max(written)
    return f", last written by {manager or 'an unnamed client'} at {time or 'an unknown time'}"
