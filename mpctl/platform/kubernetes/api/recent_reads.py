"""Answers of the API server that serve again for a moment: the steps of one command ask for the same objects."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

RECENT_S = 0.9  # less than any pause between two polls

_Answer = TypeVar("_Answer")


class RecentReads(Generic[_Answer]):
    """Keeps answers for RECENT_S and no longer, so that a watch of many services does not hold what it once read."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, _Answer]] = {}

    def read(self, key: str, ask: Callable[[], _Answer]) -> _Answer:
        """Return the recent answer to ``key``, or ask."""
        asked, answers = time.monotonic(), self._kept
        recent = answers.get(key)
        if recent is not None and asked - recent[0] < RECENT_S:
            return recent[1]
        answer = ask()
        expired = [name for name, (at, _) in list(answers.items()) if asked - at >= RECENT_S]
        for name in expired:
            answers.pop(name, None)
        answers[key] = asked, answer  # in the mapping that was current before: one who forgot meanwhile has replaced it
        return answer

    def forget(self) -> None:
        """Read everything again: something may have changed."""
        self._kept = {}
