"""Map the characters of a scalar's value to the characters of the file, and spell new text in a scalar's style.

:func:`pieces` decodes a scalar once more, this time remembering where every character came from. The result is
compared with what the YAML parser read, so a scalar this module does not understand is refused and never cut wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mpctl.manifest.text.view import View
from mpctl.manifest.text.yaml_tree import Scalar

_BREAK = re.compile(r"\r\n|\n|\r")
_BLANK = re.compile(r"[ \t\r\n]+")
_PROPERTIES = re.compile(r"(?:[&!]\S*[ \t]+)*")
_HEADER = re.compile(r"[|>]([+-]?)([1-9]?)([+-]?)[ \t]*(?:#[^\r\n]*)?(?:\r\n|\n|\r|$)")
_PLAIN = re.compile(r"(?:--?[A-Za-z]|[A-Za-z/])[A-Za-z0-9_./@%+=:~{}\"\[\]-]*")
_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "null", "y", "n"))
# YAML 1.2.2, section 5.7, "Escaped Characters".
_ESCAPES = dict(
    zip('0abt\tnvfre "/\\N_LP', '\0\a\b\t\t\n\v\f\r\x1b "/\\\x85\xa0\u2028\u2029', strict=True)
)
_HEX = {"x": 2, "u": 4, "U": 8}


@dataclass(frozen=True)
class Piece:
    """A character of a value and the span of the file that spells it."""

    char: str
    start: int
    end: int


def pieces(text: str, view: View) -> tuple[Piece, ...]:
    """Every character of the scalar at ``view`` with its source span. Raises when the two readings differ."""
    node = view.scalar()
    start = _PROPERTIES.match(text, node.start, node.end)
    begin = node.start if start is None else start.end()
    candidates = (
        _block(text, begin, node)
        if node.style in ("|", ">")
        else [_flow(text, begin, node.end, node.style)]
    )
    for reading in candidates:
        if "".join(piece.char for piece in reading) == node.value:
            return tuple(reading)
    raise view.error(
        "this text cannot be edited safely as it is quoted",
        hint="write it as a quoted or literal (|) string",
    )


def _flow(text: str, start: int, end: int, style: str) -> list[Piece]:
    """Plain and quoted scalars: escapes, doubled quotes, folded lines."""
    if style:
        start, end = start + 1, end - 1
    pieces: list[Piece] = []
    i = start
    while i < end:
        char = text[i]
        if style == '"' and char == "\\":
            decoded = _escape(text, i)
        elif style == "'" and char == "'":
            decoded = [Piece("'", i, i + 2)]
        elif char in " \t\r\n":
            decoded = _fold(text, i, end)
        else:
            decoded = [Piece(char, i, i + 1)]
        if not decoded:
            return pieces
        pieces += [piece for piece in decoded if piece.char]
        i = max(piece.end for piece in decoded)
    return pieces


def _escape(text: str, i: int) -> list[Piece]:
    kind = text[i + 1]
    if kind in "\r\n":  # an escaped line break joins the lines; blank lines after it still count
        run = _BLANK.match(text, i + 1)
        end = i + 2 if run is None else run.end()
        extra = len(_BREAK.findall(text, i + 1, end)) - 1
        return [Piece("", i, end), *(Piece("\n", end, end) for _ in range(extra))]
    if kind in _HEX:
        end = i + 2 + _HEX[kind]
        return [Piece(chr(int(text[i + 2 : end], 16)), i, end)]
    return [Piece(_ESCAPES.get(kind, kind), i, i + 2)]


def _fold(text: str, i: int, end: int) -> list[Piece]:
    run = _BLANK.match(text, i, end)
    stop = i + 1 if run is None else run.end()
    breaks = len(_BREAK.findall(text, i, stop))
    if breaks == 0:
        return [Piece(text[k], k, k + 1) for k in range(i, stop)]
    folded = " " if breaks == 1 else "\n" * (breaks - 1)
    return [Piece(char, i if k == 0 else stop, stop) for k, char in enumerate(folded)]


def _block(text: str, start: int, node: Scalar) -> list[list[Piece]]:
    """Readings of a block scalar: one per possible indentation when an indicator hides it."""
    header = _HEADER.match(text, start)
    if header is None:
        return []
    lines: list[tuple[int, int, int]] = []  # start, end of content, end with break
    position = header.end()
    while position < node.end:
        cut = _BREAK.search(text, position, node.end)
        stop, after = (node.end, node.end) if cut is None else (cut.start(), cut.end())
        lines.append((position, stop, after))
        position = after
    depths = [
        len(text[a:b]) - len(text[a:b].lstrip(" ")) for a, b, _ in lines if text[a:b].strip(" ")
    ]
    indents = range(1, min(depths, default=0) + 1) if header.group(2) else depths[:1]
    return [_trim(_lines(text, lines, indent, node.style), node.value) for indent in indents]


def _lines(text: str, lines: list[tuple[int, int, int]], indent: int, style: str) -> list[Piece]:
    pieces: list[Piece] = []
    pending, since = 0, 0  # line breaks not yet placed, and where the first of them starts
    last = ""  # first character of the last line with content
    for start, stop, after in lines:
        begin = min(start + indent, stop)
        if begin < stop:
            joins = style == ">" and last and last not in " \t" and text[begin] not in " \t"
            glue = "\n" * pending
            if joins:
                glue = " " if pending == 1 else "\n" * (pending - 1)
            pieces += [Piece(c, since if k == 0 else begin, begin) for k, c in enumerate(glue)]
            pieces += [Piece(text[k], k, k + 1) for k in range(begin, stop)]
            pending, last = 0, text[begin]
        if after > stop:
            since = stop if pending == 0 else since
            pending += 1
    tail = lines[-1][2] if lines else 0
    return pieces + [Piece("\n", since if k == 0 else tail, tail) for k in range(pending)]


def _trim(pieces: list[Piece], value: str) -> list[Piece]:
    """Cut the pieces to the length of ``value``: chomping removes only line breaks at the end."""
    tail = pieces[len(value) :]
    return pieces[: len(value)] if all(piece.char == "\n" for piece in tail) else pieces


def plain_safe(text: str, *, flow: bool) -> bool:
    """Return whether ``text`` is safe as an unquoted scalar, also for YAML 1.1 readers."""
    if not _PLAIN.fullmatch(text) or text.endswith(":") or text.lower() in _WORDS:
        return False
    return not (flow and re.search(r"[\[\]{},]", text))


def escape(text: str, style: str) -> str:
    """``text`` (one line, printable) as it stands inside a scalar of this style."""
    if style == '"':
        return text.replace("\\", "\\\\").replace('"', '\\"')
    return text.replace("'", "''") if style == "'" else text


def spell(text: str, style: str, *, flow: bool) -> str:
    """``text`` as a whole new scalar, in the style of its siblings where that style can hold it."""
    if style == '"':
        return f'"{escape(text, style)}"'
    if style == "" and plain_safe(text, flow=flow):
        return text
    return "'" + escape(text, "'") + "'"
