"""Fields in which two manifests of a service differ beyond what mpctl itself changes.

A rollout edits the engine's speculative setting and stages a draft, a restart marks the pods. These are taken out of
both manifests; every difference that remains was made by another writer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from mpctl.errors import InputError
from mpctl.manifest.documents import load
from mpctl.manifest.draft_storage import VOLUME
from mpctl.manifest.speculation.setting import JsonValue

_STORAGE = ("storageUri", "storageUris")
_EMPTIED = (
    "args",
    "volumes",
    "volumeMounts",
)  # a list that held only what mpctl added goes with it
# A template that held only the setting's variable goes with it; KServe's webhook has written `resources: {}` into it.
_SHELL = {"containers": [{"name": "main"}]}
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"  # of kubectl rollout restart: fresh pods of the same service


def foreign_changes(before: str, after: str) -> tuple[str, ...]:
    """Paths of the fields that differ, other than the speculative setting and the draft's staging; () when none do."""
    documents_before, documents_after = _comparable(before, after)
    if len(documents_before) != len(documents_after):
        return ("the number of documents",)
    return tuple(
        dict.fromkeys(
            path
            for a, b in zip(documents_before, documents_after, strict=True)
            for path in _differences(a, b, "")
        )
    )


def _comparable(before: str, after: str) -> tuple[list[Any], list[Any]]:
    """The documents of both without a staged draft, and with the same speculative setting where it can be edited."""
    for alike in (
        lambda old, new: (_edited(old, None), _edited(new, None)),
        _with_the_same_speculation,
    ):
        try:
            text_before, text_after = alike(before, after)
            break
        except (InputError, ValueError):
            continue  # not one service, or its setting cannot be edited: every difference counts
    else:
        text_before, text_after = before, after
    return _unstaged(text_before), _unstaged(text_after)


def _unstaged(text: str) -> list[Any]:
    return [_without_staging(document) for document in documents_of(text)]


def _with_the_same_speculation(before: str, after: str) -> tuple[str, str]:
    """Give ``before`` the setting of ``after``: a runtime's setting can be replaced, but not removed."""
    (service,) = load(after)
    return _edited(before, service.speculation()), after


def _edited(text: str, config: Mapping[str, JsonValue] | None) -> str:
    (service,) = load(text)
    return service.with_speculation(config).to_yaml()


def documents_of(text: str) -> list[Any]:
    """The data of a text's documents; the text itself where it is no YAML."""
    try:
        return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError:
        return [text]


def _without_staging(value: Any) -> Any:
    if isinstance(value, dict):
        own_keys = (*_STORAGE, RESTARTED_AT)
        unstaged = {
            key: _without_staging(inner) for key, inner in value.items() if key not in own_keys
        }
        return {
            key: inner
            for key, inner in unstaged.items()
            if not (key in _EMPTIED and inner == [])
            and not (key in ("annotations", "resources") and not inner)
            and not (key == "template" and inner == _SHELL)
        }
    if isinstance(value, list):
        return [_without_staging(item) for item in value if not _is_staged(item)]
    return value


def _is_staged(item: Any) -> bool:
    """Return whether it is the volume or mount of a staged draft: of a claim, never of the node's own files."""
    return (
        isinstance(item, dict)
        and item.get("name") == VOLUME
        and item.keys() <= {"name", "persistentVolumeClaim", "mountPath", "subPath", "readOnly"}
    )


def _differences(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}, key=str):
            inner = f"{path}.{key}" if path else str(key)
            if key not in before or key not in after:
                yield inner
            else:
                yield from _differences(before[key], after[key], inner)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (a, b) in enumerate(zip(before, after, strict=True)):
            yield from _differences(a, b, f"{path}[{index}]")
    elif before != after:
        yield path or "the whole text"
