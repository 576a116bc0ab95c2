"""The watch's HTTP listener under slow, broken and hostile clients: a deadline per request, a limit of connections."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
import urllib.error
import urllib.request

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mpctl.errors import InputError
from mpctl.platform import listener as module
from mpctl.platform.listener import CONNECTIONS, Listener

PAGES = {("/healthz", None): (200, "ok\n"), ("/v1/flagger", b"{}"): (403, '{"verdict": "none"}\n')}


@pytest.fixture
def listener():
    listening = Listener("127.0.0.1:0", lambda path, sent: PAGES.get((path, sent)))
    yield listening
    listening.close()


def connected(listener):
    host, _, port = listener.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def is_healthy(listener):
    with urllib.request.urlopen(f"http://{listener.address}/healthz", timeout=30) as answer:
        return answer.read() == b"ok\n"


def handlers():
    return [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]


def answer_of(listener, request):
    """What a request gets until the listener ends the connection."""
    with connected(listener) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := client.recv(65536):
                answer += part
        except ConnectionResetError:
            return answer
        return answer


def test_a_listener_answers_its_pages_and_frees_its_port():
    listener = Listener("127.0.0.1:0", lambda path, sent: PAGES.get((path, sent)))
    try:
        with urllib.request.urlopen(f"http://{listener.address}/healthz", timeout=5) as answer:
            assert answer.read() == b"ok\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{listener.address}/other", timeout=5)
        with pytest.raises(urllib.error.HTTPError, match="403") as refused:
            urllib.request.urlopen(f"http://{listener.address}/v1/flagger", data=b"{}", timeout=5)
        assert refused.value.headers["Content-Type"] == "application/json"
        assert json.loads(refused.value.read()) == {"verdict": "none"}
        with pytest.raises(urllib.error.HTTPError, match="413"):
            urllib.request.urlopen(
                f"http://{listener.address}/v1/flagger", data=b"x" * 70_000, timeout=5
            )
    finally:
        listener.close()
    Listener(listener.address, lambda *_: None).close()
    for wrong in ("9464", "host:", "127.0.0.1:99999"):
        with pytest.raises(InputError, match="--listen"):
            Listener(wrong, lambda *_: None)


@pytest.mark.parametrize(
    "begin",
    [b"", b"POST /v1/flagger HTTP/1.0\r\nContent-Length: 60000\r\n\r\n"],
    ids=["head", "body"],
)
def test_a_client_that_sends_a_byte_from_time_to_time_is_cut_at_a_deadline_for_all(
    listener, monkeypatch, begin
):
    monkeypatch.setattr(module, "REQUEST_S", 0.5)
    with connected(listener) as client:
        client.settimeout(0.1)  # each byte comes well within any limit of a single read
        began = time.monotonic()
        client.sendall(begin)
        ended = False
        while not ended:
            assert time.monotonic() - began < 30
            try:
                client.sendall(b"G")
                ended = client.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert time.monotonic() - began >= 0.4


def test_connections_beyond_the_limit_end_the_oldest_and_a_probe_is_answered(listener):
    clients = [connected(listener) for _ in range(3 * CONNECTIONS)]
    try:
        assert is_healthy(listener)
        assert len(handlers()) <= CONNECTIONS
        assert clients[0].recv(1) == b""
    finally:
        for client in clients:
            client.close()


def test_a_client_that_resets_its_connection_prints_no_traceback(listener, capfd):
    for number in range(20):
        client = connected(listener)
        client.sendall(
            b"POST /v1/flagger HTTP/1.0\r\nContent-Length: 999999\r\n\r\n"
            + b"x" * 60_000 * (number % 2)
        )
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
    assert is_healthy(listener)
    assert capfd.readouterr().err == ""


def test_a_bug_in_a_page_is_an_answer_and_ends_no_other():
    pages = {"/healthz": (200, "ok\n"), "/odd": None}
    listening = Listener("127.0.0.1:0", lambda path, _: pages[path])
    try:
        assert answer_of(listening, b"GET /bug HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 500")
        assert is_healthy(listening)
    finally:
        listening.close()


HEADERS = st.dictionaries(
    st.sampled_from(["Content-Length", "Transfer-Encoding", "Host"]), st.text(max_size=8000)
)
REQUESTS = st.binary(max_size=3000) | st.builds(
    lambda verb, path, headers, body: (
        (
            f"{verb} {path} HTTP/1.1\r\n"
            + "".join(f"{name}: {text}\r\n" for name, text in headers.items())
            + "\r\n"
        ).encode()
        + body
    ),
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "\0"]),
    st.sampled_from(["/healthz", "/v1/flagger", "*", "//", "http://["]) | st.text(max_size=100),
    HEADERS,
    st.binary(max_size=1000),
)
SHARED = Listener("127.0.0.1:0", lambda path, sent: PAGES.get((path, sent)))


@settings(max_examples=200, deadline=None)
@given(REQUESTS)
@example(b"POST /v1/flagger HTTP/1.0\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")
@example("POST /v1/flagger HTTP/1.0\r\nContent-Length: \u0663\r\n\r\n".encode())
def test_any_request_is_answered_or_refused_without_a_traceback(request):
    problems = []
    handle_error = SHARED._server.handle_error
    SHARED._server.handle_error = lambda *arguments: problems.append(arguments)
    try:
        answer = answer_of(SHARED, request)
    finally:
        SHARED._server.handle_error = handle_error
    assert not answer.startswith(b"HTTP/1.0 500")
    assert problems == []
    assert is_healthy(SHARED)
