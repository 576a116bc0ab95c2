"""Requests to hostile servers: endless, slow, compressed and redirected answers end with an error."""

import gzip
import itertools
import socket
import threading
import time

import pytest

from mpctl.platform import http

HEAD = b"HTTP/1.1 200 OK\r\n"


class Server:
    """Answers every connection with the bytes of ``parts()``, and keeps the requests."""

    def __init__(self, parts, pause_s=0.0):
        self.requests = []
        self._parts, self._pause_s = parts, pause_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1/models"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.requests.append(connection.recv(65536).decode())
                try:
                    for part in self._parts():
                        connection.sendall(part)
                        time.sleep(self._pause_s)
                except OSError:
                    continue  # the client went away

    def close(self):
        self._listener.close()


@pytest.fixture
def served():
    servers = []

    def serve(parts, pause_s=0.0):
        servers.append(Server(parts, pause_s))
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


def test_an_answer_is_read(served):
    server = served(lambda: [HEAD + b"Content-Length: 8\r\n\r\n", b'{"a": 1}'])
    assert http.get(server.url, headers={"Authorization": "Bearer k"}).json() == {"a": 1}
    request = server.requests[0].lower()
    assert "accept-encoding: identity" in request
    assert "authorization: bearer k" in request


def test_an_endless_answer_ends_at_the_limit(served):
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    server = served(
        lambda: itertools.chain(
            [HEAD + b"Transfer-Encoding: chunked\r\n\r\n"], itertools.repeat(chunk)
        )
    )
    with pytest.raises(http.NoAnswer, match="larger than 1 MiB"):
        http.get(server.url, limit=2**20)


SLOW = {
    "body": HEAD + b"Content-Length: 1000\r\n\r\n",
    "header": HEAD + b"X-Long: ",
    "status": b"HTTP/1.1 200 ",
}


@pytest.mark.parametrize("head", SLOW.values(), ids=SLOW)
def test_one_byte_at_a_time_ends_at_the_deadline(served, head):
    server = served(lambda: itertools.chain([head], itertools.repeat(b"a")), 0.05)
    began = time.monotonic()
    with pytest.raises(http.NoAnswer, match="no complete answer"):
        http.get(server.url, seconds=0.5)
    assert time.monotonic() - began < 2.0


def test_a_compressed_answer_is_refused(served):
    bomb = gzip.compress(b"\0" * 2**24)
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    server = served(lambda: [head, bomb])
    with pytest.raises(http.NoAnswer, match="encoded although identity"):
        http.get(server.url)


def test_a_redirect_is_not_followed_and_no_proxy_is_asked(served, monkeypatch):
    other = served(lambda: [HEAD + b"\r\n"])
    location = (
        b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n" % other.url.encode()
    )
    server = served(lambda: [location])
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, other.url)
    assert http.get(server.url, headers={"Authorization": "Bearer k"}).status == 302
    assert other.requests == []


def test_deep_json_is_a_value_error(served):
    body = b"[" * 200_000
    server = served(lambda: [HEAD + b"Content-Length: %d\r\n\r\n" % len(body), body])
    with pytest.raises(ValueError, match="nested too deeply"):
        http.get(server.url).json()


def test_nobody_there_is_named(served):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(http.NoAnswer, match="refused"):
        http.get(f"http://127.0.0.1:{port}/")


def test_a_requested_compression_has_a_limit_of_its_own(served):
    bomb = gzip.compress(b"\0" * 2**24)
    head = HEAD + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    server = served(lambda: [head, bomb])
    with pytest.raises(http.NoAnswer, match="larger than 1 MiB when decompressed"):
        http.get(server.url, decompressed=2**20)
    assert len(http.get(server.url, decompressed=2**24).body) == 2**24
