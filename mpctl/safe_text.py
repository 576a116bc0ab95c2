"""Text of others in messages: made safe for a terminal, and without users' prompts and answers.

Names, messages and logs of engines, clusters and other operators may hold control, bidirectional and line-end
characters that hide, overwrite or forge lines. They are shown in JSON's form, so that a JSON document stays valid.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from mpctl.errors import MpctlError

_JOINERS = "\u200c\u200d"  # of emoji and of scripts that need them
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
# Only mpctl itself begins a line like this.
_FORGED = r"(?mi)^(?=\s*(?:error|hint|warning|note|next):)"


def line(text: str) -> str:
    """Return ``text`` as one line."""
    return _escaped(text, "")


def lines(text: str) -> str:
    """Return ``text`` with its line ends and tabs; lines after the first cannot pass for a message of mpctl."""
    first, end, later_lines = _escaped(text, "\n\t").partition("\n")
    return first + end + re.sub(_FORGED, "| ", later_lines)


def document(text: str) -> str:
    """Return ``text`` with its line ends and tabs."""
    return _escaped(text, "\n\t")


def _escaped(text: str, allowed: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        c
        if c in allowed
        or c in _JOINERS
        or c.isprintable()
        or unicodedata.category(c) not in _UNSAFE
        else _visible(c)
        for c in text
    )


def _visible(character: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    units = character.encode("utf-16-be", "surrogatepass")
    return named or "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


_PIECE = 12  # characters: shorter runs of a prompt are common words of any message
# Between quotation marks a shorter one is a quotation, unless it is one name, number, path or address.
_BETWEEN_MARKS = re.compile(
    r"""(?<!\w)(['"`])(?=\S)((?:(?!\1).){3,11}?)(?<=\S)(?:\.\.\.|…)?\1(?!\w)"""
)
_ONE_WORD = re.compile(r"[\w./:<>=*+-]+", re.ASCII)
_INFORMS = re.compile(r".{0,60}?\b(?:INFO|DEBUG)\b")  # vLLM: "(EngineCore pid=1) INFO 11-23 ..."
_REMOVED = "... (a prompt is left out)"
# What vLLM logs with --enable-log-requests and --enable-log-outputs (vLLM 0.32, entrypoints' RequestLogger).
_REQUEST = re.compile(
    r"Received request \S+: prompt: |Request \S+ (details: prompt: |JSON body: )|Generated response "
)


def without_texts(message: str, texts: Iterable[str]) -> str:
    """Return a message without the rest of each line from where it quotes one of the texts, raw or as JSON."""
    import json  # not for every command's start

    forms = "\0".join(form for text in texts for form in {text, json.dumps(text)[1:-1]})
    return "\n".join(_cut(line, forms) for line in message.split("\n"))


def conceal(error: MpctlError, texts: Iterable[str]) -> None:
    """Leave quotations of the texts out of an error, which is recorded."""
    sent = tuple(texts)
    error.message = without_texts(error.message, sent)
    error.hint = error.hint and without_texts(error.hint, sent)
    error.args = (error.message,)


def without_requests(log: str) -> str:
    """Return an engine's log without the lines that hold a request or an answer."""
    return "\n".join(line for line in log.split("\n") if not _REQUEST.search(line))


def telling_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines of an engine's log that may tell why it ended: those that name an error, else all that do not
    merely inform."""
    errors = [line for line in lines if "Error" in line and "Traceback" not in line]
    return errors or [line for line in lines if not _INFORMS.match(line)]


def _cut(line: str, forms: str) -> str:
    pieces = (
        start for start in range(len(line) - _PIECE + 1) if line[start : start + _PIECE] in forms
    )
    marked = (
        match.start(2) for match in _BETWEEN_MARKS.finditer(line) if _is_private(match[2], forms)
    )
    starts = [start for start in (next(pieces, None), next(marked, None)) if start is not None]
    return line[: min(starts)] + _REMOVED if starts else line


def _is_private(quoted: str, forms: str) -> bool:
    return quoted in forms and (_ONE_WORD.fullmatch(quoted) is None or quoted in forms.split("\0"))
