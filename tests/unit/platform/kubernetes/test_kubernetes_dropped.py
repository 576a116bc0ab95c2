"""Connections that break in the middle of an answer: a read is made again, a write is looked at first."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import ClusterConnection
from mpctl.platform.kubernetes.api.kinds import CONFIG_MAP
from mpctl.platform.kubernetes.api.replies import OutcomeUnknown, Unreachable

OBJECT = {
    "kind": "ConfigMap",
    "metadata": {"name": "c", "namespace": "ns"},
    "data": {"long": "x" * 4000},
}


class Server:
    """An API server on loopback that breaks off its first ``broken`` answers after half of the body."""

    def __init__(self, broken):
        self.broken, self.asked = broken, []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _run(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += connection.recv(65536)
                self.asked.append(head.split(b" ")[0].decode())
                body = json.dumps(OBJECT).encode()
                whole = len(self.asked) > self.broken
                lines = (
                    f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                connection.sendall(lines.encode() + (body if whole else body[: len(body) // 2]))


@pytest.fixture
def opened():
    from kubernetes.client import Configuration

    clients = []

    def client(server):
        configuration = Configuration()
        configuration.host = server.url
        clients.append(Client(ClusterConnection(configuration, "ns", "test"), sleep=lambda _: None))
        return clients[-1]

    yield client
    for one in clients:
        one.close()


def test_a_read_that_breaks_off_is_made_again(opened):
    with Server(broken=3) as server:
        assert opened(server).get(CONFIG_MAP, "c", "ns") == OBJECT
        assert server.asked == ["GET"] * 4


def test_reads_that_always_break_off_are_reported_after_a_while(opened):
    with Server(broken=1000) as server, pytest.raises(Unreachable, match="does not answer"):
        opened(server).get(CONFIG_MAP, "c", "ns")


def test_a_write_that_breaks_off_may_have_happened_and_is_not_repeated(opened):
    with Server(broken=1) as server:
        with pytest.raises(OutcomeUnknown, match="the outcome is unknown"):
            opened(server).create(CONFIG_MAP, OBJECT)
        assert server.asked == ["POST"]


def test_an_apply_is_the_same_twice_and_is_repeated(opened):
    with Server(broken=2) as server:
        assert opened(server).apply(CONFIG_MAP, OBJECT) == OBJECT
        assert server.asked == ["PATCH"] * 3


def lost_names(monkeypatch, times):
    """The resolver fails so often, as when a node's DNS restarts."""
    resolve, failed = socket.getaddrinfo, []

    def getaddrinfo(*arguments, **options):
        if len(failed) < times:
            failed.append(arguments[0])
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return resolve(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return failed


def test_a_read_outlasts_a_resolver_that_is_gone_for_a_while(opened, monkeypatch):
    failed = lost_names(monkeypatch, 3)
    with Server(broken=0) as server:
        server.url = server.url.replace("127.0.0.1", "localhost")
        assert opened(server).get(CONFIG_MAP, "c", "ns") == OBJECT
    assert failed == ["localhost"] * 3


def test_a_write_while_names_are_not_resolved_is_looked_at_again_and_not_repeated(
    opened, monkeypatch
):
    lost_names(monkeypatch, 1)
    with Server(broken=0) as server:
        server.url = server.url.replace("127.0.0.1", "localhost")
        client = opened(server)
        with pytest.raises(OutcomeUnknown, match="no answer"):
            client.create(CONFIG_MAP, OBJECT)
        assert client.get(CONFIG_MAP, "c", "ns") == OBJECT
        assert server.asked == ["GET"]
