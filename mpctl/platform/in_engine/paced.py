"""A server of known timing for calibrating the load client: one model, no thought. A process of its own, so that its
work is not done in the client's. Run by path, also inside a pod; imports nothing of mpctl.

``paced.py PACE`` with a ``mpctl.experiment.calibration.Pace`` as JSON listens on a free loopback port and prints it.
``POST /v1/chat/completions`` answers with a stream at that pace, whose chunks carry several tokens each, as under
speculation. ``GET /truth`` tells when it sent what: seconds from the moment a request had arrived to its first and its
last chunk. Standard input closed ends it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class PacedTimes:
    """The arguments of the paced engine; the same fields as the ``PacedTimes`` that calibrates the client."""

    ttft_s: float
    interval_s: float
    chunks: int
    per_chunk: int


class Paced:
    """The server; ``truth`` grows with every answer."""

    def __init__(self, pace: PacedTimes) -> None:
        text = "word " * pace.per_chunk
        tokens = pace.chunks * pace.per_chunk
        usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": 1 + tokens}
        self._pace = pace
        self._chunk = _event(
            {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
        )
        self._end = _event({"choices": [], "usage": usage}) + b"data: [DONE]\n\n"
        self.truth: list[dict[str, float]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one request of one connection."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            length = next(
                (
                    int(line[15:])
                    for line in head.split("\r\n")
                    if line.lower().startswith("content-length:")
                ),
                0,
            )
            body = await reader.readexactly(length)
            arrived = time.perf_counter()
            if head.startswith("POST"):
                await self._answer(writer, json.loads(body), arrived)
            else:
                payload = json.dumps(self.truth) if head.startswith("GET /truth") else ""
                writer.write(_HEAD % b"application/json" + payload.encode())
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client closed the connection
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(
        self, writer: asyncio.StreamWriter, body: dict[str, Any], arrived: float
    ) -> None:
        pace = self._pace
        writer.write(_HEAD % b"text/event-stream")
        sent: list[float] = []
        for index in range(pace.chunks):
            await _until(arrived + pace.ttft_s + index * pace.interval_s)
            writer.write(self._chunk)
            sent.append(time.perf_counter() - arrived)
        writer.write(self._end)
        last_word = str(body["messages"][-1]["content"]).strip("\"'[]{} ").split()[-1]
        self.truth.append({"number": float(last_word), "first_s": sent[0], "last_s": sent[-1]})


async def _until(moment: float) -> None:
    wait = moment - time.perf_counter()
    if wait > 0:
        await asyncio.sleep(wait)


def _event(record: dict[str, Any]) -> bytes:
    return (
        b"data: "
        + json.dumps({"object": "chat.completion.chunk", "model": "paced", **record}).encode()
        + b"\n\n"
    )


async def listen(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> None:
    """Serve connections on a free loopback port, which is printed, until standard input closes."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    async with server:
        await ended.wait()


if __name__ == "__main__":
    asyncio.run(listen(Paced(PacedTimes(**json.loads(sys.argv[1]))).serve))
