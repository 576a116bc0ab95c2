"""A cell: one class of traffic at one load and temperature.

Figures of different cells are not pooled: speculation that doubles the speed of one request at a time may halve that
of thirty-two, and results for edits do not transfer to chat.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import total_ordering

from mpctl.errors import InputError

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_LIKE_A_RATE = re.compile(
    r".*-r[0-9.e-]+"
)  # "chat-r4" beside the cell of "chat" at 4/s would share its file


@total_ordering
@dataclass(frozen=True)
class Cell:
    """``traffic``: class of prompts (lower-case letters, digits, hyphens); ``concurrency``: requests in flight, or the
    most of them under a rate; ``temperature``: 0 is greedy; ``rate``: arrivals per second (open loop), None
    where a request follows the answer before it (closed loop).

    Raises:
        InputError: a value that no cell can have.
    """

    traffic: str
    concurrency: int
    temperature: float = 0.0
    rate: float | None = None

    def __post_init__(self) -> None:
        check_traffic(self.traffic)
        if self.concurrency < 1:
            raise InputError(f"must be at least 1, not {self.concurrency}", field="concurrency")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InputError(
                f"must be a number of zero or more, not {self.temperature}", field="temperature"
            )
        if self.rate is not None and not (math.isfinite(self.rate) and self.rate > 0):
            raise InputError(f"must be a number above zero, not {self.rate}", field="rate")

    def __lt__(self, other: Cell) -> bool:
        return self._place < other._place

    @property
    def _place(self) -> tuple[str, float, int, float]:
        return (
            self.traffic,
            self.rate or 0.0,
            self.concurrency,
            self.temperature,
        )  # None does not sort

    @property
    def key(self) -> str:
        """Return a file name, unique among cells: ``edits-c8-t0``, ``edits-r4-c32-t0.7``."""
        rate = "" if self.rate is None else f"-r{_plain(self.rate)}"
        return f"{self.traffic}{rate}-c{self.concurrency}-t{_plain(self.temperature)}"

    @property
    def label(self) -> str:
        """Return the name in sentences: ``edits, 8 at once``, ``chat, 4/s and at most 32 at once, temperature 0.7``."""
        load = f"{self.concurrency} at once"
        if self.rate is not None:
            load = f"{_plain(self.rate)}/s and at most {load}"
        warm = f", temperature {_plain(self.temperature)}" if self.temperature else ""
        return f"{self.traffic}, {load}{warm}"

    @property
    def greedy(self) -> bool:
        """True when the same prompt must give the same text."""
        return self.temperature == 0


def check_traffic(name: str) -> None:
    """Check the name of a class of traffic, which names files too.

    Raises:
        InputError: the name cannot be used.
    """
    if not _NAME.fullmatch(name) or _LIKE_A_RATE.fullmatch(name):
        raise InputError(
            f"must be lower-case letters, digits and hyphens, and not end like -r4: {name!r}",
            field="traffic",
        )


def _plain(number: float) -> str:
    """Return the shortest text that reads back as the number and fits a file name: 8, 0.7, 1e-07."""
    return repr(float(number)).removesuffix(".0").replace("+", "")
