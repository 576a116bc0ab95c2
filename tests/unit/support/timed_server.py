"""A server of known timing for any client of the OpenAI API: real HTTP and SSE on loopback, no model.

``timed_server.py TTFT_S INTERVAL_S CHUNKS`` prints its port. Every answer begins ``TTFT_S`` after its request arrived
and has one token per chunk, one every ``INTERVAL_S``. ``GET /truth`` gives, for each answer, the seconds from the
arrival of its request to the moments at which the first and the last chunk were written; ``DELETE /truth`` forgets
them. A late chunk is late in the truth as well, so the server's own lateness is no client's error. Standard input
closed ends it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress

from mpctl.platform.in_engine.paced import listen

MODEL = "timed"


class TimedServer:
    """The server; ``truth`` grows with every answer."""

    def __init__(self, ttft_s: float, interval_s: float, chunks: int) -> None:
        self._ttft_s, self._interval_s, self._chunks = ttft_s, interval_s, chunks
        self.truth: list[tuple[float, float]] = []
        usage = {"prompt_tokens": 1, "completion_tokens": chunks, "total_tokens": 1 + chunks}
        text = {
            "delta": {"content": "word "},
            "text": "word ",
        }  # of the chat API and of the older one
        self._chunk = _event([{"index": 0, **text, "finish_reason": None}])
        self._last = _event([{"index": 0, **text, "finish_reason": "length"}])
        self._end = _event([], usage=usage) + _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, its requests one after the other."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lengths = [
                    line[15:]
                    for line in head.lower().split("\r\n")
                    if line.startswith("content-length:")
                ]
                await reader.readexactly(int(lengths[0]) if lengths else 0)
                arrived = time.perf_counter()
                method, path, _ = head.split(" ", 2)
                if path.endswith("/completions"):
                    await self._answer(writer, arrived)
                else:
                    writer.write(_page(self._page(method, path)))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client went away, which is its business
        finally:
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def _page(self, method: str, path: str) -> object:
        if path == "/truth":
            truths = list(self.truth)
            if method == "DELETE":
                self.truth.clear()
            return truths
        return {"object": "list", "data": [{"id": MODEL, "object": "model"}]}

    async def _answer(self, writer: asyncio.StreamWriter, arrived: float) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head)
        first = last = 0.0
        for index in range(self._chunks):
            wait = arrived + self._ttft_s + index * self._interval_s - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            writer.write(self._chunk if index + 1 < self._chunks else self._last)
            last = time.perf_counter() - arrived
            first = first or last
        self.truth.append((first, last))
        writer.write(self._end)


def _event(choices: list[object], **more: object) -> bytes:
    record = {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": choices,
        **more,
    }
    return _framed(b"data: " + json.dumps(record).encode() + b"\n\n")


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _page(record: object) -> bytes:
    body = json.dumps(record).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


if __name__ == "__main__":
    timed = TimedServer(float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
    asyncio.run(listen(timed.serve))
