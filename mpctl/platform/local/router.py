"""The service's own port: forwards each new connection to the arm that the route names.

A connection lives and dies with the arm it was opened to, so a switch of the route breaks no request that is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

_CHUNK = 1 << 16


class Router:
    """Listens on loopback; ``target`` returns the port to forward a new connection to, or None to refuse it."""

    def __init__(self, port: int, target: Callable[[], int | None]) -> None:
        self._port = port
        self._target = target
        self._server: asyncio.Server | None = None
        # The loop holds tasks weakly: one whose client has gone could be collected before it has ended its other side.
        self._serving: set[asyncio.Task[None] | None] = set()
        self.error = ""

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
        port = self._target()
        me = asyncio.current_task()
        self._serving.add(me)
        try:
            if port is None:
                return
            upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await asyncio.gather(_pump(reader, upstream_writer), _pump(upstream_reader, writer))
            finally:
                upstream_writer.close()
        except OSError:
            return  # the arm does not run: the client sees a closed connection, as with a Service without endpoints
        finally:
            writer.close()
            self._serving.discard(me)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with suppress(OSError):
        if writer.can_write_eof():
            writer.write_eof()
