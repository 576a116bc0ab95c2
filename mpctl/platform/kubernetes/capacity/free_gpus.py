"""Reads nodes, devices and claims, and refuses pods without a free GPU; ``devices`` decides."""

from __future__ import annotations

import time
from collections.abc import Callable

from mpctl.errors import NotPermitted, Refused
from mpctl.estimate.capacity import Need
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.kinds import NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE
from mpctl.platform.kubernetes.capacity.devices import (
    assess_capacity,
    exclusion_reason,
    gpu_products,
    gpus_of,
    holders,
    without_leaving,
)

AFTER_GRACE_S = 60.0  # until a pod that was killed is gone from the API and its claim is released
_GRACE_S = 30.0  # the default of Kubernetes
_POLL_S = 1.0
_MOST_HOLDERS = 5  # named in a message


def require_capacity(
    client: Client,
    template: Json,
    running: Json,
    *,
    title: str,
    pods: int,
    purpose: str,
    hint: str,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, ...]:
    """Return notes on the capacity for ``pods`` more pods of the Deployment's pod ``template``.

    ``running``: the spec of a running pod, to which admission has added tolerations (GKE does for GPUs). GPUs of pods
    that terminate are waited for, at most their grace period and a minute: a rollback leaves such pods behind.

    Raises:
        Refused: the GPUs are not free; the message names the ``purpose`` of the pods and has the ``hint``.
    """
    gpus = gpus_of(template)
    if gpus == 0:
        return ("the pods request no GPU: capacity for a second engine was not checked",)
    need, began = Need(pods, gpus), time.monotonic()
    while True:
        lists = [client.list(kind) or [] for kind in (NODE, RESOURCE_SLICE, RESOURCE_CLAIM)]
        try:
            everything = client.list(POD) or []
        except NotPermitted as error:  # the one right that mpctl rbac can leave out
            return (f"capacity for {purpose} is unknown: {error.message}",)
        nodes, slices, claims = lists
        fit = assess_capacity(need, nodes, slices, claims, everything)
        if fit.verdict == "fits":
            break
        soon = assess_capacity(need, nodes, slices, *without_leaving(claims, everything))
        waited = time.monotonic() - began
        if soon.verdict != "fits" or waited > _grace_s(everything) + AFTER_GRACE_S:
            used = ", ".join(holders(claims, everything)[:_MOST_HOLDERS])
            reasons = "; ".join((*fit.reasons, *([f"in use by {used}"] if used else [])))
            raise Refused(f"{title}: no free GPU for {purpose}: {reasons}", hint=hint)
        sleep(_POLL_S)
    # Admission may add other tolerations to a new pod, so this is a note and no refusal.
    excluded = {node["metadata"]["name"]: exclusion_reason(running, node) for node in nodes}
    usable = [node for node in nodes if not excluded[node["metadata"]["name"]]]
    if assess_capacity(need, usable, slices, claims, everything).verdict == "fits":
        return fit.reasons
    reasons = "; ".join(reason for reason in excluded.values() if reason)
    return (*fit.reasons, f"the pods may be unschedulable, since they exclude the nodes with free GPUs: {reasons}")


def gpu_product(client: Client, names: set[str]) -> str | None:
    """Return the product of the GPUs of the named nodes, else of all nodes; None where they differ or may not be
    read."""
    try:
        products = gpu_products(client.list(NODE) or [], client.list(RESOURCE_SLICE) or [])
    except NotPermitted:
        return None
    distinct = set().union(*(products.get(name, set()) for name in names)) or set().union(*products.values())
    return next(iter(distinct)) if len(distinct) == 1 else None


def _grace_s(pods: list[Json]) -> float:
    """Longest grace period among the pods that terminate."""
    leaving = [pod["metadata"] for pod in pods if pod["metadata"].get("deletionTimestamp")]
    return max((float(meta.get("deletionGracePeriodSeconds") or _GRACE_S) for meta in leaving), default=_GRACE_S)
