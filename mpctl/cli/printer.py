"""A command's result in the format that ``-o`` asks for. A new format is one more function and one more row here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from mpctl import safe_text
from mpctl.cli.size import folded_command

if TYPE_CHECKING:
    from mpctl.json_types import JsonView

API_VERSION = "mpctl.dev/v1alpha1"
_GAP = 3  # spaces between two columns
_COMMAND = r"(?<=')(?:kubectl |mpctl )[^'\n]*(?=')"
_BOUND = "\x00"  # in place of a space that must not be broken
_MOST_LINES = 6  # of a wrapped row; a table with a taller one is printed as blocks


class _Page:
    """``width`` of the page that is written; None without a limit."""

    width: int | None = None


@contextmanager
def page(width: int | None) -> Iterator[None]:
    """Fit the tables and paragraphs of this block into ``width`` columns; None: one line each, as for a pipe."""
    before, _Page.width = _Page.width, width
    try:
        yield
    finally:
        _Page.width = before


class Result(NamedTuple):
    """A result before it has a format. ``table`` is given whether all columns are wanted."""

    kind: str
    record: Callable[[], JsonView]
    names: Callable[[], Iterable[str]]
    table: Callable[[bool], str]


def document(kind: str, record: JsonView, output: str) -> str:
    """A JSON or YAML document with apiVersion and kind."""
    whole = {"apiVersion": API_VERSION, "kind": kind, **record}
    if output == "json":
        import json

        return json.dumps(whole, indent=2, ensure_ascii=False)
    import yaml

    return str(yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)).rstrip()


def _one_line_each(result: Result) -> str:
    with page(None):
        return result.table(True)


_FORMATS: dict[str, Callable[[Result], str]] = {
    "table": lambda result: result.table(False),
    "wide": _one_line_each,
    "json": lambda result: document(result.kind, result.record(), "json"),
    "yaml": lambda result: document(result.kind, result.record(), "yaml"),
    "name": lambda result: "\n".join(result.names()),
}
FORMATS = tuple(_FORMATS)


def render(output: str, result: Result, width: int | None = None) -> str:
    """The text of a result in the format ``output``; may be empty. ``width``: of the terminal that shows it."""
    with page(width):
        return _FORMATS[output](result)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns with three spaces between them; the last one is not padded.

    On a page that is too narrow cells are wrapped. Where that would be hard to read, each row becomes a column beside
    the headers, or a block of ``HEADER  value`` lines below each other.
    """
    rows = [[safe_text.line(cell) for cell in row] for row in rows]
    width = _Page.width
    natural = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    if width is None or max(map(len, _lines(rows, natural))) <= width:
        return "\n".join(_lines(rows, natural))
    fitted = _fitted(rows, natural, width)
    folded = [[_cell(cell, size) for cell, size in zip(row, fitted, strict=True)] for row in rows]
    tall = max(len(cell) for row in folded[1:] for cell in row) if rows[1:] else 1
    if len(natural) > 2 and (tall > _MOST_LINES or sum(fitted) + _GAP * (len(fitted) - 1) > width):
        return _upright(rows, width)
    flat = [
        [cell[i] if i < len(cell) else "" for cell in row]
        for row in folded
        for i in range(max(map(len, row)))
    ]
    return "\n".join(_lines(flat, fitted))


def page_width(otherwise: int) -> int:
    """Width of the page; ``otherwise`` where it has no limit, and at most that."""
    return otherwise if _Page.width is None else min(_Page.width, otherwise)


def paragraph(text: str, indent: str = "", deeper: str = "") -> str:
    """The text wrapped to the page, its first line indented by ``indent`` and the others by ``deeper``."""
    width = _Page.width
    return indent + text if width is None else wrapped(text, width, indent, deeper)


def _lines(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    padded = (
        [*(cell.ljust(size) for cell, size in zip(row[:-1], widths, strict=False)), row[-1]]
        for row in rows
    )
    return [(" " * _GAP).join(row).rstrip() for row in padded]


def _fitted(rows: Sequence[Sequence[str]], natural: Sequence[int], width: int) -> list[int]:
    """Widths that fit the page: the widest columns are narrowed first, none below its longest word."""
    words = [
        max((len(word) for row in rows for word in row[i].split()), default=0)
        for i in range(len(natural))
    ]
    if (
        len(natural) <= 2
    ):  # of a label and its text only the text is narrowed, whatever its words are
        words[-1] = (
            min(words[-1], max(width - _GAP - natural[0], 1))
            if len(natural) == 2
            else min(words[-1], width)
        )
    free = width - _GAP * (len(natural) - 1)
    for cap in range(max(natural), 0, -1):
        sizes = [min(whole, max(least, cap)) for whole, least in zip(natural, words, strict=True)]
        if sum(sizes) <= free:
            return sizes
    return words


def _upright(rows: Sequence[Sequence[str]], width: int) -> str:
    """A table by its columns: the headers on the left, and a column per row where they fit."""
    turned = list(zip(*rows, strict=True))
    natural = [max(map(len, column)) for column in rows]
    if sum(natural) + _GAP * (len(natural) - 1) > width:
        return "\n\n".join(_block(rows[0], row, width) for row in rows[1:])
    sizes = [max(len(row[i]) for row in turned) for i in range(len(rows))]
    return "\n".join(_lines(turned, sizes))


def _cell(cell: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(cell, max(width, 1), break_on_hyphens=False) or [""]


def _block(header: Sequence[str], row: Sequence[str], width: int) -> str:
    label = max(map(len, header)) + _GAP
    return "\n".join(
        wrapped(cell, width, name.ljust(label), " " * label)
        for name, cell in zip(header, row, strict=True)
        if cell
    )


def wrapped(text: str, columns: int, indent: str = "", deeper: str = "") -> str:
    """Each line of the text wrapped to ``columns``, the first indented by ``indent`` and the others by ``deeper``.

    A quoted command stays in one piece; one that is too long for a line is continued with a backslash, so that it can
    be pasted. Other words are broken only where one alone is wider than the page.
    """
    import textwrap

    lines, first = [], indent
    for line in text.split("\n"):
        if len(first + line) > columns:
            room = columns - len(deeper) - 1
            bound = re.sub(_COMMAND, partial(_continued, room, deeper), line)
            pieces = bound.split("\n")
            for number, piece in enumerate(pieces):
                start = first if number == 0 else ""
                lines += textwrap.wrap(
                    piece,
                    columns,
                    initial_indent=start,
                    subsequent_indent=deeper,
                    break_on_hyphens=False,
                )
        else:
            lines.append(first + line)
        first = deeper
    return "\n".join(lines).replace(_BOUND, " ")


def _continued(columns: int, indent: str, command: re.Match[str]) -> str:
    """A command that is wrapped at no other place than behind a backslash."""
    lines = folded_command(command.group(), columns, indent + "  ").split("\n")
    return "\n".join(line.replace(" ", _BOUND) for line in lines)
