"""Removes users' prompts and answers from messages and log lines, which may be recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

_PIECE, _STEP = 12, 3  # characters: a quotation of 14 or more is found
_REMOVED = "... (a prompt is left out)"
# What vLLM logs with --enable-log-requests and --enable-log-outputs (vLLM 0.32, entrypoints' RequestLogger).
_REQUEST = re.compile(r"Received request \S+: prompt: |Request \S+ (details: prompt: |JSON body: )|Generated response ")


def without_texts(message: str, texts: Iterable[str]) -> str:
    """Return a message without the rest of each line from where it quotes one of the texts, raw or as JSON."""
    forms = "\0".join(form for text in texts for form in {text, json.dumps(text)[1:-1]})
    return "\n".join(_cut(line, forms) for line in message.split("\n"))


def without_requests(log: str) -> str:
    """Return an engine's log without the lines that hold a request or an answer."""
    return "\n".join(line for line in log.split("\n") if not _REQUEST.search(line))


def _cut(line: str, forms: str) -> str:
    starts = range(0, len(line) - _PIECE + 1, _STEP)
    quoted_at = next((start for start in starts if line[start : start + _PIECE] in forms), None)
    if quoted_at is None:
        return line
    while quoted_at and line[quoted_at - 1 : quoted_at - 1 + _PIECE] in forms:
        quoted_at -= 1
    return line[:quoted_at] + _REMOVED
