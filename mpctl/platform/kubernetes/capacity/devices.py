"""Free GPUs of nodes, published as ResourceSlices or counted as nvidia.com/gpu.

Pure. What cannot be read is reported and never counted as capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mpctl.estimate.capacity import DRIVER, Fit, GpuNode, Need, PoolLimits, assess_fit, excluded, gpu_nodes

Json = Mapping[str, Any]
EXTENDED = "nvidia.com/gpu"
# Labels of a node that name its GPUs: of NVIDIA's GPU feature discovery, GKE, EKS Auto Mode and Karpenter.
PRODUCT_LABELS = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "eks.amazonaws.com/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-name",
)


def gpus_of(pod_spec: Json) -> int:
    """Number of GPUs that a pod requests: its claims, else its limits."""
    claims = pod_spec.get("resourceClaims") or []
    if claims:
        return len(claims)
    total = 0
    for container in pod_spec.get("containers") or []:
        limits = (container.get("resources") or {}).get("limits") or {}
        total += int(limits.get(EXTENDED) or 0)
    return total


def assess_capacity(
    need: Need, nodes: Sequence[Json], slices: Iterable[Json], claims: Iterable[Json], pods: Iterable[Json]
) -> Fit:
    """Assess whether ``need`` fits now. Pods that already wait for a GPU come first."""
    everything = list(pods)
    with_dra = gpu_nodes([*nodes, *slices, *claims])
    published = {n.name for n in with_dra if n.published}
    counted = tuple(
        n for n in (_extended(node, everything) for node in nodes if node["metadata"]["name"] not in published) if n
    )
    merged = (*(n for n in with_dra if n.published), *counted)
    waiting = [p for p in everything if _is_pending(p)]
    queued = sum(gpus_of(p["spec"]) for p in waiting)
    fit = assess_fit(Need(need.replicas + queued, need.gpus), merged, None, PoolLimits())
    reasons = tuple(r for r in fit.reasons if "node pool" not in r)
    if waiting:
        names = ", ".join(p["metadata"]["name"] for p in waiting[:5])
        reasons = (*reasons, f"{len(waiting)} pods already wait for a GPU: {names}")
    return Fit(fit.verdict, 0, reasons, fit.unchecked)


def gpu_products(nodes: Iterable[Json], slices: Iterable[Json]) -> dict[str, set[str]]:
    """Return the products of each GPU node: what the DRA driver publishes, else a label."""
    products: dict[str, set[str]] = {}
    for item in slices:
        for device in item["spec"].get("devices") or [] if item["spec"].get("driver") == DRIVER else []:
            name = ((device.get("attributes") or {}).get("productName") or {}).get("string")
            if name:
                products.setdefault(str(item["spec"].get("nodeName")), set()).add(name)
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        label = next((labels[name] for name in PRODUCT_LABELS if labels.get(name)), None)
        if label:
            products.setdefault(node["metadata"]["name"], {label.replace("-", " ")})
    return products


def holders(claims: Iterable[Json], pods: Iterable[Json]) -> tuple[str, ...]:
    """Return the pods that use GPUs, as ``namespace/name``, and the claims that keep one without a pod."""
    names = set()
    for pod in pods:
        if (pod.get("spec") or {}).get("nodeName") and not _is_finished(pod) and gpus_of(pod["spec"]):
            names.add(f"{pod['metadata'].get('namespace')}/{pod['metadata']['name']}")
    for claim in claims:
        status, meta = claim.get("status") or {}, claim["metadata"]
        if status.get("allocation") and not status.get("reservedFor"):
            names.add(f"claim {meta.get('namespace')}/{meta['name']}")
    return tuple(sorted(names))


def without_leaving(claims: Iterable[Json], pods: Iterable[Json]) -> tuple[list[Json], list[Json]]:
    """Return the claims and pods that remain once the pods that terminate, or are gone, have released theirs."""
    staying = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    uids = {pod["metadata"].get("uid") for pod in staying}
    return [claim for claim in claims if _held(claim, uids)], staying


def _held(claim: Json, pods: set[str | None]) -> bool:
    """Return whether a claim keeps its devices: some user of it stays, or it is used by something that is no pod."""
    users = (claim.get("status") or {}).get("reservedFor") or []
    if claim["metadata"].get("deletionTimestamp"):
        return False
    owners = [o["uid"] for o in claim["metadata"].get("ownerReferences") or [] if o.get("kind") == "Pod"]
    if not users:  # allocated to nobody: its pod is gone, or it was made by hand and its devices are kept
        return not owners or any(uid in pods for uid in owners)
    return any(user.get("resource") != "pods" or user.get("uid") in pods for user in users)


def exclusion_reason(pod_spec: Json, node: Json) -> str:
    """Reason why node selector or taints exclude a node for a pod; empty when they do not."""
    labels = node["metadata"].get("labels") or {}
    for key, value in (pod_spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return f"{node['metadata']['name']} has no label {key}={value}"
    for taint in (node.get("spec") or {}).get("taints") or []:
        hard = taint.get("effect") in ("NoSchedule", "NoExecute")
        if hard and not any(_tolerates(t, taint) for t in pod_spec.get("tolerations") or []):
            value = f"={taint['value']}" if taint.get("value") else ""
            return f"{node['metadata']['name']} has taint {taint['key']}{value}:{taint['effect']}"
    return ""


def _tolerates(toleration: Json, taint: Json) -> bool:
    """As the scheduler decides: an empty effect or key means any, the key only with Exists."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("operator") == "Exists":
        return not toleration.get("key") or toleration["key"] == taint.get("key")
    same_value = (toleration.get("value") or "") == (taint.get("value") or "")
    return toleration.get("key") == taint.get("key") and same_value


def _extended(node: Json, pods: Sequence[Json]) -> GpuNode | None:
    name = node["metadata"]["name"]
    status = node.get("status") or {}
    devices = int((status.get("allocatable") or {}).get(EXTENDED) or 0)
    if not devices:
        return None
    running = [p for p in pods if (p.get("spec") or {}).get("nodeName") == name and not _is_finished(p)]
    taken = sum(gpus_of(p["spec"]) for p in running if not p["spec"].get("resourceClaims"))
    return GpuNode(name, None, excluded(node), True, devices, taken)


def _is_finished(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _is_pending(pod: Json) -> bool:
    spec = pod.get("spec") or {}
    return not spec.get("nodeName") and not _is_finished(pod) and gpus_of(spec) > 0
