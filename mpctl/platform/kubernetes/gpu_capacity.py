"""Capacity for more pods: free GPUs of nodes, and the quotas and limits of a namespace.

GPUs are published as ResourceSlices or counted as nvidia.com/gpu; what cannot be read is reported and never counted as
capacity. Operators may create no pods, so a server's dry run cannot be asked whether a quota has room.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from mpctl.errors import NotPermitted, Refused
from mpctl.estimate.capacity import (
    DRIVER,
    Need,
    allocated_gpus,
    assess_fit,
    counted_node,
    exclusion_reason,
    gpu_nodes,
    gpus_of,
    is_finished,
)
from mpctl.estimate.quota import exceeded_limits, exceeded_quotas
from mpctl.json_fields import labels_of, list_at, mapping_at, name_of, owners_of, value_at
from mpctl.json_types import JsonView
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import (
    LIMIT_RANGE,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_QUOTA,
    RESOURCE_SLICE,
)

# Labels of a node that name its GPUs: of NVIDIA's GPU feature discovery, GKE, EKS Auto Mode and Karpenter.
PRODUCT_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "eks.amazonaws.com/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-name",
)


def assess_capacity(
    need: Need,
    nodes: Sequence[JsonView],
    slices: Iterable[JsonView],
    claims: Iterable[JsonView],
    pods: Iterable[JsonView],
) -> tuple[bool, tuple[str, ...]]:
    """Return whether ``need`` fits now, and the reasons. Pods that already wait for a GPU come first."""
    everything = list(pods)
    with_dra = gpu_nodes([*nodes, *slices, *claims])
    published = {n.name for n in with_dra if n.published}
    counted = tuple(
        n
        for n in (
            counted_node(node, everything) for node in nodes if name_of(node) not in published
        )
        if n
    )
    merged = (*(n for n in with_dra if n.published), *counted)
    waiting = [p for p in everything if _is_pending(p)]
    queued = sum(math.ceil(gpus_of(p["spec"]) / need.gpus) for p in waiting)
    fits, reasons = assess_fit(replace(need, waiting=queued), merged)
    if waiting:
        names = ", ".join(name_of(p) for p in waiting[:5])
        reasons = (*reasons, f"{len(waiting)} pods already wait for a GPU: {names}")
    return fits, reasons


def gpu_products(nodes: Iterable[JsonView], slices: Iterable[JsonView]) -> dict[str, set[str]]:
    """Return the products of each GPU node: what the DRA driver publishes, else a label."""
    products: dict[str, set[str]] = {}
    for item in slices:
        for device in (
            list_at(item, "spec", "devices") if item["spec"].get("driver") == DRIVER else []
        ):
            name = value_at(device, "attributes", "productName", "string")
            if name:
                products.setdefault(str(item["spec"].get("nodeName")), set()).add(name)
    for node in nodes:
        labels = labels_of(node)
        label = next((labels[name] for name in PRODUCT_LABELS if labels.get(name)), None)
        if label:
            products.setdefault(name_of(node), {label.replace("-", " ")})
    return products


def holders(claims: Iterable[JsonView], pods: Iterable[JsonView]) -> tuple[str, ...]:
    """Return the pods that use GPUs, as ``namespace/name``, and the claims that keep one without a pod."""
    names = set()
    for pod in pods:
        if value_at(pod, "spec", "nodeName") and not is_finished(pod) and gpus_of(pod["spec"]):
            names.add(f"{pod['metadata'].get('namespace')}/{name_of(pod)}")
    for claim in claims:
        status, meta = mapping_at(claim, "status"), claim["metadata"]
        if status.get("allocation") and not status.get("reservedFor"):
            names.add(f"claim {meta.get('namespace')}/{meta['name']}")
    return tuple(sorted(names))


def _held(claim: JsonView, pods: set[str | None]) -> bool:
    """Return whether a claim keeps its devices: some user of it stays, or it is used by something that is no pod."""
    users = list_at(claim, "status", "reservedFor")
    if claim["metadata"].get("deletionTimestamp"):
        return False
    owners = [o["uid"] for o in owners_of(claim) if o.get("kind") == "Pod"]
    if (
        not users
    ):  # allocated to nobody: its pod is gone, or it was made by hand and its devices are kept
        return not owners or any(uid in pods for uid in owners)
    return any(user.get("resource") != "pods" or user.get("uid") in pods for user in users)


def _is_pending(pod: JsonView) -> bool:
    spec = mapping_at(pod, "spec")
    return not spec.get("nodeName") and not is_finished(pod) and gpus_of(spec) > 0


AFTER_GRACE_S = 60.0  # until a pod that was killed is gone from the API and its claim is released
_GRACE_S = 30.0  # the default of Kubernetes
_POLL_S = 1.0
_MOST_HOLDERS = 5  # named in a message


def require_capacity(
    client: Client,
    template: JsonView,
    running: JsonView,
    *,
    title: str,
    pods: int,
    purpose: str,
    hint: str,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, ...]:
    """Return notes on the capacity for ``pods`` more pods of the Deployment's pod ``template``.

    ``running``: a running pod, or its spec alone where none runs: admission has added tolerations to it (GKE does for
    GPUs), and its claims tell how many GPUs it has. GPUs of pods that terminate are waited for, at most their grace
    period and a minute: a rollback leaves such pods behind.

    Raises:
        Refused: the GPUs are not free; the message names the ``purpose`` of the pods and has the ``hint``.
    """
    gpus = gpus_of(template)
    if gpus == 0:
        return ("the pods request no GPU: capacity for a second engine was not checked",)
    began = time.monotonic()
    while True:
        lists = [client.list(kind) or [] for kind in (NODE, RESOURCE_SLICE, RESOURCE_CLAIM)]
        try:
            everything = client.list(POD) or []
        except NotPermitted as error:  # the one right that mpctl rbac can leave out
            return (f"capacity for {purpose} is unknown: {error.message}",)
        nodes, slices, claims = lists
        need = Need(pods, max(gpus, allocated_gpus(claims, running)))
        fits, reasons = assess_capacity(need, nodes, slices, claims, everything)
        if fits:
            break
        # Once the pods that terminate, or are gone, have released their claims.
        staying = [pod for pod in everything if not pod["metadata"].get("deletionTimestamp")]
        uids = {pod["metadata"].get("uid") for pod in staying}
        held = [claim for claim in claims if _held(claim, uids)]
        soon, _ = assess_capacity(need, nodes, slices, held, staying)
        waited = time.monotonic() - began
        if not soon or waited > _grace_s(everything) + AFTER_GRACE_S:
            used = ", ".join(holders(claims, everything)[:_MOST_HOLDERS])
            stated = "; ".join((*reasons, *([f"in use by {used}"] if used else [])))
            raise Refused(f"{title}: no free GPU for {purpose}: {stated}", hint=hint)
        sleep(_POLL_S)
    # Admission may add other tolerations to a new pod, so this is a note and no refusal.
    excluded = {name_of(node): exclusion_reason(running["spec"], node) for node in nodes}
    usable = [node for node in nodes if not excluded[name_of(node)]]
    if assess_capacity(need, usable, slices, claims, everything)[0]:
        return reasons
    exclusions = "; ".join(reason for reason in excluded.values() if reason)
    return (
        *reasons,
        f"the pods may be unschedulable, since they exclude the nodes with free GPUs: {exclusions}",
    )


def gpu_product(client: Client, names: set[str]) -> str | None:
    """Return the product of the GPUs of the named nodes, else of all nodes; None where they differ or may not be
    read."""
    try:
        products = gpu_products(client.list(NODE) or [], client.list(RESOURCE_SLICE) or [])
    except NotPermitted:
        return None
    distinct = set().union(*(products.get(name, set()) for name in names)) or set().union(
        *products.values()
    )
    return next(iter(distinct)) if len(distinct) == 1 else None


def _grace_s(pods: Sequence[JsonView]) -> float:
    """Longest grace period among the pods that terminate."""
    leaving = [pod["metadata"] for pod in pods if pod["metadata"].get("deletionTimestamp")]
    return max(
        (float(meta.get("deletionGracePeriodSeconds") or _GRACE_S) for meta in leaving),
        default=_GRACE_S,
    )


# Of a load client's pod. vLLM 0.32: importing the client takes 11 s of a processor and 1.1 GiB. The client has one
# thread; quotas may require a limit.
LOAD_RESOURCES = {
    "requests": {"cpu": "1", "memory": "512Mi"},
    "limits": {"cpu": "4", "memory": "4Gi"},
}
LOAD_POD = {"containers": [{"name": "load", "resources": LOAD_RESOURCES}]}


def require_quota(
    client: Client,
    namespace: str,
    pods: Sequence[JsonView],
    objects: Mapping[str, int],
    *,
    title: str,
    hint: str,
) -> tuple[str, ...]:
    """Return notes on what could not be read.

    ``pods``: specs of the pods to come. ``objects``: other new objects, by the name that a quota counts them by.

    Raises:
        Refused: a quota or a limit is in the way; the message has its figures.
    """
    try:
        quotas = client.list(RESOURCE_QUOTA, namespace) or []
        ranges = client.list(LIMIT_RANGE, namespace) or [] if pods else []
    except NotPermitted as error:
        return (f"quotas of namespace {namespace} are unknown: {error.message}",)
    faults = [*exceeded_quotas(quotas, ranges, pods, objects), *exceeded_limits(ranges, pods)]
    if faults:
        raise Refused(f"{title}: {'; '.join(faults)}", hint=hint)
    return ()
