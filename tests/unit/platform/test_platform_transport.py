"""The bench client's lean transport against servers that answer in every way HTTP/1.1 allows."""

import asyncio
import json
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpctl.platform.load import ENGINE_SIDE

sys.path.insert(0, str(ENGINE_SIDE))
from transport import Session, usable

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def framed(*parts):
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"


def exchange(*answers, requests=1, end=False):
    """What a client reads of its requests when a server writes these pieces for each, and what the server got. ``end``:
    the server closes the connection after each answer."""

    async def run():
        got, connections, tasks = [], [], []

        async def serve(reader, writer):
            connections.append(writer)
            tasks.append(asyncio.current_task())
            try:
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                    got.append((head, json.loads(await reader.readexactly(length))))
                    for piece in answers:
                        writer.write(piece)
                        await asyncio.sleep(0)
                        await writer.drain()
                    if end:
                        break
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        session, bodies = Session(), []
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"
        try:
            for number in range(requests):
                async with session.post(url=url, json={"n": number}, headers={"X-Key": "ä"}) as response:
                    bodies.append((response.status, await response.read()))
                if end:
                    await asyncio.sleep(0.01)  # the connection's end arrives
        finally:
            session.close()
            server.close()
            await asyncio.gather(*tasks)
        return bodies, got, len(connections)

    return asyncio.run(run())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5), st.lists(st.integers(1, 300), max_size=4))
def test_a_body_in_chunks_is_read_wherever_it_is_cut(parts, cuts):
    whole = CHUNKED + framed(*parts)
    places = sorted({0, len(whole), *(cut % len(whole) for cut in cuts)})
    pieces = [whole[a:b] for a, b in pairwise(places)]
    bodies, _, _ = exchange(*pieces)
    assert bodies == [(200, b"".join(parts))]


def test_a_connection_is_used_again():
    bodies, got, connections = exchange(CHUNKED + framed(b"x"), requests=3)
    assert bodies == [(200, b"x")] * 3
    assert [body["n"] for _, body in got] == [0, 1, 2]
    assert connections == 1
    assert got[0][0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert "X-Key: ä".encode("latin-1") in got[0][0]


def test_a_kept_connection_that_was_closed_is_replaced():
    bodies, got, connections = exchange(CHUNKED + framed(b"x"), requests=2, end=True)
    assert bodies == [(200, b"x")] * 2
    assert [body["n"] for _, body in got] == [0, 1]
    assert connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Content-Length: 5\r\n\r\nhello",
        HEAD + b"Connection: close\r\n\r\nhello",
        HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + framed(b"he", b"llo"),
    ],
)
def test_every_kind_of_body_is_read(answer):
    bodies, _, _ = exchange(answer, requests=2, end=b"close" in answer)
    assert bodies == [(200, b"hello")] * 2


def test_an_error_has_its_status_and_reason():
    bodies, _, _ = exchange(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
    assert bodies == [(503, b"")]


@pytest.mark.parametrize("answer", [CHUNKED + b"5\r\nhe", HEAD + b"Content-Length: 9\r\n\r\nhello", b"HTTP/1.1 200"])
def test_an_answer_that_ends_too_early_is_an_error(answer):
    with pytest.raises(OSError, match="closed the connection"):
        exchange(answer, end=True)


def test_only_plain_http_without_a_proxy(monkeypatch):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.delenv("HTTP_PROXY", raising=False)
    assert usable("http://10.0.0.7:8000/v1")
    assert not usable("https://10.0.0.7:8000/v1")
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    assert not usable("http://10.0.0.7:8000/v1")
    monkeypatch.setenv("no_proxy", "*")
    assert usable("http://10.0.0.7:8000/v1")
