"""The service's own port: forwards each request to the arm that the route names when it arrives.

A connection carries one request: it is sent on with ``Connection: close``, and lives and dies with the arm that it was
sent to. So a switch of the route breaks no request that is under way, and no client keeps a connection to an arm that
stops: :meth:`Router.open` counts exactly what that arm has still to answer.
A process of another user that listens on the arm's port gets no request.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from mpctl.platform.local.in_engine.listeners import require_this_user

_CHUNK = 1 << 16


class Router:
    """Listens on loopback; ``target`` returns the port to forward a new request to, or None to refuse it."""

    def __init__(self, port: int, target: Callable[[], int | None]) -> None:
        self._port = port
        self._target = target
        self._server: asyncio.Server | None = None
        # The loop holds tasks weakly: one whose client has gone could be collected before it has ended its other side.
        self._serving: set[asyncio.Task[None] | None] = set()
        self._open: Counter[int] = Counter()
        self.error = ""

    def open(self, port: int) -> int:
        """Return the number of requests that were forwarded to a port and are not answered yet."""
        return self._open[port]

    async def ensure(self) -> None:
        """Listen, if not yet. ``error`` says why not."""
        if self._server is not None:
            return
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            self.error = ""
        except OSError as error:
            self.error = f"port {self._port}: {error.strerror or error}"

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        self._serving.add(me)
        try:
            head = await _read_head(reader)
            port = self._target() if head is not None else None
            if head is None or port is None:
                return
            self._open[port] += 1
            try:
                await _forward(head, reader, writer, port)
            finally:
                self._open[port] -= 1
        except OSError:
            return  # the arm does not run: the client sees a closed connection, as with a Service without endpoints
        finally:
            writer.close()
            self._serving.discard(me)


async def _read_head(reader: asyncio.StreamReader) -> bytes | None:
    """Read the head of a request, to be closed after its answer; empty where it is too long, None without any."""
    try:
        return _closing(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        return b""
    except asyncio.IncompleteReadError as error:
        return error.partial or None


def _closing(head: bytes) -> bytes:
    """The head with ``Connection: close``; one that asks for another protocol stays as it is."""
    first, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    names = [field.partition(b":")[0].strip().lower() for field in fields]
    if b"upgrade" in names:
        return head
    others = [field for name, field in zip(names, fields, strict=True) if name not in (b"connection", b"keep-alive")]
    return b"\r\n".join([first, *others, b"Connection: close", b"", b""])


async def _forward(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Send a request to a port, and its answer back."""
    listener = require_this_user(port)
    upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
    sending = None
    try:
        require_this_user(port, listener)
        upstream_writer.write(head)
        sending = asyncio.create_task(_pump(reader, upstream_writer))
        await _pump(upstream_reader, writer)
    finally:
        if sending is not None:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        upstream_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
