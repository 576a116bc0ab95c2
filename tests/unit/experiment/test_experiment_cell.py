"""Names of traffic conditions."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpctl.errors import InputError
from mpctl.experiment.cell import Cell
from mpctl.records import decode, encode

few = settings(max_examples=200, deadline=None)
positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False, allow_nan=False)
names = st.from_regex(r"[a-z0-9][a-z0-9-]{0,12}", fullmatch=True).filter(
    lambda n: not re.search(r"-r[0-9.e-]+$", n)
)
cells = st.builds(Cell, names, st.integers(1, 10**6), st.just(0.0) | positive, st.none() | positive)


@pytest.mark.parametrize(
    ("cell", "key", "label"),
    [
        (Cell("edits", 8), "edits-c8-t0", "edits, 8 at once"),
        (
            Cell("chat", 32, 0.7, 4.0),
            "chat-r4-c32-t0.7",
            "chat, 4/s and at most 32 at once, temperature 0.7",
        ),
        (
            Cell("chat", 1, 1e-7, 0.25),
            "chat-r0.25-c1-t1e-07",
            "chat, 0.25/s and at most 1 at once, temperature 1e-07",
        ),
    ],
)
def test_names(cell, key, label):
    assert (cell.key, cell.label) == (key, label)


@few
@given(cells, cells)
def test_keys_are_unique_and_may_name_files(one, two):
    assert (one.key == two.key) == (one == two)
    assert re.fullmatch(r"[a-z0-9.-]+", one.key)


@few
@given(st.lists(cells))
def test_cells_sort_and_round_trip(some):
    backwards = some[::-1]
    assert sorted(some) == sorted(backwards)
    assert [decode(Cell, json.loads(json.dumps(encode(c)))) for c in some] == some


def test_cells_sort_by_traffic_then_rate_then_concurrency():
    expected = [Cell("a", 1), Cell("a", 8), Cell("a", 8, 0.7), Cell("a", 4, 0.0, 2.0), Cell("b", 1)]
    assert sorted(expected, key=lambda c: c.key, reverse=True) != expected
    backwards = expected[::-1]
    assert sorted(backwards) == expected


@pytest.mark.parametrize(
    ("values", "field"),
    [
        (("Edits", 1), "traffic"),
        (("", 1), "traffic"),
        (("../x", 1), "traffic"),
        (("-x", 1), "traffic"),
        (("chat-r4", 1), "traffic"),  # its file would be that of chat at 4/s
        (("chat", 0), "concurrency"),
        (("chat", 1, -0.1), "temperature"),
        (("chat", 1, float("nan")), "temperature"),
        (("chat", 1, 0.0, 0.0), "rate"),
        (("chat", 1, 0.0, float("inf")), "rate"),
    ],
)
def test_what_names_no_condition_is_refused(values, field):
    with pytest.raises(InputError) as caught:
        Cell(*values)
    assert caught.value.field == field
