"""The path of users' requests to the pods of a live service: its HTTPRoutes, the end of its pods, their budget."""

from __future__ import annotations

from contextlib import suppress

from mpctl.doctor.facts import is_budgeted
from mpctl.errors import NotPermitted
from mpctl.methods import Finding
from mpctl.methods.preflight.drain import (
    RouteLimit,
    budget_command,
    path_findings,
    route_limits,
)
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.kinds import (
    DISRUPTION_BUDGET,
    HTTP_ROUTE,
    POD,
    SERVICE,
    Kind,
)
from mpctl.platform.kubernetes.service.conditions import is_ready
from mpctl.platform.kubernetes.service.container import engine_container, port_of
from mpctl.platform.kubernetes.service.shapes import shape_of


def request_path_findings(client: Client, record: Json, kind: Kind) -> tuple[Finding, ...]:
    """Return warnings of a service's path. Nothing is said of objects that may not be read, nor of pods while none is
    ready."""
    namespace, name = record["metadata"]["namespace"], record["metadata"]["name"]
    selector = shape_of(record).pod_selector(record)
    pods = client.list(POD, namespace, labels=selector) or []
    ready = [pod for pod in pods if is_ready(pod)]
    if not ready:
        limits = _limits(client, record, {})
        return path_findings(kind.name, limits, None, None, image=None)
    labels: dict[str, str] = ready[-1]["metadata"].get("labels") or {}
    limits = _limits(client, record, labels)
    budget = None
    with suppress(NotPermitted):
        if len(ready) > 1 and not is_budgeted(client.list(DISRUPTION_BUDGET, namespace) or (), labels):
            budget = budget_command(namespace, name, selector)
    pod = ready[-1]["spec"]
    container = engine_container(pod["containers"])
    image, port = container.get("image"), port_of(container)
    return path_findings(kind.name, limits, pod, container, image=image, port=port, budget=budget)


def _limits(client: Client, record: Json, labels: dict[str, str]) -> tuple[RouteLimit, ...]:
    namespace, name = record["metadata"]["namespace"], record["metadata"]["name"]
    with suppress(NotPermitted):
        backends = shape_of(record).backends(name, lambda: client.list(SERVICE, namespace) or (), labels)
        return route_limits(client.list(HTTP_ROUTE, namespace) or (), backends, name)
    return ()
