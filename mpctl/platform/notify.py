"""Send events to a webhook or to Alertmanager."""

from __future__ import annotations

from collections.abc import Mapping
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
    receiver = _receiver(url)
    try:
        answer = http.request("POST", url, json=body, seconds=_SECONDS)
    except http.NoAnswer as error:
        raise MpctlError(error.message.replace(url, receiver)) from None
    if not 200 <= answer.status < 300:
        raise MpctlError(f"{receiver} answered {answer.status}")


def _receiver(url: str) -> str:
    """Scheme and host of a URL, whose path, query and user are secrets of many receivers."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def post_alert(url: str, record: Mapping[str, Any]) -> None:
    """Send a signal to Alertmanager's API; one without a finding resolves the service's alert.

    Raises:
        MpctlError: there is no answer, or it refuses.
    """
    labels = {
        "alertname": "MpctlWatchFinding",
        "namespace": record["namespace"],
        "inference_service": record["service"],
        "severity": "warning",
    }
    alert = {
        "labels": labels,
        "annotations": {
            "summary": f"{record['reason']}: {record['message']}",
            "command": record["command"] or "",
        },
        "startsAt": record["time"],
    }
    if not record["finding"]:
        alert["endsAt"] = record["time"]
    post(f"{url.rstrip('/')}/api/v2/alerts", [alert])
