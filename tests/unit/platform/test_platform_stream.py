"""The load client against servers on this machine: what it sends, in which order, and what it returns."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mpctl.experiment.block import LoadResult
from mpctl.experiment.calibration import Pace
from mpctl.experiment.cell import Cell
from mpctl.platform import http, stream
from mpctl.platform.client import StreamClient
from mpctl.platform.meter import HttpMeter
from mpctl.platform.stream import LoadTarget, send_block
from mpctl.rollout.ports import LoadOrder


def event(record):
    return b"data: " + json.dumps(record).encode() + b"\n\n"


def said(text, **more):
    return event({"choices": [{"delta": {"content": text}, **more}]})


USAGE = event({"choices": [], "usage": {"completion_tokens": 5}})
DONE = b"data: [DONE]\n\n"
ANSWER = said("a") + said("b") + USAGE + DONE
PLAIN = b"HTTP/1.1 200 OK\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunked(body, size):
    """The body in chunks of ``size`` bytes, wherever they cut it."""
    parts = (body[start : start + size] for start in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@asynccontextmanager
async def serving(answer, **options):
    """A server; ``answer`` gives the bytes for a request's body. Yields its port, the requests and the connections."""
    requests, connections = [], []

    async def serve(reader, writer):
        connections.append(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length:")[2].split("\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                requests.append((head, body))
                reply = answer(body)
                reply = await reply if asyncio.iscoroutine(reply) else reply
                writer.write(reply)
                await writer.drain()
                if not reply.startswith(CHUNKED):
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, **options)
    async with server:
        yield server.sockets[0].getsockname()[1], requests, connections


def block(
    answer,
    bodies,
    *,
    token=None,
    scheme="http",
    host="127.0.0.1",
    concurrency=1,
    options=None,
    **more,
):
    """Send a block; its rows, what the server got, and over how many connections."""

    async def run():
        async with serving(answer, **(options or {})) as (port, requests, connections):
            target = LoadTarget(f"{scheme}://{host}:{port}", token)
            result = await send_block(target, bodies, concurrency=concurrency, **more)
            return result["requests"], requests, len(connections)

    return asyncio.run(run())


def one(reply, **more):
    (row,), _, _ = block(lambda _: reply, [{}], **more)
    return row


@pytest.mark.parametrize(
    "reply", [PLAIN + ANSWER, *(CHUNKED + chunked(ANSWER, size) for size in (1, 7, 40, 9999))]
)
def test_an_answer_is_read_however_it_is_cut(reply):
    row = one(reply)
    assert (row["text"], row["tokens"], row["error"], len(row["gaps_s"])) == ("ab", 5, "", 1)
    assert row["ttft_s"] > 0
    assert row["held_s"] == 0.0


def test_tokens_come_from_the_usage_record_and_never_from_chunks():
    assert one(PLAIN + said("a") * 9 + USAGE + DONE)["tokens"] == 5
    assert one(PLAIN + said("a") * 9 + DONE)["tokens"] == 0


def test_token_ids_are_read_from_the_messages():
    prompt = event({"prompt_token_ids": [1, 2], "choices": [{"delta": {"content": ""}}]})
    row = one(
        PLAIN + prompt + said("a", token_ids=[7]) + said("b", token_ids=[8, 9]) + USAGE + DONE
    )
    assert (row["prompt_ids"], row["ids"]) == ([1, 2], [7, 8, 9])


def test_the_finish_reason_is_that_of_the_last_message_that_has_one():
    ended = event({"choices": [{"delta": {}, "finish_reason": "length"}]})
    assert one(PLAIN + said("a", finish_reason=None) + ended + USAGE + DONE)["finish"] == "length"
    assert one(PLAIN + ANSWER)["finish"] == ""


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (
            b'HTTP/1.1 400 Bad Request\r\n\r\n{"message": "too long"}',
            'HTTP 400: {"message": "too long"}',
        ),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n", "HTTP 302"),
        (PLAIN + said("a"), "the stream was cut off"),
        (CHUNKED + b"5\r\ndata:\r\n0\r\n\r\n", "the stream was cut off"),
        (CHUNKED + b"zz\r\n", "invalid literal"),
        (CHUNKED + b"-5\r\n", "less than zero"),
        (b"no HTTP\r\n\r\n", "HTTP http"),
        (b"", "0 bytes read"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 40_000, "limit"),
        (PLAIN + event({"error": {"message": "out of memory"}}) + DONE, "out of memory"),
        (PLAIN + b"data: {\n\n" + DONE, "Expecting property name"),
        (PLAIN + b"data: " + b"[" * 100_000 + b"\n\n" + DONE, "recursion"),
        (PLAIN + b"data: 7\n\n" + DONE, "not iterable"),
        (PLAIN + event({"choices": 7}) + DONE, "not iterable"),
    ],
)
def test_an_answer_that_cannot_be_used_is_an_error_of_its_request_alone(reply, error):
    row = one(reply)
    assert error in row["error"]
    LoadResult.read({"started": "", "duration_s": 1.0, "requests": [row]})


@pytest.mark.parametrize("head", [PLAIN, CHUNKED])
@pytest.mark.parametrize(
    ("line", "limit"), [(b"", "a message is larger"), (b"\n", "the answer is larger")]
)
def test_an_endless_answer_is_left_at_its_bound(monkeypatch, head, line, limit):
    monkeypatch.setattr(stream, "MESSAGE_BYTES", 100_000)
    monkeypatch.setattr(stream, "ANSWER_BYTES", 300_000)
    endless = b"data: " + (b"x" * 50_000 + line) * 20
    assert limit in one(head + (chunked(endless, 30_000) if head == CHUNKED else endless))["error"]


def test_the_limits_hold_the_token_ids_of_the_longest_prompts():
    assert stream.MESSAGE_BYTES > 7 * 262_144


def test_a_closed_loop_sends_in_order_and_keeps_its_concurrency():
    running, most = 0, 0

    def answer(body):
        async def later():
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            return CHUNKED + chunked(said(str(body["n"])) + USAGE + DONE, 99)

        return later()

    rows, requests, connections = block(answer, [{"n": n} for n in range(12)], concurrency=3)
    assert [row["text"] for row in rows] == [str(n) for n in range(12)]
    assert [body["n"] for _, body in requests][:3] == [0, 1, 2]
    assert (most, connections) == (3, 3)  # connections are used again


def test_an_open_loop_counts_the_time_that_a_request_was_held_back():
    """Ten requests due within a few milliseconds, one at a time."""

    def answer(body):
        async def later():
            await asyncio.sleep(0.02)
            return PLAIN + ANSWER

        return later()

    rows, _, _ = block(answer, [{}] * 10, concurrency=1, rate=10_000.0, seed=3)
    assert rows[-1]["held_s"] > 8 * 0.02
    assert all(row["ttft_s"] > row["held_s"] + 0.02 * 0.9 for row in rows)


def test_arrivals_follow_from_the_seed(monkeypatch):
    due = []
    expovariate = stream.random.Random.expovariate
    monkeypatch.setattr(
        stream.random.Random,
        "expovariate",
        lambda self, rate: due.append(expovariate(self, rate)) or 0,
    )
    for seed in (1, 1, 2):
        block(lambda _: PLAIN + ANSWER, [{}] * 4, concurrency=4, rate=2.0, seed=seed)
    assert due[:4] == due[4:8] != due[8:]


def test_the_token_is_sent_and_nothing_follows_the_environment(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    _, ((head, body),), _ = block(lambda _: PLAIN + ANSWER, [{"n": 1}], token="sk-1", salt="s1")
    assert head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert "Authorization: Bearer sk-1\r\n" in head
    assert body == {"n": 1, "cache_salt": "s1"}


def test_another_listener_than_before_the_connection_gets_nothing():
    """The attack: a process takes the port of an engine between the check and the connection."""
    listeners = iter("ab")

    async def run():
        async with serving(lambda _: PLAIN + ANSWER) as (port, requests, _):
            target = LoadTarget(f"http://127.0.0.1:{port}", check=lambda: next(listeners))
            return await send_block(target, [{}], concurrency=1), requests

    result, requests = asyncio.run(run())
    assert "the listener changed" in result["requests"][0]["error"]
    assert requests == []


@pytest.fixture
def authority(tmp_path):
    """A certificate authority and a certificate of localhost."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*words, *names, "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return certificate, {"ssl": context}


def test_an_engine_over_https_is_verified_by_the_named_authority(authority, monkeypatch):
    certificate, options = authority
    rows, requests, _ = block(
        lambda _: PLAIN + ANSWER, [{}], scheme="https", host="localhost", options=options
    )
    assert "certificate verify failed" in rows[0]["error"]
    assert requests == []
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    rows, _, _ = block(
        lambda _: PLAIN + ANSWER, [{}], scheme="https", host="localhost", options=options
    )
    assert (rows[0]["text"], rows[0]["error"]) == ("ab", "")
    rows, requests, _ = block(lambda _: PLAIN + ANSWER, [{}], scheme="https", options=options)
    assert "IP address mismatch" in rows[0]["error"]
    assert requests == []


def test_the_models_of_such_a_server_are_asked_by_the_same_authority(authority, monkeypatch):
    certificate, options = authority

    async def ask():
        async with serving(lambda _: PLAIN, **options) as (port, *_):
            url = f"https://localhost:{port}/v1/models"
            return await asyncio.to_thread(http.request, "POST", url, json={}, seconds=20)

    with pytest.raises(http.NoAnswer, match="certificate"):
        asyncio.run(ask())
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert asyncio.run(ask()).status == 200


def test_an_engine_behind_a_unix_socket_is_measured(tmp_path):
    """A port-forward of this machine has one."""
    path = str(tmp_path / "s")

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(PLAIN + ANSWER)
        await writer.drain()
        writer.close()

    async def run():
        async with await asyncio.start_unix_server(serve, path):
            return await send_block(
                LoadTarget("http://pod-1:8000", socket=path), [{}, {}], concurrency=2
            )

    assert [(row["text"], row["tokens"]) for row in asyncio.run(run())["requests"]] == [
        ("ab", 5)
    ] * 2


@pytest.mark.parametrize("concurrency", [1, 8, 32, 64])
def test_against_the_server_of_known_timing_every_request_and_token_is_counted(concurrency):
    pace = Pace(ttft_s=0.005, interval_s=0.001)
    prompts = tuple(f"request {number}" for number in range(2 * concurrency))
    client = StreamClient()
    with client.paced(pace) as server:
        result = client.run(
            server.endpoint, LoadOrder(prompts, Cell("paced", concurrency), pace.tokens)
        )
        answered = sorted(int(record["number"]) for record in server.truth())
    assert answered == list(range(len(prompts)))
    assert [request.error for request in result.requests] == [""] * len(prompts)
    assert {request.tokens for request in result.requests} == {pace.tokens}
    assert {request.text for request in result.requests} == {"word " * pace.tokens}
    assert result.chunks == len(prompts) * pace.chunks


def test_the_client_is_calibrated():
    calibration = HttpMeter(StreamClient(), "/").calibrate(4)
    assert (calibration.concurrency, calibration.requests) == (4, 50)
    assert calibration.chunks_per_s > 0


def test_stream_py_runs_without_mpctl(tmp_path):
    """A load pod has this one file and a Python."""
    copied = tmp_path / "alone.py"
    copied.write_text(Path(stream.__file__).read_text())
    subprocess.run(["python3", "-I", str(copied)], check=True, cwd=tmp_path)
    assert "mpctl" not in copied.read_text().partition("from __future__")[2]
