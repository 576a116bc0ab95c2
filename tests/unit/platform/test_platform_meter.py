"""Completions and time limits without an engine: what goes wrong is an MpctlError that says what."""

from __future__ import annotations

import json

import pytest

from mpctl.errors import MpctlError
from mpctl.experiment.cell import Cell
from mpctl.platform import http
from mpctl.platform.client import StreamClient
from mpctl.platform.load import limit_s
from mpctl.platform.meter import HttpMeter
from mpctl.rollout.ports import Endpoint, LoadOrder

ENDPOINT = Endpoint("http://127.0.0.1:1", "svc")
CELL = Cell("edits", 1)


@pytest.mark.parametrize(
    ("count", "max_tokens", "cell", "seconds"),
    [
        (2, 256, Cell("edits", 1), 856.0),
        (2, 256, Cell("edits", 4), 664.0),
        (8, 4096, Cell("edits", 1), 600.0 + 8 * 2048),
        (100, 256, Cell("edits", 256, rate=0.1), 600.0 + 50 + 1000),
    ],
)
def test_more_work_may_take_longer(count, max_tokens, cell, seconds):
    assert limit_s(LoadOrder(("a",) * count, cell, max_tokens)) == seconds


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"<html>", "the answer is not JSON: <html>"),
        (b"\xff", "the answer is not JSON"),
        (b"[]", "without a single token"),
        (b'{"usage": null}', "without a single token"),
        (b'{"usage": {"completion_tokens": 0}}', "without a single token"),
    ],
)
def test_a_completion_that_is_none(monkeypatch, body, message):
    monkeypatch.setattr(http, "request", lambda method, url, **_: http.HttpAnswer(200, body))
    with pytest.raises(MpctlError, match=message):
        HttpMeter(StreamClient(), ".").complete(ENDPOINT)


def test_a_completion(monkeypatch):
    body = json.dumps({"usage": {"completion_tokens": 4}}).encode()
    monkeypatch.setattr(http, "request", lambda method, url, **_: http.HttpAnswer(200, body))
    HttpMeter(StreamClient(), ".").complete(ENDPOINT)
