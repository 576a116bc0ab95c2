"""Send events to a webhook."""

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


def shaped(form: str, record: Mapping[str, Any], key: str = "") -> Any:
    """The body that a receiver takes for an event: the record itself (``json``), a message for Slack, or an event for
    PagerDuty, of which ``key`` is the routing key. None for what the receiver has no use for."""
    if form == "slack":
        return _slack(record)
    return _pagerduty(record, key) if form == "pagerduty" else record


FORMS = ("json", "slack", "pagerduty")


def _slack(record: Mapping[str, Any]) -> dict[str, Any]:
    """Text in Slack's mrkdwn, of which three characters are to be escaped."""
    mark = ":warning:" if record["finding"] else ":white_check_mark:" if record["type"] == "signal" else ":gear:"
    text = f"{mark} *{record['namespace']}/{record['service']}* {record['reason']}: {record['message']}"
    commands = [("run", record["command"]), ("to revert", record["revert"])]
    lines = [text, *(f"{label}: `{command}`" for label, command in commands if command)]
    return {"text": "\n".join(lines).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}


def _pagerduty(record: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """An event of the Events API v2: one incident per service, resolved when its finding ends. What the watch did or
    held back is no incident, and what is only noted ends none."""
    if record["type"] not in ("signal", "error") or record["reason"] in ("TrafficChanged", "EngineRestarted"):
        return None
    service = f"{record['namespace']}/{record['service']}"
    event: dict[str, Any] = {"routing_key": key, "dedup_key": f"mpctl-watch/{service}"}
    if not record["finding"]:
        return {**event, "event_action": "resolve"}
    severity = "critical" if record["reason"] in ("StepToZero", "Restarting") else "warning"
    payload = {
        "summary": f"{service} {record['reason']}: {record['message']}"[:1024],
        "source": service,
        "severity": severity,
        "timestamp": record["time"],
        "component": record["service"],
        "group": record["namespace"],
        "class": record["reason"],
        "custom_details": {name: record[name] for name in ("command", "revert", "reference") if record[name]},
    }
    return {**event, "event_action": "trigger", "payload": payload}


def _receiver(url: str) -> str:
    """Scheme and host of a URL, whose path, query and user are secrets of many receivers."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
