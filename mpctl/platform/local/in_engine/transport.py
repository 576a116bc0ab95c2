"""A lean HTTP transport for the bench client. Run by path in the engine's environment; imports nothing of mpctl.

The client's own (aiohttp) takes about a millisecond of its only thread to send a request. Where many begin at once, as
at the start of every block, the last one is sent that many milliseconds late, which the client takes for the engine's
time to first token. Here a request is one write to a socket, and an answer is read as it arrives; all else (what is
sent, when, and how an answer is timed) stays the client's own code. Only plain HTTP without a proxy; everything else
keeps the client's transport.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_READ = 65536
_HEAD = 65536  # bytes of a head that is longer are no answer


def usable(url: str) -> bool:
    """Whether a server is reached by plain HTTP and without a proxy."""
    parts = urlsplit(url)
    return parts.scheme == "http" and bool(
        parts.hostname and ("http" not in getproxies() or proxy_bypass(parts.netloc))
    )


class Session:
    """What the client uses of an aiohttp session. Close it when its loop has ended."""

    def __init__(self) -> None:
        self._idle: list[tuple[str, socket.socket]] = []
        self._every: set[socket.socket] = set()
        self._addresses: dict[str, asyncio.Task[Any]] = {}  # a look-up takes a thread, and all requests begin at once

    def post(self, url: str, json: Any, headers: Mapping[str, str] | None = None, **_: Any) -> Exchange:
        """One request."""
        return Exchange(self, url, json, headers or {})

    def close(self) -> None:
        """Close every connection."""
        for one in self._every:
            one.close()
        self._every.clear()

    async def connected(self, place: str, host: str, port: int) -> tuple[socket.socket, bool]:
        """A connection to a place, and whether it was used before."""
        for index, (known, one) in enumerate(self._idle):
            if known == place:
                del self._idle[index]
                return one, True
        loop = asyncio.get_running_loop()
        if place not in self._addresses:
            found = loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._addresses[place] = asyncio.ensure_future(found)
        family, kind, protocol, _, address = (await asyncio.shield(self._addresses[place]))[0]
        made = socket.socket(family, kind, protocol)
        self._every.add(made)
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await loop.sock_connect(made, address)
        return made, False

    def give_back(self, place: str, one: socket.socket, *, whole: bool) -> None:
        """Keep a connection whose answer was read to its end; close any other."""
        if whole:
            self._idle.append((place, one))
        else:
            self._every.discard(one)
            one.close()


class Exchange:
    """A request and its answer; what the client uses of aiohttp's response."""

    def __init__(self, session: Session, url: str, body: Any, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._session, self._place = session, parts.netloc
        self._host, self._port = parts.hostname or "", parts.port or 80
        data = json.dumps(body).encode()
        fields = {"Host": parts.netloc, **headers, "Content-Length": str(len(data))}
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        self._request = "\r\n".join(lines).encode("latin-1") + data
        self._socket: socket.socket | None = None
        self._buffer = b""
        self._fields: dict[str, str] = {}
        self._whole = False
        self.status, self.reason = 0, ""
        self.content = self

    async def __aenter__(self) -> Exchange:
        """Send the request and read the head of the answer. A kept connection that the server has closed is replaced.

        Raises:
            OSError: there is no connection, or no answer.
        """
        loop = asyncio.get_running_loop()
        while True:
            self._socket, used = await self._session.connected(self._place, self._host, self._port)
            try:
                await loop.sock_sendall(self._socket, self._request)
                await self._read_head()
                return self
            except BaseException as error:
                self._session.give_back(self._place, self._socket, whole=False)
                if not (used and isinstance(error, ConnectionError) and not self._buffer):
                    raise

    async def _read_head(self) -> None:
        while b"\r\n\r\n" not in self._buffer:
            await self._more()
            if len(self._buffer) > _HEAD:
                raise OSError("the head of the answer is too long")
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        _, status, *reason = first.split(" ", 2)
        self.status, self.reason = int(status), "".join(reason)
        self._fields = {name.strip().lower(): value.strip() for name, _, value in (x.partition(":") for x in lines)}

    async def _more(self) -> None:
        assert self._socket is not None
        data = await asyncio.get_running_loop().sock_recv(self._socket, _READ)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data

    async def iter_any(self) -> AsyncIterator[bytes]:
        """The body as it arrives.

        Raises:
            OSError: the connection ended before the body.
        """
        if self._fields.get("transfer-encoding", "").lower() == "chunked":
            async for data in self._chunks():
                yield data
        elif "content-length" in self._fields:
            left = int(self._fields["content-length"])
            while left:
                if not self._buffer:
                    await self._more()
                data, self._buffer = self._buffer[:left], self._buffer[left:]
                left -= len(data)
                yield data
            self._whole = True
        else:
            with suppress(ConnectionError):  # its end is that of the connection
                while True:
                    if self._buffer:
                        data, self._buffer = self._buffer, b""
                        yield data
                    await self._more()

    async def _chunks(self) -> AsyncIterator[bytes]:
        """What of the body has arrived, without the frames around its parts."""
        while True:
            ready: list[bytes] = []
            while (end := self._buffer.find(b"\r\n")) >= 0:
                size = int(self._buffer[:end].partition(b";")[0], 16)
                if len(self._buffer) < end + 2 + size + 2:
                    break
                ready.append(self._buffer[end + 2 : end + 2 + size])
                self._buffer = self._buffer[end + 2 + size + 2 :]
                if size == 0:
                    self._whole = True
                    break
            if data := b"".join(ready):
                yield data
            if self._whole:
                return
            await self._more()

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([data async for data in self.iter_any()])

    async def __aexit__(self, *_: object) -> None:
        """Keep the connection, if the answer was read and the server keeps it as well."""
        if self._socket is not None:
            keeps = self._fields.get("connection", "").lower() != "close"
            self._session.give_back(self._place, self._socket, whole=self._whole and keeps and not self._buffer)
