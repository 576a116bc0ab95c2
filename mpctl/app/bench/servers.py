"""Measure vLLM servers at a URL, without a service of mpctl."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mpctl.app.bench.arms import INTERRUPTED, Arms
from mpctl.app.console import Console
from mpctl.app.requests import ServersRequest
from mpctl.app.session.base import interruptible
from mpctl.errors import InputError
from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.experiment.counters import CounterError
from mpctl.platform import http
from mpctl.platform.local.client import BenchClient
from mpctl.platform.local.engine import python_of
from mpctl.platform.local.meter import LocalMeter
from mpctl.rollout.measurement import Target
from mpctl.rollout.ports import Endpoint, Meter

_KEY = "OPENAI_API_KEY"


@contextmanager
def open_servers(console: Console, request: ServersRequest) -> Iterator[Arms]:
    """Open one or two servers; the load client runs on this machine.

    Raises:
        InputError: a URL is invalid, or its server does not answer as vLLM does.
    """
    urls = {BASELINE: request.url, **({CANDIDATE: request.candidate_url} if request.candidate_url else {})}
    endpoints = {
        arm: find_server(url, request.model, option="--url" if arm == BASELINE else "--candidate-url")
        for arm, url in urls.items()
    }
    python, cwd = python_of(request.vllm), str(Path.cwd())
    meter = LocalMeter(BenchClient(python, cwd), cwd)

    def load(dataset: str, path: str, count: int) -> tuple[str, ...]:
        client = BenchClient(python, cwd)
        try:
            return client.prompts_of(dataset, path, endpoints[BASELINE].tokenizer, count)
        finally:
            client.close()

    try:
        with interruptible(console, lambda: INTERRUPTED):
            yield Arms(
                identity=" ".join(_process(meter, e) for e in endpoints.values()),
                names=tuple(endpoints),
                meter=meter,
                load=load,
                target=lambda arm: Target(endpoints[arm], urls[arm]),
                speculates=False,
            )
    finally:
        meter.close()


def _process(meter: Meter, endpoint: Endpoint) -> str:
    """Return the identity of a server's process: a restarted one may be another engine, whose blocks do not mix.

    Raises:
        InputError: the server has no metrics of vLLM.
    """
    try:
        started = meter.counters(endpoint).started
    except CounterError as error:
        raise InputError(f"{endpoint.base_url} has no metrics of vLLM: {error}") from error
    return f"{endpoint.base_url} {endpoint.model} since {started}"


def find_server(url: str, model: str | None, *, option: str = "--url") -> Endpoint:
    """Return the endpoint of a vLLM server, with the first model it lists unless one is named.

    Raises:
        InputError: the URL is invalid, or its server does not answer as vLLM does.
    """
    base, token = _base_of(url, option), os.environ.get(_KEY) or None
    models = _list_models(base, token, option)
    if model is not None and model not in models:
        raise InputError(f"{base} serves {', '.join(models)}, not {model}", field="--model")
    chosen = model or next(iter(models))
    root = models[chosen]
    # Without the files on this machine the client counts no prompt tokens itself; it takes the server's usage records.
    return Endpoint(base, chosen, tokenizer=root if Path(root).is_dir() else "", token=token)


def _base_of(url: str, option: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{url!r} is not an http or https URL", field=option, hint="http://HOST:PORT")
    if parts.username or parts.password:
        raise InputError(
            "URL with a password would end up in logs", field=option, hint=f"set {_KEY} for the server's API key"
        )
    return url.rstrip("/").removesuffix("/v1")


def _list_models(base: str, token: str | None, option: str) -> dict[str, str]:
    """Return the models of a server, each with its root."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = http.get(f"{base}/v1/models", headers=headers)
        listed: list[dict[str, Any]] = answer.json().get("data", []) if answer.status == 200 else []
        models = {str(m["id"]): str(m.get("root") or "") for m in listed}
    except (http.NoAnswer, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{base}/v1/models does not answer as vLLM does: {error}", field=option) from error
    if not models:
        raise InputError(f"{base}/v1/models lists no model (status {answer.status})", field=option)
    return models
