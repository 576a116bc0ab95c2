"""Reads nodes, devices and claims, and refuses pods without a free GPU; ``devices`` decides."""

from __future__ import annotations

from mpctl.errors import NotPermitted, Refused
from mpctl.estimate.capacity import Need
from mpctl.platform.kubernetes.api.client import Client, Json
from mpctl.platform.kubernetes.api.kinds import NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE
from mpctl.platform.kubernetes.capacity.devices import assess_capacity, exclusion_reason, gpus_of


def require_capacity(
    client: Client, template: Json, running: Json, *, title: str, pods: int, purpose: str, hint: str
) -> tuple[str, ...]:
    """Return notes on the capacity for ``pods`` more pods of the Deployment's pod ``template``.

    ``running``: the spec of a running pod, to which admission has added tolerations (GKE does for GPUs).

    Raises:
        Refused: the GPUs are not free; the message names the ``purpose`` of the pods and has the ``hint``.
    """
    gpus = gpus_of(template)
    if gpus == 0:
        return ("the pods request no GPU: capacity for a second engine was not checked",)
    lists = [client.list(kind) for kind in (NODE, RESOURCE_SLICE, RESOURCE_CLAIM)]
    try:
        lists.append(client.list(POD))
    except NotPermitted as error:  # the one right that mpctl rbac can leave out
        return (f"capacity for {purpose} is unknown: {error.message}",)
    nodes, slices, claims, everything = (items or [] for items in lists)
    need = Need(pods, gpus)
    fit = assess_capacity(need, nodes, slices, claims, everything)
    if fit.verdict != "fits":
        raise Refused(f"{title}: no free GPU for {purpose}: {'; '.join(fit.reasons)}", hint=hint)
    # Admission may add other tolerations to a new pod, so this is a note and no refusal.
    excluded = {node["metadata"]["name"]: exclusion_reason(running, node) for node in nodes}
    usable = [node for node in nodes if not excluded[node["metadata"]["name"]]]
    if assess_capacity(need, usable, slices, claims, everything).verdict == "fits":
        return fit.reasons
    reasons = "; ".join(reason for reason in excluded.values() if reason)
    return (*fit.reasons, f"the pods may be unschedulable, since they exclude the nodes with free GPUs: {reasons}")
