"""Figures as people read them; what was not measured is never a zero."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.report import words
from mpctl.report.values import Figure

FORMS = (words.number, words.times, words.percent, words.milliseconds, words.dollars)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_was_not_measured_is_a_question_mark(form, value):
    assert form(value) == "?"


@pytest.mark.parametrize("unit", ["x", "ms", "share", "", "tokens"])
@given(value=st.one_of(st.none(), st.floats()))
def test_every_value_in_every_unit_is_a_short_text(unit, value):
    text = words.in_unit(value, unit)
    assert text
    assert (text == "?") is (value is None or not math.isfinite(value))


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (words.times(2.444), "2.44x"),
        (words.percent(0.959), "95.9 %"),
        (words.milliseconds(2.953), "2.95 ms"),
        (words.milliseconds(21.84), "21.8 ms"),
        (words.milliseconds(1234.5), "1,234 ms"),
        (words.milliseconds(17400), "17.4 s"),
        (words.dollars(13.471), "$13.47"),
        (words.dollars(0.1234), "$0.123"),
        (words.dollars(0), "$0"),
        (words.count(6124), "6,124"),
        (words.of(1, 32), "1 of 32"),
        (words.in_unit(32.0, ""), "32"),
        (words.in_unit(2.4, ""), "2.40"),
        (words.interval(Figure(2, 1.5, 2.5)), "1.50x to 2.50x"),
        (words.interval(Figure(2, 1.5, None)), "at least 1.50x"),
        (words.interval(Figure(2, None, 0.1), "share"), "at most 10.0 %"),
        (words.interval(Figure(2)), ""),
        (words.with_interval(Figure(2, 1.5, 2.5, 9, 0.95)), "2.00x (95 %: 1.50x to 2.50x)"),
        (words.with_interval(Figure(2, 1.5, 2.5)), "2.00x (1.50x to 2.50x)"),
        (words.with_interval(Figure()), "?"),
        (words.duration(42.0), "42 s"),
        (words.duration(90.0), "1.5 min"),
        (words.duration(7200.0), "2 h"),
        (words.duration(None), "?"),
        (words.plain(0.95), "0.95"),
        (words.plain("x"), "x"),
        (words.word("missing"), "no data"),
        (words.sign("later"), "?"),
    ],
)
def test_a_figure_as_people_read_it(shown, text):
    assert shown == text
