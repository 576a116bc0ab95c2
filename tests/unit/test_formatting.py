"""The formatter of figures; what was not measured is never a zero."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl import formatting
from mpctl.report.values import outcome_sign, outcome_word
from mpctl.stats.confidence import Interval


def made(value, low=None, high=None):
    return Interval(value, low, high, 9, "rounds", 0.95)


FORMS = (formatting.number, formatting.ratio, formatting.share, formatting.milliseconds)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_was_not_measured_is_a_question_mark(form, value):
    assert form(value) == "?"


@pytest.mark.parametrize("unit", ["x", "ms", "share", "", "tokens"])
@given(value=st.one_of(st.none(), st.floats()))
def test_every_value_in_every_unit_is_a_short_text(unit, value):
    text = formatting.in_unit(value, unit)
    assert text
    assert (text == "?") is (value is None or not math.isfinite(value))


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (formatting.ratio(2.444), "2.44x"),
        (formatting.share(0.959), "95.9%"),
        (formatting.milliseconds(2.953), "2.95 ms"),
        (formatting.milliseconds(21.84), "21.8 ms"),
        (formatting.milliseconds(1234.5), "1,234 ms"),
        (formatting.milliseconds(17400), "17.4 s"),
        (formatting.count(6124), "6,124"),
        (formatting.part_of(1, 32), "1 of 32"),
        (formatting.in_unit(32.0, ""), "32"),
        (formatting.in_unit(2.4, ""), "2.40"),
        (formatting.bounds(made(2, 1.5, 2.5)), "1.50x to 2.50x"),
        (formatting.bounds(made(2, 1.5)), "at least 1.50x"),
        (formatting.bounds(made(2, None, 0.1), "share"), "at most 10.0%"),
        (formatting.bounds(made(2)), ""),
        (formatting.confidence(made(2, 1.5, 2.5)), "95% CI 1.50x to 2.50x"),
        (formatting.confidence(made(2)), "no confidence interval yet"),
        (formatting.estimate(made(2, 1.5, 2.5)), "2.00x (95% CI 1.50x to 2.50x)"),
        (formatting.estimate(made(2)), "2.00x"),
        (formatting.estimate(None), "?"),
        (formatting.limit(0.1, "share"), "10%"),
        (formatting.milliseconds(-0.001), "0.00 ms"),
        (formatting.difference_ms(-0.001), "0.00 ms"),
        (formatting.difference_ms(-0.0), "0.00 ms"),
        (formatting.difference_ms(1.234), "+1.23 ms"),
        (formatting.difference_ms(-45.0), "-45.0 ms"),
        (formatting.difference_ms(100.0), "+100 ms"),
        (formatting.difference_ms(20_000.0), "+20.0 s"),
        (formatting.number(-0.001), "0.00"),
        (formatting.duration(42.0), "42 s"),
        (formatting.duration(90.0), "1.5 min"),
        (formatting.duration(7200.0), "2 h"),
        (formatting.duration(None), "?"),
        (outcome_word("missing"), "no data"),
        (outcome_sign("later"), "?"),
    ],
)
def test_a_figure_as_people_read_it(shown, text):
    assert shown == text
