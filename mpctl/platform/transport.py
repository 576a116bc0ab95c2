"""Connections whose every read and write ends at a deadline, for :mod:`mpctl.platform.http`."""

from __future__ import annotations

import time
from typing import Any

import httpcore
import httpx

from mpctl.platform.http import SAME_USER
from mpctl.platform.port_owner import NotThisUser, require_this_user


def limited_transport(url: str, deadline: float, socket: str | None) -> httpx.HTTPTransport:
    """Return a transport whose every read ends at the deadline: httpx itself limits each read, not their sum, so that a
    server that sends one byte of a header at a time would never be left."""
    uds = None if socket == SAME_USER else socket
    context = httpx.create_ssl_context(trust_env=True) if url.startswith("https:") else None
    transport = httpx.HTTPTransport(verify=context or False, uds=uds, trust_env=False)
    backend = _limited_backend(deadline, of_this_user=socket == SAME_USER)
    transport._pool = httpcore.ConnectionPool(
        ssl_context=context, uds=uds, network_backend=backend, keepalive_expiry=0
    )
    return transport


def _limited_backend(deadline: float, *, of_this_user: bool) -> httpcore.NetworkBackend:
    """Return a backend whose streams end at the deadline. ``of_this_user``: it connects to a port only while a process
    of this user listens on it."""

    class Stream(httpcore.NetworkStream):
        def __init__(self, inner: httpcore.NetworkStream) -> None:
            self._inner = inner

        def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise httpcore.ReadTimeout("deadline")
            return self._inner.read(max_bytes, remaining)

        def write(self, buffer: bytes, timeout: float | None = None) -> None:
            self._inner.write(buffer, max(0.001, deadline - time.monotonic()))

        def close(self) -> None:
            self._inner.close()

        def start_tls(self, *args: Any, **options: Any) -> httpcore.NetworkStream:
            return Stream(self._inner.start_tls(*args, **options))

        def get_extra_info(self, info: str) -> Any:
            return self._inner.get_extra_info(info)

    class Backend(httpcore.SyncBackend):
        def connect_tcp(
            self, host: str, port: int, *args: Any, **options: Any
        ) -> httpcore.NetworkStream:
            if not of_this_user:
                return Stream(super().connect_tcp(host, port, *args, **options))
            try:
                before = require_this_user(port)
                stream = super().connect_tcp(host, port, *args, **options)
                require_this_user(port, before)
            except NotThisUser as error:
                raise httpcore.ConnectError(str(error)) from error
            return Stream(stream)

        def connect_unix_socket(self, *args: Any, **options: Any) -> httpcore.NetworkStream:
            return Stream(super().connect_unix_socket(*args, **options))

    return Backend()
