"""Kubernetes objects: those that are written in objects.yaml, and what all of them have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infra.templates import entries, filled

Document = dict[str, Any]
OBJECTS = Path(__file__).with_name("objects.yaml")


def written(entry: str, /, **values: Any) -> Document:
    """Return the object *entry* of objects.yaml with *values* in it, and mpctl's labels.

    Raises:
        KeyError: the object has a placeholder without a value.
    """
    made: Document = filled(entries(OBJECTS)[entry], values)
    return labelled(made)


def labelled(document: Document) -> Document:
    """*document* with mpctl's labels."""
    document["metadata"]["labels"] = {
        "app.kubernetes.io/managed-by": "mpctl",
        "app.kubernetes.io/part-of": "inference",
    }
    return document


def named(kind: str, api: str, name: str, namespace: str | None, **body: Any) -> Document:
    """Return a Kubernetes object with mpctl's labels; without a namespace for a cluster's own."""
    place = {} if namespace is None else {"namespace": namespace}
    return labelled({"apiVersion": api, "kind": kind, "metadata": {"name": name, **place}, **body})
