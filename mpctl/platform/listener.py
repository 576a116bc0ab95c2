"""The HTTP listener of the watch: /metrics, /healthz and verdicts.

Any client may be slow, broken or hostile. A request has one deadline for all of its bytes, and connections have a
limit: a new one ends the oldest, so that idle clients never keep a probe out.
"""

from __future__ import annotations

import io
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mpctl.errors import InputError

REQUEST_S = 5.0  # until a whole request has arrived, and for an answer
CONNECTIONS = 32  # at a time; each has a thread
_EVICTION_S = 0.5  # for the thread of an ended connection
_LARGEST_BODY = 64 * 1024

Pages = Callable[[str, bytes | None], tuple[int, str] | None]


class _TimedReader(io.RawIOBase):
    """Reads a socket until a deadline, however slowly bytes arrive."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection, self._deadline = connection, deadline

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has arrived.

        Raises:
            TimeoutError: the deadline has passed.
        """
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        self._connection.settimeout(remaining_s)
        return self._connection.recv_into(buffer)


class _Server(ThreadingHTTPServer):
    """A server with a limit of connections."""

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self._connections: dict[Any, None] = {}  # the oldest first
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread, or end it where no other one ends in time."""
        if not self._slots.acquire(blocking=False):
            for connection in list(self._connections)[:1]:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            if not self._slots.acquire(timeout=_EVICTION_S):
                self.shutdown_request(request)
                return
        self._connections[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer a connection and free its slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.pop(request, None)
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that is gone; print the traceback of anything else."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class Listener:
    """``pages``: status and text of a path, made when they are requested, by the body of a POST where there is one;
    None: there is no such page. A page that begins with a brace is JSON. Close it to free the port."""

    def __init__(self, address: str, pages: Pages) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise InputError(f"must be HOST:PORT, not {address}", field="--listen")
        try:
            self._server = _Server((host.strip("[]") or "127.0.0.1", int(port)), _handler(pages))
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot listen on {address}: {error}", field="--listen") from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """HOST:PORT, with the port that was free where 0 was asked for."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(pages: Pages) -> type[BaseHTTPRequestHandler]:
    class PageHandler(BaseHTTPRequestHandler):
        timeout = REQUEST_S  # of a write

        def setup(self) -> None:
            super().setup()
            self.rfile = io.BufferedReader(
                _TimedReader(self.connection, time.monotonic() + REQUEST_S)
            )

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "0")
            if not (
                length.isascii()
                and length.isdecimal()
                and len(length) < 10
                and int(length) <= _LARGEST_BODY
            ):
                self.send_error(413)
                return
            self._answer(self.rfile.read(int(length)))

        def _answer(self, sent: bytes | None) -> None:
            try:
                status, text = pages(self.path.partition("?")[0], sent) or (404, "not found\n")
            except Exception as error:  # noqa: BLE001  a bug in one page ends no other
                status, text = 500, f"{type(error).__name__}; this is a bug in mpctl\n"
            body = text.encode(errors="replace")
            self.send_response(status)
            kind = (
                "application/json"
                if text.startswith("{")
                else "text/plain; version=0.0.4; charset=utf-8"
            )
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            """Scrapes are not worth a line."""

    return PageHandler
