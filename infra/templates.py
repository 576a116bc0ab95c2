"""Documents that are written in YAML, with placeholders."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import yaml


@cache
def entries(path: Path) -> dict[str, Any]:
    """Every entry of the file, with its placeholders."""
    loaded: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return loaded


def filled(part: Any, values: Mapping[str, Any]) -> Any:
    """A copy of *part*: ``${x}`` alone is the value x of any type, within a text or a key its text.

    Raises:
        KeyError: a placeholder without a value.
    """
    if isinstance(part, dict):
        return {filled(key, values): filled(item, values) for key, item in part.items()}
    if isinstance(part, list):
        return [filled(item, values) for item in part]
    if not isinstance(part, str) or "${" not in part:
        return part
    name = part[2:-1]
    return values[name] if part == f"${{{name}}}" else Template(part).substitute(values)
