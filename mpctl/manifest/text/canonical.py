"""Canonical YAML of an object: the same object always gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def dump(record: Mapping[str, Any]) -> str:
    """Sorted keys, block style, no folding. Pure ASCII, since readers and writers of YAML disagree on what may stand
    unescaped."""
    import yaml

    text: str = yaml.safe_dump(dict(record), sort_keys=True, default_flow_style=False, width=2**31, allow_unicode=False)
    return text
