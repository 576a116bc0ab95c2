"""Answer /metrics and /healthz of a long-running command on an address of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mpctl.errors import InputError

_HEADER_S = 5.0  # a client that sends its request slower is left


class Listener:
    """``pages`` by path: status and text, made when they are asked for. Close it to free the port."""

    def __init__(self, address: str, pages: dict[str, Callable[[], tuple[int, str]]]) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise InputError(f"must be HOST:PORT, not {address}", field="--listen")

        class Handler(BaseHTTPRequestHandler):
            timeout = _HEADER_S

            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                status, text = page() if page is not None else (404, "not found\n")
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *_: object) -> None:  # noqa: A002
                """Scrapes are not worth a line."""

        try:
            self._server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Handler)
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot listen on {address}: {error}", field="--listen") from error
        self._server.daemon_threads = True
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
