"""Reads nodes, devices and claims, and refuses what has no GPU. What counts as room is decided in ``room``."""

from __future__ import annotations

from mpctl.errors import Refused
from mpctl.estimate.capacity import Need
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.kinds import NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE
from mpctl.platform.kubernetes.capacity import devices as room
from mpctl.platform.kubernetes.service.reader import Found


def require_room(client: Client, found: Found, *, title: str, pods: int, what: str, instead: str) -> tuple[str, ...]:
    """Notes on room for ``pods`` more pods like those of ``found``.

    ``what``: the pods, ``instead``: the alternatives, for the message.

    Raises:
        Refused: the GPUs are not free.
    """
    spec: Json = {} if found.deployment is None else found.deployment["spec"]["template"]["spec"]
    gpus = room.gpus_of(spec)
    if gpus == 0:
        return ("no GPU is asked for, so room for a second engine was not checked",)
    lists = [client.list(kind) for kind in (NODE, RESOURCE_SLICE, RESOURCE_CLAIM, POD)]
    nodes, slices, claims, everything = (found_items or [] for found_items in lists)
    need = Need(pods, gpus)
    fit = room.room_for(need, nodes, slices, claims, everything)
    if fit.verdict != "fits":
        raise Refused(f"{title}: there is no GPU for {what}: {'; '.join(fit.reasons)}", hint=instead)
    # Of a pod that runs: admission adds tolerations (GKE does for GPUs). It may add others to a new pod, so
    # this is said and not refused.
    pod = found.pods[0]["spec"] if found.pods else spec
    why = {node["metadata"]["name"]: room.barred(pod, node) for node in nodes}
    usable = [node for node in nodes if not why[node["metadata"]["name"]]]
    if room.room_for(need, usable, slices, claims, everything).verdict == "fits":
        return fit.reasons
    told = "; ".join(reason for reason in why.values() if reason)
    return (*fit.reasons, f"the pods may not use the nodes whose GPUs are free, so it may not start: {told}")
