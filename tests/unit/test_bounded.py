"""Data that others wrote: bombs, deep nesting and damage are a ValueError, never a crash or a full memory."""

import gzip

import pytest

from mpctl import bounded


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, b"\xff", "", "{", "NaN1"],
    ids=["lists", "objects", "bytes", "empty", "open", "word"],
)
def test_broken_or_deep_json_is_a_value_error(text):
    with pytest.raises(ValueError):
        bounded.loads(text)


def test_a_gzip_bomb_is_refused_before_it_is_unpacked():
    bomb = gzip.compress(b"\0" * 50 * bounded.MEBIBYTE)
    assert len(bomb) < 100_000
    with pytest.raises(ValueError, match="larger than 1 MiB"):
        bounded.gunzip(bomb, limit=bounded.MEBIBYTE)


def test_gzip_data_within_the_limit_is_unpacked():
    assert bounded.gunzip(gzip.compress(b"record")) == b"record"


@pytest.mark.parametrize(
    "data", [b"", b"no gzip", gzip.compress(b"record")[:-9]], ids=["empty", "text", "cut"]
)
def test_damaged_gzip_data_is_a_value_error(data):
    with pytest.raises(ValueError, match="gzip data"):
        bounded.gunzip(data)
