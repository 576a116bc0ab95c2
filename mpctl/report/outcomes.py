"""Outcomes as a word and a sign beside every colour, so that no colour carries meaning alone."""

from __future__ import annotations

_SIGNS = {"promote": "✓", "pass": "✓", "reject": "✗", "fail": "✗", "undecided": "?", "missing": "?", "skip": "·"}
_WORDS = {
    "promote": "Promote",
    "reject": "Reject",
    "undecided": "Undecided",
    "pass": "pass",
    "fail": "fail",
    "missing": "no data",
    "skip": "not asked",
}


def sign(outcome: str) -> str:
    """Return a sign for an outcome."""
    return _SIGNS.get(outcome, "?")


def word(outcome: str) -> str:
    """Return a word for an outcome."""
    return _WORDS.get(outcome, outcome)


def printable(text: str) -> str:
    """Return the text with every control character but line ends and tabs replaced: no format can carry or show one."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
