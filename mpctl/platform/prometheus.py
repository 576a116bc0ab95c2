"""Counters of many services by one query to Prometheus, and the listener that answers its scrapes of the watch.

The query reads the engines' raw counters as the last scrape left them, not the five-minute rates of the recording
rules: differences of counters show a reset, and are not late by the length of a window. Labels are those that the
shipped PodMonitor gives each series: namespace, inference_service, pod.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

from mpctl.errors import InputError, MpctlError
from mpctl.experiment.counters import CounterError, Counters
from mpctl.platform import http

_NAMES = (
    "vllm:generation_tokens_total",
    "vllm:time_to_first_token_seconds_count",
    "vllm:inter_token_latency_seconds_(sum|count)",
    "vllm:spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)_total",
    "process_start_time_seconds",
)
QUERY = (
    "sum by (__name__, namespace, inference_service, pod, position) "
    f'({{__name__=~"{"|".join(_NAMES)}",inference_service!=""}})'
)
_LIMIT = 64 * 2**20

Key = tuple[str, str]  # namespace, service


def read(url: str, *, seconds: float = 10.0) -> dict[Key, dict[str, Counters | str]]:
    """Return the counters of every pod by service, or why a pod's cannot be used.

    Raises:
        MpctlError: Prometheus does not answer, or its answer is none.
    """
    address = f"{url.rstrip('/')}/api/v1/query?{urlencode({'query': QUERY})}"
    try:
        answer = http.get(address, seconds=seconds, limit=_LIMIT)
    except http.NoAnswer as error:  # its message begins with the address, query and all
        raise MpctlError(f"Prometheus at {url} does not answer: {error.message.removeprefix(f'{address}: ')}") from None
    try:
        body = answer.json()
    except ValueError as error:
        raise MpctlError(f"Prometheus at {url} answered {answer.status} and no JSON") from error
    if answer.status != 200 or not isinstance(body, Mapping) or body.get("status") != "success":
        reason = body.get("error") if isinstance(body, Mapping) else ""
        raise MpctlError(f"Prometheus at {url} answered {answer.status}: {reason or 'no result'}")
    try:
        return counters_of(body["data"]["result"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MpctlError(f"Prometheus at {url}: the answer cannot be read: {error}") from error


def counters_of(result: list[dict[str, Any]]) -> dict[Key, dict[str, Counters | str]]:
    """Read the vector of :data:`QUERY`. Each pod is read as if it had answered /metrics itself."""
    pages: dict[Key, dict[str, list[str]]] = {}
    for series in result:
        labels = series["metric"]
        key, pod = (str(labels["namespace"]), str(labels["inference_service"])), str(labels.get("pod") or "engine")
        value = float(series["value"][1])
        position = labels.get("position")
        shown = f'{{position="{int(position)}"}}' if position else ""
        text = "NaN" if math.isnan(value) else repr(value)
        pages.setdefault(key, {}).setdefault(pod, []).append(f"{labels['__name__']}{shown} {text}\n")
    return {key: {pod: _counters("".join(lines)) for pod, lines in pods.items()} for key, pods in pages.items()}


def _counters(page: str) -> Counters | str:
    try:
        return Counters.parse(page)
    except CounterError as error:
        return str(error)


_HEADER_S = 5.0  # a client that sends its request slower is left


Pages = Callable[[str, bytes | None], tuple[int, str] | None]
_LARGEST_BODY = 64 * 1024


class Listener:
    """``pages``: status and text of a path, made when they are asked for, by the body of a POST where there is one;
    None: there is no such page. A page that begins with a brace is JSON. Close it to free the port."""

    def __init__(self, address: str, pages: Pages) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise InputError(f"must be HOST:PORT, not {address}", field="--listen")

        class PageHandler(BaseHTTPRequestHandler):
            timeout = _HEADER_S

            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                length = self.headers.get("Content-Length", "0")
                if not length.isdecimal() or int(length) > _LARGEST_BODY:
                    self.send_error(413)
                    return
                self._answer(self.rfile.read(int(length)))

            def _answer(self, sent: bytes | None) -> None:
                status, text = pages(self.path.partition("?")[0], sent) or (404, "not found\n")
                body = text.encode()
                self.send_response(status)
                kind = "application/json" if text.startswith("{") else "text/plain; version=0.0.4; charset=utf-8"
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *_: object) -> None:  # noqa: A002
                """Scrapes are not worth a line."""

        try:
            self._server = ThreadingHTTPServer((host.strip("[]") or "127.0.0.1", int(port)), PageHandler)
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
