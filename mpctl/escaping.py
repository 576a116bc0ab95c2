"""Text of others made safe for a terminal: control, bidirectional and line-end characters in a visible form.

Names, messages and logs of engines, clusters and other operators may hold sequences that hide, overwrite or forge
lines. Escapes have JSON's form, so that a JSON document stays valid.
"""

from __future__ import annotations

import re
import unicodedata

_JOINERS = "\u200c\u200d"  # of emoji and of scripts that need them
_UNSAFE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
# Only mpctl itself begins a line like this.
_FORGED = re.compile(r"^(?=\s*(?:error|hint|warning|note|next):)", re.MULTILINE | re.IGNORECASE)


def line(text: str) -> str:
    """Return ``text`` as one line."""
    return _escaped(text, "")


def lines(text: str) -> str:
    """Return ``text`` with its line ends and tabs; lines after the first cannot pass for a message of mpctl."""
    first, end, later_lines = _escaped(text, "\n\t").partition("\n")
    return first + end + _FORGED.sub("| ", later_lines)


def document(text: str) -> str:
    """Return ``text`` with its line ends and tabs."""
    return _escaped(text, "\n\t")


def _escaped(text: str, allowed: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c in allowed or c.isprintable() or _is_safe(c) else _visible(c) for c in text)


def _is_safe(character: str) -> bool:
    return character in _JOINERS or unicodedata.category(character) not in _UNSAFE


def _visible(character: str) -> str:
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    units = character.encode("utf-16-be", "surrogatepass")
    return named or "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
