"""Whoever listens on a port of this machine: only a process of this user gets a byte."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager, suppress

import pytest
from squatter import NOBODY, answering, needs_root, squatting

from mpctl.errors import MpctlError
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError
from mpctl.platform import http, port_owner
from mpctl.platform.client import StreamClient
from mpctl.platform.meter import HttpMeter
from mpctl.platform.port_owner import NotThisUser, listener_of, require_this_user
from mpctl.rollout.ports import Endpoint, LoadOrder


@contextmanager
def listening(host="127.0.0.1", family=socket.AF_INET, port=0):
    with socket.socket(family) as listener:
        listener.bind((host, port))
        listener.listen()
        yield listener.getsockname()[1]


def free_port():
    with listening() as port:
        return port


@pytest.mark.parametrize(
    ("host", "family"),
    [("127.0.0.1", socket.AF_INET), ("0.0.0.0", socket.AF_INET), ("::", socket.AF_INET6)],
)
def test_the_listener_of_a_port_is_told_with_its_user(host, family):
    with listening(host, family) as port:
        assert listener_of(port)[0] == os.geteuid()
        require_this_user(port)
    assert listener_of(port) is None
    with pytest.raises(NotThisUser, match="nothing listens"):
        require_this_user(port)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_the_kernels_answer_and_its_table_agree(host):
    with listening(host) as port:
        assert port_owner._asked(port) == port_owner._listed(port) == listener_of(port)


def test_without_the_kernels_answer_its_table_tells(monkeypatch):
    def unknown(_port):
        raise OSError("sock_diag is not offered")

    monkeypatch.setattr(port_owner, "_asked", unknown)
    with listening() as port:
        assert listener_of(port)[0] == os.geteuid()


def test_a_free_port_is_told_by_the_kernel_without_its_table(monkeypatch):
    """While an engine starts it is asked several times a second, and the table may have thousands of lines."""
    with listening() as port:
        pass
    monkeypatch.setattr(port_owner, "_listed", lambda _: pytest.fail("the table was read"))
    assert listener_of(port) is None


def test_a_listener_on_another_address_is_not_who_answers():
    with listening("127.0.0.2") as port:
        assert listener_of(port) is None


def test_another_listener_of_this_user_in_between_is_noticed():
    with listening() as port:
        before = require_this_user(port)
    with listening(port=port), pytest.raises(NotThisUser, match="changed while"):
        require_this_user(port, before)


@needs_root
def test_another_user_is_named(tmp_path):
    port = free_port()
    with (
        squatting(port, tmp_path / "log"),
        pytest.raises(NotThisUser, match=f"another user .uid {NOBODY}"),
    ):
        require_this_user(port)


def key_and_prompt(port):
    return Endpoint(f"http://127.0.0.1:{port}", "demo", token="sk-key", same_user=True)


@needs_root
def test_no_key_and_no_request_reach_another_user(tmp_path):
    """The meter in front of a squatted port."""
    port = free_port()
    meter = HttpMeter(StreamClient(), "/")
    with squatting(port, tmp_path / "log") as squatter:
        with pytest.raises(MpctlError, match="another user"):
            meter.complete(key_and_prompt(port))
        with pytest.raises(CounterError, match="another user"):
            meter.counters(key_and_prompt(port))
        with suppress(CounterError):
            meter.describe(key_and_prompt(port))
        assert squatter.heard == ""
        http.get(f"http://127.0.0.1:{port}/", headers={"Authorization": "sk-other"})
        assert "sk-other" in squatter.heard, "the squatter listens"


@pytest.fixture
def engine():
    with answering() as port:
        yield port


def sent_by_the_load_client(port):
    """The errors of a block of one request."""
    result = StreamClient().run(key_and_prompt(port), LoadOrder(("prompt",), Cell("edits", 1), 8))
    return [request.error for request in result.requests]


def test_a_load_client_reaches_this_users_engine(engine):
    assert ["HTTP 501" in error for error in sent_by_the_load_client(engine)] == [True]


@needs_root
def test_a_load_client_sends_nothing_to_another_user(tmp_path):
    port = free_port()
    with squatting(port, tmp_path / "log") as squatter:
        (error,) = sent_by_the_load_client(port)
        assert "another user" in error
        assert squatter.heard == ""


def test_this_users_engine_answers(engine):
    assert http.get(f"http://127.0.0.1:{engine}/", socket=http.SAME_USER).text == "ok"
