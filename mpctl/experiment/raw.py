"""The bench client's own JSON: stored without its texts, and corrected where it is known to be wrong."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

from mpctl import bounded
from mpctl.experiment.cell import Cell

_ENCODING = "gzip+base64"


_TEXTS = ("generated_texts", "errors")  # answers, and messages that may repeat a prompt


def pack(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a small JSON object that holds a large one. Texts are left out: they may be users'; a block has their
    digests."""
    figures = {key: value for key, value in result.items() if key not in _TEXTS}
    data = gzip.compress(json.dumps(figures).encode(), mtime=0)
    return {"encoding": _ENCODING, "data": base64.b64encode(data).decode()}


def unpack(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object that :func:`pack` was given.

    Raises:
        ValueError: the record is damaged.
    """
    if record.get("encoding") != _ENCODING:
        raise ValueError(f"encoding is {record.get('encoding')!r}, not {_ENCODING}")
    loaded = bounded.loads(bounded.gunzip(base64.b64decode(record["data"], validate=True)))
    if not isinstance(loaded, dict):
        raise ValueError(f"holds no JSON object but a {type(loaded).__name__}")
    return loaded


def corrected(result: Mapping[str, Any], cell: Cell) -> dict[str, Any]:
    """Return the result with times that begin when a request was due.

    The client starts its clock when it sends. In an open loop with a limit in flight it may hold a request back before
    that, and a user would wait: the time is added to the time to first token, as vLLM's own
    ``e2els_including_queue`` does for whole requests. In a closed loop nothing is added.
    """
    waits = held(result, cell)
    return {**result, "ttfts": [t + w for t, w in zip(result["ttfts"], waits, strict=True)]} if waits else dict(result)


def held(result: Mapping[str, Any], cell: Cell) -> list[float]:
    """Return how long the client held each request back after it was due, s; empty in a closed loop or if unknown."""
    waits, ttfts = result.get("queue_times"), result.get("ttfts")
    if cell.rate is None or not isinstance(waits, list) or not isinstance(ttfts, list) or len(waits) != len(ttfts):
        return []
    if not all(isinstance(value, int | float) for value in (*waits, *ttfts)):
        return []
    return [max(w, 0.0) for w in waits]
