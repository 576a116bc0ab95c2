"""Read fields of nested JSON objects, such as those of Kubernetes, that may be missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mpctl.json_types import Json, JsonView


def value_at(item: Any, *keys: str) -> Any:
    """The value under a path of keys, None when any step is missing."""
    for key in keys:
        item = item.get(key) if isinstance(item, Mapping) else None
    return item


def list_at(item: Any, *keys: str) -> Sequence[Any]:
    """The list under a path of keys, empty when there is none."""
    entries = value_at(item, *keys)
    return entries if isinstance(entries, Sequence) and not isinstance(entries, str) else ()


def mapping_at(item: Any, *keys: str) -> Json:
    """The mapping under a path of keys, empty when there is none."""
    fields = value_at(item, *keys)
    return fields if isinstance(fields, dict) else {}


def condition(item: Any, kind: str) -> Json:
    """A condition of an object's status by its type; empty without it."""
    return next((c for c in list_at(item, "status", "conditions") if c.get("type") == kind), {})


def name_of(item: JsonView) -> str:
    """The name of an object of Kubernetes."""
    return str(item["metadata"]["name"])


def labels_of(item: JsonView) -> dict[str, str]:
    """The labels of an object of Kubernetes."""
    return mapping_at(item, "metadata", "labels")


def annotations_of(item: JsonView) -> dict[str, str]:
    """The annotations of an object of Kubernetes."""
    return mapping_at(item, "metadata", "annotations")


def owners_of(item: JsonView) -> Sequence[Any]:
    """The owner references of an object of Kubernetes."""
    return list_at(item, "metadata", "ownerReferences")


def words_of(container: JsonView) -> str:
    """Command and arguments of a container, as one text."""
    return " ".join(str(word) for key in ("command", "args") for word in container.get(key) or ())


def container_of(pod: JsonView, name: str) -> JsonView:
    """The container of that name in the spec of a pod, else the first, where none is called so; empty without any. A
    proxy may run next to the one that is looked for."""
    containers = list_at(pod, "containers")
    return next((c for c in containers if c.get("name") == name), next(iter(containers), {}))
