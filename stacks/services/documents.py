"""Kubernetes objects: those that are written in objects.yaml, and what all of them have in common."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import yaml

Document = dict[str, Any]


@cache
def objects() -> Document:
    """Every entry of objects.yaml, with its placeholders."""
    text = Path(__file__).with_name("objects.yaml").read_text("utf-8")
    loaded: Document = yaml.safe_load(text)
    return loaded


def written(entry: str, /, **values: Any) -> Document:
    """Return the object *entry* of objects.yaml with *values* in it, and mpctl's labels.

    Raises:
        KeyError: the object has a placeholder without a value.
    """
    made: Document = filled(objects()[entry], values)
    return labelled(made)


def filled(part: Any, values: Mapping[str, Any]) -> Any:
    """A copy of *part*: ``${x}`` alone is the value x of any type, within a text its text."""
    if isinstance(part, dict):
        return {key: filled(item, values) for key, item in part.items()}
    if isinstance(part, list):
        return [filled(item, values) for item in part]
    if not isinstance(part, str) or "${" not in part:
        return part
    name = part[2:-1]
    return values[name] if part == f"${{{name}}}" else Template(part).substitute(values)


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
