"""The size of the terminal, and text fitted into it."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


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


def width_of(stream: TextIO) -> int | None:
    """Width of the terminal that a stream shows on; None for a file or a pipe."""
    return width() if stream.isatty() else None


def shortened(text: str, columns: int) -> str:
    """The text cut to a width at a word, with an ellipsis."""
    if len(text) <= columns:
        return text
    cut = text[: columns - 1]
    return f"{cut.rpartition(' ')[0] or cut}".rstrip(";,:") + "…"


def folded_command(command: str, columns: int, indent: str = "  ") -> str:
    """A command of the shell, continued with a backslash where it is wider than ``columns``."""
    lines, line = [], ""
    for word in command.split(" "):
        if line.strip() and len(line) + len(word) + 3 > columns:
            lines.append(line + " \\")
            line = indent + word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


def fit_examples(text: str, width: int) -> str:
    """The text with each indented example fitted into ``width``: its comment moves to the next line, and a command that
    is still too long is continued with a backslash."""
    return "\n".join(
        _fitted(line, width) if line.startswith("  ") and len(line) > width else line
        for line in text.split("\n")
    )


def _fitted(line: str, width: int) -> str:
    command, _, comment = line.strip().partition("  ")
    fitted = "  " + folded_command(command, width - 2, "    ")
    return f"{fitted}\n      {comment.strip()}" if comment else fitted
