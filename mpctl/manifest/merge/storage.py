"""The target's place in the manifest, once a staged draft is gone: where the last manifest without a draft has it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from mpctl.manifest.kinds.inference_service import MOUNT
from mpctl.manifest.merge.fields import holds_draft, storage_of


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
    made = copy.deepcopy(document)
    for path in present:
        holder, key = _place(made, path)
        del holder[key]
    for path, value in wanted.items():
        holder, key = _place(made, path)
        if not isinstance(holder, dict):
            return document  # the recorded manifest has another structure
        holder[key] = value
    return made


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
