"""The data of a manifest, to compare what an edit wrote with what was meant."""

from __future__ import annotations

from typing import Any

from mpctl.manifest.text.yaml_tree import data, parse


def contents(text: str, file: str) -> list[Any]:
    """The data of every document of a file."""
    return [data(document.root) for document in parse(text, file)]


def at(document: Any, path: str) -> dict[str, Any]:
    """The mapping at a view's path, such as ``spec.predictor.containers[0]``. Keys may have dots.

    Raises:
        KeyError: there is none.
    """
    here = document
    while path:
        if isinstance(here, list):
            index, _, path = path.removeprefix("[").partition("]")
            here = here[int(index)]
        else:
            key = max((k for k in here if _begins(path, k)), key=len, default=None)
            if key is None:
                raise KeyError(path)
            here, path = here[key], path[len(key) :]
        path = path.removeprefix(".")
    mapping: dict[str, Any] = here
    return mapping


def _begins(path: str, key: str) -> bool:
    return bool(key) and path.startswith(key) and path[len(key) : len(key) + 1] in ("", ".", "[")
