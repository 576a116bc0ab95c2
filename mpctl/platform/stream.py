"""Send a block of streamed chat requests and time them. Standard library only: a load pod runs the same file.

A closed loop keeps ``concurrency`` requests in flight. An open loop sends at Poisson arrivals of ``rate``, which follow
from ``seed``, and holds a request back while ``concurrency`` are in flight: its time to first token begins when it was
due. Tokens come from the usage record, never from chunks. Messages are kept while requests are timed and read when the
block is over.

Neither proxies nor redirects are followed. An engine over HTTPS is verified by the authorities that this system trusts,
or by those in the file that ``SSL_CERT_FILE`` names.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

MESSAGE_BYTES = 4 * 2**20  # the first one holds the token ids of the prompt: 7 bytes each
ANSWER_BYTES = 64 * 2**20
_ERROR_BYTES = 4096
_IDLE_S = 1.0  # uvicorn closes an idle connection after 5 s
_PATH = "/v1/chat/completions"
_END = b"data: [DONE]"


@dataclass
class TimedRequest:
    """A request while it is sent, by the clock of ``time.perf_counter``."""

    due: float = 0.0
    sent: float = 0.0
    moments: list[float] = field(default_factory=list)  # when each message was complete
    messages: list[bytes] = field(default_factory=list)
    error: str = ""


@dataclass(frozen=True)
class LoadTarget:
    """An engine. ``socket``: a unix socket in place of the address; ``check``: called before and after a connection is
    opened, returns who listens and raises OSError to send nothing."""

    base_url: str
    token: str | None = None
    socket: str | None = None
    check: Callable[[], object] = lambda: None

    async def connect(
        self, secure: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection; whoever listens must be the same before and after.

        Raises:
            OSError: nothing answers, its certificate is not trusted, or another process listens.
        """
        before, url = self.check(), urlsplit(self.base_url)
        if self.socket is not None:
            reader, writer = await asyncio.open_unix_connection(self.socket)
        else:
            port = url.port or (443 if secure else 80)
            reader, writer = await asyncio.open_connection(url.hostname, port, ssl=secure)
        try:
            if self.check() != before:
                raise OSError("the listener changed while a connection was opened")
        except OSError:
            writer.close()
            raise
        return reader, writer

    def head(self, length: int) -> bytes:
        """Return the head of a request with a body of ``length`` bytes."""
        url = urlsplit(self.base_url)
        lines = [
            f"POST {url.path}{_PATH} HTTP/1.1",
            f"Host: {url.netloc}",
            "Content-Type: application/json",
            f"Content-Length: {length}",
            "Accept-Encoding: identity",
        ]
        if self.token:
            lines.append(f"Authorization: Bearer {self.token}")
        return "\r\n".join([*lines, "", ""]).encode()


class Connections:
    """Connections to one engine, reused if it keeps them open."""

    def __init__(self, target: LoadTarget) -> None:
        self._target = target
        self._secure = (
            ssl.create_default_context() if target.base_url.startswith("https:") else None
        )
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, body: dict[str, Any], request: TimedRequest) -> None:
        """Send a request and keep the messages of its stream with their moments.

        Raises:
            OSError: it was not answered with a complete stream.
        """
        payload = json.dumps(body).encode()
        reader, writer = self._take_idle() or await self._target.connect(self._secure)
        reusable = False
        try:
            request.sent = time.perf_counter()
            writer.write(self._target.head(len(payload)) + payload)
            head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").lower().split("\r\n")
            status = [*first.split(), "", ""][1]
            pairs = (line.partition(":") for line in lines)
            headers = {name: value.strip() for name, _, value in pairs}
            if status != "200":
                detail = (await reader.read(_ERROR_BYTES)).decode(errors="replace")
                raise OSError(f"HTTP {status}: {' '.join(detail.split())}")
            chunked = headers.get("transfer-encoding") == "chunked"
            await _receive(_chunks(reader) if chunked else _rest(reader), request, to_end=chunked)
            reusable = chunked and headers.get("connection") != "close"
        finally:
            if reusable:
                self._idle.append((time.perf_counter(), reader, writer))
            else:
                writer.close()

    def _take_idle(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Return a connection that the engine has hardly had the time to close; None without one."""
        while self._idle:
            since, reader, writer = self._idle.pop()
            if not reader.at_eof() and time.perf_counter() - since < _IDLE_S:
                return reader, writer
            writer.close()
        return None

    def close(self) -> None:
        """Close the idle connections."""
        for _, _, writer in self._idle:
            writer.close()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).partition(b";")[0], 16):
        if size > MESSAGE_BYTES:
            raise OSError(f"a chunk is larger than {MESSAGE_BYTES // 2**20} MiB")
        yield (await reader.readexactly(size + 2))[:-2]
    while (await reader.readline()).strip():
        pass  # trailers


async def _rest(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while part := await reader.read(2**16):
        yield part


async def _receive(parts: AsyncIterator[bytes], request: TimedRequest, *, to_end: bool) -> None:
    """Keep the messages of a stream with their moments. ``to_end``: read what follows the last one, too."""
    pending, size, ended = bytearray(), 0, False
    async for part in parts:
        moment = time.perf_counter()
        size += len(part)
        pending += part
        if b"\n" in part:
            *lines, remainder = pending.split(b"\n")
            pending = remainder
            for line in lines:
                if line.startswith(b"data:"):
                    request.moments.append(moment)
                    request.messages.append(bytes(line))
                    ended = ended or line.startswith(_END)
        if ended and not to_end:
            return
        if len(pending) > MESSAGE_BYTES:
            raise OSError(f"a message is larger than {MESSAGE_BYTES // 2**20} MiB")
        if size > ANSWER_BYTES:
            raise OSError(f"the answer is larger than {ANSWER_BYTES // 2**20} MiB")
    if not ended:
        raise OSError("the stream was cut off")


async def send_block(
    target: LoadTarget,
    bodies: list[dict[str, Any]],
    *,
    concurrency: int,
    rate: float | None = None,
    seed: int = 0,
    salt: str = "",
) -> dict[str, Any]:
    """Send ``bodies``, each with the ``salt`` of the prefix cache; return when the block started, how long it took, and
    one row per request in their order: ``ttft_s`` from the moment it was due, ``held_s`` of it in the client,
    ``gaps_s`` between the messages with a part of the answer, ``tokens`` by the usage record, ``text``, ``prompt_ids``
    and ``ids`` where asked for, the ``finish`` reason, and ``error``."""
    connections, slots, arrivals = (
        Connections(target),
        asyncio.Semaphore(concurrency),
        random.Random(seed),
    )
    requests = [TimedRequest() for _ in bodies]
    started, began = datetime.now().astimezone(), time.perf_counter()

    async def send(request: TimedRequest, body: dict[str, Any]) -> None:
        try:
            await connections.post({**body, "cache_salt": salt} if salt else body, request)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            request.error = str(error) or type(error).__name__
        finally:
            slots.release()

    tasks, due = [], began
    for request, body in zip(requests, bodies, strict=True):
        if rate is not None:
            due += arrivals.expovariate(rate)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            request.due = due
        await slots.acquire()
        tasks.append(asyncio.create_task(send(request, body)))
    await asyncio.gather(*tasks)
    duration = time.perf_counter() - began
    connections.close()
    return {
        "started": started.isoformat(),
        "duration_s": duration,
        "requests": [_row(each) for each in requests],
    }


def _row(request: TimedRequest) -> dict[str, Any]:
    """Read the stream of a request when nothing is timed any more."""
    row: dict[str, Any] = {"tokens": 0, "text": "", "prompt_ids": [], "ids": [], "finish": ""}
    moments = []
    try:
        for moment, line in zip(request.moments, request.messages, strict=True):
            if line.startswith(_END):
                break
            event = json.loads(line[5:])
            if "error" in event:
                raise ValueError(f"an error within the stream: {json.dumps(event['error'])}")
            row["tokens"] = (event.get("usage") or row).get("completion_tokens", row["tokens"])
            row["prompt_ids"] += event.get("prompt_token_ids") or ()
            for choice in event.get("choices") or ():
                row["text"] += (choice.get("delta") or {}).get("content") or ""
                row["ids"] += choice.get("token_ids") or ()
                row["finish"] = str(choice.get("finish_reason") or row["finish"])
                moments.append(moment)
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        request.error = request.error or str(error)
    due = request.due or request.sent
    return {
        **row,
        "ttft_s": moments[0] - due if moments else 0.0,
        "held_s": max(request.sent - due, 0.0),
        "gaps_s": [after - before for before, after in pairwise(moments)],
        "error": request.error,
    }
