"""Fields in which two manifests of a service differ beyond what mpctl itself changes.

A rollout edits the engine's speculative setting and stages a draft. Both are taken out of both manifests; every
difference that remains was made by another writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mpctl.errors import InputError
from mpctl.manifest.documents import load
from mpctl.manifest.storage.cuts import VOLUME

_STORAGE = ("storageUri", "storageUris")


def foreign_changes(before: str, after: str) -> tuple[str, ...]:
    """Paths of the fields that differ, other than the speculative setting and the draft's staging; () when none do."""
    left, right = _stripped(before), _stripped(after)
    if len(left) != len(right):
        return ("the number of documents",)
    return tuple(dict.fromkeys(path for a, b in zip(left, right, strict=True) for path in _differences(a, b, "")))


def _stripped(text: str) -> list[Any]:
    """The documents without speculation and without a staged draft. A text whose setting cannot be read stays whole."""
    import yaml

    try:
        (service,) = load(text)
        text = service.with_speculation(None).to_yaml()
    except (InputError, ValueError):
        pass  # not one service that can be edited: every difference counts
    try:
        return [_without_staging(document) for document in yaml.safe_load_all(text)]
    except yaml.YAMLError:
        return [text]


def _without_staging(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: _without_staging(inner) for key, inner in value.items() if key not in _STORAGE}
        return {key: inner for key, inner in kept.items() if not (key in ("volumes", "volumeMounts") and inner == [])}
    if isinstance(value, list):
        return [_without_staging(item) for item in value if not _is_staged(item)]
    return value


def _is_staged(item: Any) -> bool:
    """Whether it is the volume or the mount of a staged draft: of a claim, never of the node's own files."""
    return (
        isinstance(item, dict)
        and item.get("name") == VOLUME
        and item.keys() <= {"name", "persistentVolumeClaim", "mountPath", "subPath", "readOnly"}
    )


def _differences(left: Any, right: Any, path: str) -> Iterator[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}, key=str):
            inner = f"{path}.{key}" if path else str(key)
            if key not in left or key not in right:
                yield inner
            else:
                yield from _differences(left[key], right[key], inner)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (a, b) in enumerate(zip(left, right, strict=True)):
            yield from _differences(a, b, f"{path}[{index}]")
    elif left != right:
        yield path or "the whole text"
