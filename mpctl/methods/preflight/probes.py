"""Checks whether a container's probes let its engine start. Pure: a container in, a warning out."""

from __future__ import annotations

import json

from mpctl.json_types import Json, JsonView
from mpctl.methods.preflight.preflight_rule import Finding

# An engine loads weights, compiles and captures graphs, for minutes; a startupProbe was chosen for its model.
_LEAST_S = {"startup": 300, "liveness": 600}
_DEFAULTS = {"initialDelaySeconds": 0, "periodSeconds": 10, "failureThreshold": 3}  # of Kubernetes
_LINES = {"periodSeconds": 10, "failureThreshold": 60}
_HANDLERS = ("httpGet", "exec", "tcpSocket", "grpc")


def start_finding(container: JsonView, port: int, *, owned: bool) -> Finding | None:
    """A warning that the kubelet kills an engine that starts; None where it has the time. A liveness probe counts once
    the startup probe has passed. ``owned``: an operator writes the probes."""
    when = next((when for when in _LEAST_S if container.get(f"{when}Probe")), None)
    if when is None:
        return None
    probe = container[f"{when}Probe"]
    texts = [str(probe.get(key) or usual) for key, usual in _DEFAULTS.items()]
    if not all(map(str.isdigit, texts)):
        return None  # a variable of a template
    delay, period, failures = map(int, texts)
    allowed = delay + period * failures
    if allowed >= _LEAST_S[when]:
        return None
    usual = {"httpGet": {"path": "/health", "port": port}}
    handler = next(({key: _typed(probe[key])} for key in _HANDLERS if probe.get(key)), usual)
    where = "its pods (their operator writes the probes)" if owned else "the engine's container"
    missing = "no startupProbe, and " if when == "liveness" else ""
    return Finding(
        "liveness-before-start",
        "warn",
        f"the container is killed before its engine has started: {missing}its {when}Probe allows {allowed} s; an "
        "engine loads weights and captures graphs for minutes, and longer with a draft",
        "Kubernetes, startup probes; kserve/kserve#5062",
        f"set in {where}: startupProbe: {json.dumps({**handler, **_LINES})}",
    )


def _typed(handler: JsonView) -> Json:
    """The handler with numbers, which a manifest's reader leaves as text: a port in quotes is a port's name."""
    return {key: int(value) if str(value).isdigit() else value for key, value in handler.items()}
