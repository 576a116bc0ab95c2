"""Reads of a service's objects within a second: answered once, and anew after whatever may have changed them."""

from __future__ import annotations

import json
import threading
import weakref
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kubernetes.client import Configuration

from mpctl.errors import MpctlError
from mpctl.platform.kubernetes.api.api_client import Client, RecentReads
from mpctl.platform.kubernetes.api.connection import ClusterConnection
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP, CONTROLLER_REVISION, DEPLOYMENT, LEASE

OBJECT = {"metadata": {"name": "demo", "namespace": "ns", "uid": "u", "resourceVersion": "1"}}


class Server(ThreadingHTTPServer):
    """Answers every request with the same object, or with ``refuses``."""

    def __init__(self):
        self.asked, self.refuses = [], 0
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    def _answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(self.command)
        body = json.dumps(OBJECT).encode()
        self.send_response(
            self.server.refuses if self.command != "GET" and self.server.refuses else 200
        )
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST = _answer  # noqa: N815  names of http.server

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with Server() as actual_server:
        threading.Thread(target=actual_server.serve_forever, daemon=True).start()
        yield actual_server
        actual_server.shutdown()


@pytest.fixture
def client(server, monkeypatch):
    monkeypatch.setattr(
        "mpctl.platform.kubernetes.api.api_client._RECENT_S", 3600.0
    )  # no test depends on its own speed
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.server_port}"
    actual_client = Client(ClusterConnection(configuration, "ns", "context"), sleep=lambda _: None)
    yield actual_client
    actual_client.close()


def read(client):
    return client.get(DEPLOYMENT, "demo", "ns")


def test_what_was_just_read_is_not_read_again_and_belongs_to_its_reader(client, server):
    read(client)["metadata"]["name"] = "changed by its reader"
    assert read(client) == OBJECT
    assert server.asked == ["GET"]


def test_what_was_read_longer_ago_is_read_again(client, server, monkeypatch):
    read(client)
    monkeypatch.setattr("mpctl.platform.kubernetes.api.api_client._RECENT_S", 0.0)
    read(client)
    assert server.asked == ["GET", "GET"]


def test_answers_are_not_kept_longer_than_they_serve(monkeypatch):
    monkeypatch.setattr("mpctl.platform.kubernetes.api.api_client._RECENT_S", 0.0)
    reads = RecentReads()
    first = weakref.ref(reads.read("a", lambda: {"of a"}))
    assert first() is not None
    reads.read("b", set)
    assert first() is None


def test_a_write_a_refused_write_and_a_refused_dry_run_are_followed_by_a_read(client, server):
    for refuses, dry_run in ((0, False), (409, False), (409, True)):
        read(client)
        server.asked.clear()
        server.refuses = refuses
        try:
            client.replace(DEPLOYMENT, OBJECT, dry_run=dry_run)
        except MpctlError:
            assert refuses
        read(client)
        assert server.asked == ["PUT", "GET"]


def test_a_dry_run_and_a_record_of_mpctl_change_nothing_that_was_read(client, server):
    read(client)
    client.replace(DEPLOYMENT, OBJECT, dry_run=True)
    client.create(CONTROLLER_REVISION, OBJECT)
    client.replace(LEASE, OBJECT)
    read(client)
    assert server.asked == ["GET", "PUT", "POST", "PUT"]


@pytest.mark.parametrize("kind", [LEASE, CONTROLLER_REVISION, CONFIG_MAP])
def test_records_and_locks_that_other_commands_write_are_always_read(client, server, kind):
    client.get(kind, "demo", "ns")
    client.get(kind, "demo", "ns")
    assert server.asked == ["GET", "GET"]


def test_after_a_watch_everything_is_read_again(client, server):
    read(client)
    client.changed(DEPLOYMENT, "demo", "ns", "1", 1.0)
    read(client)
    assert server.asked == ["GET", "GET", "GET"]


def test_one_reading_asks_once_for_what_is_else_read_each_time(client, server):
    for _ in range(2):
        client.get(CONFIG_MAP, "demo", "ns")
    assert server.asked == ["GET", "GET"]
    with client.one_reading():
        for _ in range(3):
            client.get(CONFIG_MAP, "demo", "ns")
            client.get(DEPLOYMENT, "demo", "ns")
    assert server.asked[2:] == ["GET", "GET"]
    client.get(CONFIG_MAP, "demo", "ns")
    assert len(server.asked) == 5
