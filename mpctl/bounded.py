"""Parsing of data that others wrote: limits on decompressed bytes and nesting, every failure a ValueError."""

from __future__ import annotations

import json
import zlib
from typing import Any

MEBIBYTE = 2**20
RECORD_BYTES = 256 * MEBIBYTE  # a stored measurement; the largest seen has 40 MiB
_GZIP = 16 + zlib.MAX_WBITS


def loads(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error


def is_nested_deeper(value: Any, levels: int) -> bool:
    """Return whether objects and lists are nested more than ``levels`` deep."""
    level = [value]
    for _ in range(levels + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def gunzip(data: bytes, *, limit: int = RECORD_BYTES) -> bytes:
    """Decompress gzip data.

    Raises:
        ValueError: damaged, or larger than ``limit`` bytes.
    """
    decompressor = zlib.decompressobj(_GZIP)
    try:
        text = decompressor.decompress(data, limit + 1)
    except zlib.error as error:
        raise ValueError(f"damaged gzip data: {error}") from error
    if len(text) > limit:
        raise ValueError(f"larger than {limit // MEBIBYTE} MiB when decompressed")
    if not decompressor.eof:
        raise ValueError("truncated gzip data")
    return text
