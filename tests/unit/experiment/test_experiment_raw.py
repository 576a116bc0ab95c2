"""The bench client's own JSON: kept whole, and put right in an open loop."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.experiment.block import corrected, held, pack, unpack
from mpctl.experiment.cell import Cell

numbers = st.floats(allow_nan=False, allow_infinity=False)
results = st.dictionaries(st.text(max_size=8), st.one_of(numbers, st.text(), st.lists(numbers)), max_size=6)


@given(results)
def test_what_is_packed_comes_back(result):
    assert unpack(json.loads(json.dumps(pack(result)))) == result


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"encoding": "plain", "data": "{}"},
        {"encoding": "gzip+base64", "data": "no base64!"},
        {**pack({}), "data": "AAAA"},
    ],
)
def test_what_was_not_packed_is_refused(record):
    with pytest.raises((ValueError, OSError)):
        unpack(record)


def test_in_an_open_loop_time_begins_when_a_request_was_due():
    result = {"ttfts": [0.1, 0.2], "queue_times": [0.5, -1e-9], "duration": 1.0}
    opened = corrected(result, Cell("edits", 256, rate=2.0))
    assert opened == {"ttfts": [0.6, 0.2], "queue_times": [0.5, -1e-9], "duration": 1.0}
    assert corrected(result, Cell("edits", 8)) == result
    assert (held(result, Cell("edits", 256, rate=2.0)), held(result, Cell("edits", 8))) == ([0.5, 0.0], [])


@pytest.mark.parametrize("waits", [None, [0.1], "no list"])
def test_a_client_that_tells_no_waits_is_left_as_it_is(waits):
    result = {"ttfts": [0.1, 0.2], "queue_times": waits}
    assert corrected(result, Cell("edits", 256, rate=2.0)) == result
