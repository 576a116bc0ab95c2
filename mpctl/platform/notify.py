"""Send events to a webhook."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from mpctl.errors import MpctlError
from mpctl.platform import http

_SECONDS = 5.0


def post(url: str, body: Any) -> None:
    """Send JSON.

    Raises:
        MpctlError: there is no answer, or it refuses.
    """
    parts = urlsplit(url)  # whose path, query and user are secrets of many receivers
    receiver = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    try:
        answer = http.request("POST", url, json=body, seconds=_SECONDS)
    except http.NoAnswer as error:
        raise MpctlError(error.message.replace(url, receiver)) from None
    if not 200 <= answer.status < 300:
        raise MpctlError(f"{receiver} answered {answer.status}")
