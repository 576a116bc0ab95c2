"""Waiting for a change by a watch, against a server on loopback."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from kubernetes.client import Configuration

from mpctl.platform.kubernetes.api.api_client import CannotWatch, Client
from mpctl.platform.kubernetes.api.connection import ClusterConnection
from mpctl.platform.kubernetes.api.kinds import DEPLOYMENT

EVENT = b'{"type":"MODIFIED","object":{"kind":"Deployment"}}\n'
LATER_S = 0.3


def watch(answer, timeout_s=5.0):
    """What a client that waits for ``demo`` at version 7 says, its request line, and how long it waited."""
    listener = socket.create_server(("127.0.0.1", 0))
    lines = []

    def serve():
        connection, _ = listener.accept()
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(65536)
            lines.append(head.split(b"\r\n")[0].decode())
            answer(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{listener.getsockname()[1]}"
    began = time.monotonic()
    try:
        client = Client(ClusterConnection(configuration, "ns", "context"), sleep=lambda _: None)
        return (
            client.changed(DEPLOYMENT, "demo", "ns", "7", timeout_s),
            lines,
            time.monotonic() - began,
        )
    finally:
        thread.join()
        listener.close()


def streamed(connection, *chunks):
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for chunk in chunks:
        time.sleep(LATER_S)
        connection.sendall(b"%x\r\n%s\r\n" % (len(chunk), chunk))


def test_it_returns_with_the_first_event_although_the_answer_goes_on():
    def answer(connection):
        streamed(connection, EVENT)
        connection.recv(1)  # until the client has gone

    changed, (line,), waited = watch(answer)
    assert changed
    assert LATER_S <= waited < 4
    assert (
        "/apis/apps/v1/namespaces/ns/deployments?watch=1&fieldSelector=metadata.name%3Ddemo" in line
    )
    assert "resourceVersion=7" in line
    assert "timeoutSeconds=5" in line


def test_a_watch_that_ends_without_an_event_saw_no_change():
    changed, _, _ = watch(lambda connection: streamed(connection, b""))
    assert not changed


@pytest.mark.parametrize("code", [403, 410, 503])
def test_a_refused_watch_is_told(code):
    def answer(connection):
        connection.sendall(f"HTTP/1.1 {code} No\r\nContent-Length: 2\r\n\r\n{{}}".encode())

    with pytest.raises(CannotWatch, match=str(code)):
        watch(answer)


def test_a_connection_that_breaks_is_told():
    with pytest.raises(CannotWatch):
        watch(
            lambda connection: connection.sendall(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
            )
        )
