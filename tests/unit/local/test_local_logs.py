"""``mpctl local logs``: the log of the arm that gets the traffic, or of another."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mpctl.app.session.base import Place
from mpctl.errors import InputError
from mpctl.local import services as module
from mpctl.local.logs import log_path
from mpctl.local.requests import LocalLogsRequest


@pytest.fixture
def read(tmp_path, monkeypatch):
    platform = SimpleNamespace(directory=tmp_path, desired=lambda: SimpleNamespace(route="arm-1"))
    monkeypatch.setattr(
        module, "open_local", lambda place, console, name: SimpleNamespace(platform=platform)
    )
    for arm, text in (("arm-1", "a\nb\nc\n"), ("arm-2", "")):
        path = log_path(tmp_path, arm)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return lambda **asked: module.read_log(Place(), None, LocalLogsRequest(**asked))


@pytest.mark.parametrize(
    ("asked", "lines"),
    [
        ({}, ("a", "b", "c")),
        ({"tail": 2}, ("b", "c")),
        ({"tail": 0}, ()),
        ({"tail": 9}, ("a", "b", "c")),
        ({"arm": "arm-2"}, ()),
    ],
)
def test_the_lines_asked_for(read, asked, lines):
    assert read(**asked) == lines


def test_an_arm_without_a_log_is_refused_with_those_that_have_one(read):
    with pytest.raises(InputError, match="log of arm-9 not found") as caught:
        read(arm="arm-9")
    assert caught.value.hint == "logs: arm-1, arm-2"
