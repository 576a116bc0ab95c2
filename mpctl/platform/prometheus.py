"""Counters of many services by one query to Prometheus.

The query reads the engines' raw counters as the last scrape left them, not the five-minute rates of the recording
rules: differences of counters show a reset, and are not late by the length of a window. Labels are those that the
shipped PodMonitor gives each series: namespace, inference_service, pod.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from mpctl.errors import MpctlError
from mpctl.experiment.counters import CounterError, Counters
from mpctl.json_types import Json, JsonView
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
_ODD = (LookupError, TypeError, ValueError, AttributeError, OverflowError)

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
        raise MpctlError(
            f"Prometheus at {url} does not answer: {error.message.removeprefix(f'{address}: ')}"
        ) from None
    try:
        body = answer.json()
    except ValueError as error:
        raise MpctlError(f"Prometheus at {url} answered {answer.status} and no JSON") from error
    if answer.status != 200 or not isinstance(body, Mapping) or body.get("status") != "success":
        reason = body.get("error") if isinstance(body, Mapping) else ""
        raise MpctlError(f"Prometheus at {url} answered {answer.status}: {reason or 'no result'}")
    try:
        return counters_of(body["data"]["result"])
    except _ODD as error:
        raise MpctlError(f"Prometheus at {url}: the answer cannot be read: {error}") from error


def counters_of(result: list[Json]) -> dict[Key, dict[str, Counters | str]]:
    """Read the vector of :data:`QUERY`. Each pod is read as if it had answered /metrics itself. A series that cannot be
    read makes its pod unreadable; one that names no service is left out."""
    pages: dict[Key, dict[str, list[str]]] = {}
    odd: dict[tuple[Key, str], str] = {}
    for series in result:
        labels = series.get("metric") if isinstance(series, Mapping) else None
        if (
            not isinstance(labels, Mapping)
            or not labels.get("namespace")
            or not labels.get("inference_service")
        ):
            continue
        key, pod = (
            (str(labels["namespace"]), str(labels["inference_service"])),
            str(labels.get("pod") or "engine"),
        )
        lines = pages.setdefault(key, {}).setdefault(pod, [])
        try:
            lines.append(_line(labels, series["value"]))
        except _ODD as error:
            odd[key, pod] = (
                f"a series of Prometheus cannot be read: {type(error).__name__}: {error}"
            )
    return {
        key: {pod: odd.get((key, pod)) or _counters("".join(lines)) for pod, lines in pods.items()}
        for key, pods in pages.items()
    }


def _line(labels: JsonView, sample: Any) -> str:
    """A series as a line of /metrics."""
    value = float(sample[1])
    position = labels.get("position")
    shown = f'{{position="{int(position)}"}}' if position else ""
    text = "NaN" if math.isnan(value) else repr(value)
    return f"{labels['__name__']}{shown} {text}\n"


def _counters(page: str) -> Counters | str:
    try:
        return Counters.parse(page)
    except CounterError as error:
        return str(error)
