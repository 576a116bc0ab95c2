"""The data of a manifest, to compare what an edit wrote with what was meant."""

from __future__ import annotations

import re
from typing import Any

from mpctl.manifest.text.yaml_tree import data, parse


def contents(text: str, file: str) -> list[Any]:
    """The data of every document of a file."""
    return [data(document.root) for document in parse(text, file)]


def at(document: Any, path: str) -> dict[str, Any]:
    """The mapping at a view's path, such as ``spec.predictor.containers[0]``."""
    here = document
    for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        here = here[int(index)] if index else here[key]
    found: dict[str, Any] = here
    return found
