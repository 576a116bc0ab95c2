"""HTTP requests to servers that mpctl does not trust: engines, hubs, the load agent.

An answer has a limit of bytes and a deadline for all of it, so that neither an endless nor a slow one ties up memory or
time. Encodings are refused (a small compressed answer may be huge), and so are redirects and proxies: the API key goes
to the given address alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mpctl import bounded
from mpctl.errors import MpctlError

ANSWER_BYTES = 16 * bounded.MEBIBYTE
ANSWER_S = 30.0
SAME_USER = "same-user"
"""In the place of a unix socket: send nothing unless a process of this user listens on the address of this machine."""
METRICS_BYTES = 2 * bounded.MEBIBYTE  # vLLM 0.32 answers with 50 KiB per data-parallel engine


class NoAnswer(MpctlError):
    """The server did not answer, or its answer is too large, too slow or encoded."""


@dataclass(frozen=True)
class HttpAnswer:
    """Status and body of an answer."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """The body as JSON.

        Raises:
            ValueError: not JSON, or nested too deeply.
        """
        return bounded.loads(self.body)


def request(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    json: Any = None,
    seconds: float = ANSWER_S,
    limit: int = ANSWER_BYTES,
    socket: str | None = None,
    decompressed: int = 0,
) -> HttpAnswer:
    """Send one request. ``seconds``: for the whole answer; ``limit``: its bytes; ``socket``: a unix socket to use, or
    :data:`SAME_USER`; ``decompressed``: bytes that a gzip answer may have when decompressed, 0 to refuse encoded ones.

    Raises:
        NoAnswer: no answer within these limits.
    """
    import httpx

    from mpctl.platform.transport import limited_transport

    deadline = time.monotonic() + seconds
    sent = {
        **(headers or {}),
        "Accept-Encoding": "gzip" if decompressed else "identity",
        "Connection": "close",
    }
    try:
        with (
            httpx.Client(
                transport=limited_transport(url, deadline, socket), trust_env=False, timeout=seconds
            ) as client,
            client.stream(method, url, headers=sent, json=json) as response,
        ):
            encoding = response.headers.get("Content-Encoding", "identity")
            if encoding != "identity" and not (decompressed and encoding == "gzip"):
                raise NoAnswer(f"{url}: the answer is encoded although identity was requested")
            body = read_limited(response.iter_raw(), url, deadline, limit)
            return HttpAnswer(
                response.status_code,
                bounded.gunzip(body, limit=decompressed) if encoding == "gzip" else body,
            )
    except httpx.TimeoutException as error:
        raise NoAnswer(f"{url}: no complete answer within {seconds:g} s") from error
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise NoAnswer(f"{url}: {error or type(error).__name__}") from error


get = partial(request, "GET")


def metrics(
    base_url: str, *, headers: Mapping[str, str] | None = None, socket: str | None = None
) -> str:
    """Read an engine's /metrics; see :func:`request`.

    Raises:
        NoAnswer: no answer within the limits, or another one than 200.
    """
    url = f"{base_url.rstrip('/')}/metrics"
    answer = get(url, headers=headers, socket=socket, limit=METRICS_BYTES)
    if answer.status != 200:
        raise NoAnswer(f"{url} answered {answer.status}")
    return answer.text


def read_limited(parts: Iterable[bytes], url: str, deadline: float, limit: int) -> bytes:
    """Join the parts of a body.

    Raises:
        NoAnswer: it has more than ``limit`` bytes, or is not complete at the ``deadline`` of the monotonic clock.
    """
    body = bytearray()
    for part in parts:
        body += part
        if len(body) > limit:
            raise NoAnswer(f"{url}: the answer is larger than {limit / bounded.MEBIBYTE:g} MiB")
        if time.monotonic() > deadline:
            raise NoAnswer(f"{url}: no complete answer in time")
    return bytes(body)
