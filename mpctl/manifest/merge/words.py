"""Three-way merge of sequences: the lines of a text, the words of a shell script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

_Edit = tuple[int, int, list[str]]


def merge_lines(base: str, mine: str, theirs: str) -> str | None:
    """Both changes of ``base``; None where they overlap."""
    merged = _merged(*(text.splitlines(keepends=True) for text in (base, mine, theirs)))
    return None if merged is None else "".join(merged)


def merge_words(base: str, mine: str, theirs: str) -> str | None:
    """Both changes of a shell script, word by word; None where they overlap."""
    merged = _merged(*(re.findall(r"\s+|\S+", text) for text in (base, mine, theirs)))
    return None if merged is None else "".join(merged)


def _merged(base: list[str], mine: list[str], theirs: list[str]) -> list[str] | None:
    edits = sorted([*_edits(base, mine), *_edits(base, theirs)], key=lambda edit: edit[:2])
    result: list[str] = []
    at, last = 0, None
    for edit in edits:
        start, end, words = edit
        if edit == last:
            continue  # both made the same change
        if last is not None and (start < last[1] or (start == last[0] and start == last[1])):
            return None
        result += [*base[at:start], *words]
        at, last = end, edit
    return [*result, *base[at:]]


def _edits(base: Sequence[str], changed: Sequence[str]) -> list[_Edit]:
    matcher = SequenceMatcher(None, base, changed, autojunk=False)
    return [(i, j, list(changed[k:n])) for tag, i, j, k, n in matcher.get_opcodes() if tag != "equal"]
