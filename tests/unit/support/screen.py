"""A terminal for tests: what it shows, line by line, after the control characters that mpctl writes."""

from __future__ import annotations

import re

_TOKENS = re.compile(r"\x1b\[(\?)?(\d*)([A-Za-z])|(\r)|(\n)|(.)", re.DOTALL)


def shown(output: str, columns: int) -> list[str]:
    """The lines of a terminal without end, which wraps what is wider than ``columns``, as people see them."""
    lines, row, column = [""], 0, 0
    for private, number, letter, back, end, character in _TOKENS.findall(output):
        if back:
            column = 0
        elif end:
            row, column = row + 1, 0
        elif letter == "A":
            row = max(row - int(number or 1), 0)
        elif letter == "K":
            lines[row] = lines[row][:column]
        elif letter == "J":
            lines[row] = lines[row][:column]
            del lines[row + 1 :]
        elif character:
            if column == columns:
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
            column += 1
        else:
            assert private or letter == "m", f"unknown control {number}{letter}"
        lines += [""] * (row + 1 - len(lines))
    while lines and not lines[-1]:
        lines.pop()
    return [line.rstrip() for line in lines]
