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
    """The text with its indented examples fitted into ``width``: comments move to the left, else to a line of their
    own; a longer command is continued with a backslash."""
    lines = text.split("\n")
    if all(len(line) <= width for line in lines if line.startswith("  ")):
        return text
    split = {i: [line.strip(), ""] for i, line in enumerate(lines) if line.startswith("  ")}
    for i, (line, _) in split.items():
        command, gap, comment = line.partition("   ")
        if gap or "  " in line:
            command, _, comment = line.partition("  ")
            split[i] = [command, comment.strip()]
    column = max((len(command) for command, comment in split.values() if comment), default=0) + 5
    fits = all(column + len(comment) <= width for _, comment in split.values())
    for i, (command, comment) in split.items():
        if comment and fits:
            lines[i] = f"  {command}".ljust(column) + comment
        else:
            lines[i] = (
                "  "
                + folded_command(command, width - 2, "    ")
                + (f"\n      {comment}" if comment else "")
            )
    return "\n".join(lines)
