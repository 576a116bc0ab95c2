"""The size of the terminal."""

from __future__ import annotations

import os
import sys


def width() -> int:
    """Width of the terminal in characters; COLUMNS is stronger."""
    chosen = os.environ.get("COLUMNS", "")
    return int(chosen) if chosen.isdigit() and int(chosen) else _size()[0]


def height() -> int:
    """Height of the terminal in lines."""
    return _size()[1]


def _size() -> tuple[int, int]:
    for stream in (sys.__stderr__, sys.__stdout__):
        try:
            size = os.get_terminal_size(stream.fileno() if stream else -1)
        except (OSError, ValueError):
            continue
        if size.columns and size.lines:
            return size.columns, size.lines
    return 80, 24
