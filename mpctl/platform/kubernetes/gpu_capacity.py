"""Capacity for more pods: free GPUs of nodes, and the quotas and limits of a namespace.

GPUs are published as ResourceSlices or counted as nvidia.com/gpu; what cannot be read is reported and never counted as
capacity. Quotas are decided by admission's own arithmetic (``QuotaEvaluator`` and ``LimitRanger`` of Kubernetes 1.36)
over what the namespace lists: operators may create no pods, so a server's dry run cannot be asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from mpctl.errors import NotPermitted, Refused
from mpctl.estimate.capacity import DRIVER, GpuNode, Need, assess_fit, excluded, gpu_nodes
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.kinds import LIMIT_RANGE, NODE, POD, RESOURCE_CLAIM, RESOURCE_QUOTA, RESOURCE_SLICE

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
) -> tuple[bool, tuple[str, ...]]:
    """Return whether ``need`` fits now, and the reasons. Pods that already wait for a GPU come first."""
    everything = list(pods)
    with_dra = gpu_nodes([*nodes, *slices, *claims])
    published = {n.name for n in with_dra if n.published}
    counted = tuple(
        n for n in (_extended(node, everything) for node in nodes if node["metadata"]["name"] not in published) if n
    )
    merged = (*(n for n in with_dra if n.published), *counted)
    waiting = [p for p in everything if _is_pending(p)]
    queued = sum(gpus_of(p["spec"]) for p in waiting)
    fits, reasons = assess_fit(Need(need.replicas + queued, need.gpus), merged)
    if waiting:
        names = ", ".join(p["metadata"]["name"] for p in waiting[:5])
        reasons = (*reasons, f"{len(waiting)} pods already wait for a GPU: {names}")
    return fits, reasons


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
    """Decide as the scheduler does: an empty effect or key means any, the key only with Exists."""
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
    return GpuNode(name, excluded(node), True, devices, taken)


def _is_finished(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _is_pending(pod: Json) -> bool:
    spec = pod.get("spec") or {}
    return not spec.get("nodeName") and not _is_finished(pod) and gpus_of(spec) > 0


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
        fits, reasons = assess_capacity(need, nodes, slices, claims, everything)
        if fits:
            break
        soon, _ = assess_capacity(need, nodes, slices, *without_leaving(claims, everything))
        waited = time.monotonic() - began
        if not soon or waited > _grace_s(everything) + AFTER_GRACE_S:
            used = ", ".join(holders(claims, everything)[:_MOST_HOLDERS])
            stated = "; ".join((*reasons, *([f"in use by {used}"] if used else [])))
            raise Refused(f"{title}: no free GPU for {purpose}: {stated}", hint=hint)
        sleep(_POLL_S)
    # Admission may add other tolerations to a new pod, so this is a note and no refusal.
    excluded = {node["metadata"]["name"]: exclusion_reason(running, node) for node in nodes}
    usable = [node for node in nodes if not excluded[node["metadata"]["name"]]]
    if assess_capacity(need, usable, slices, claims, everything)[0]:
        return reasons
    exclusions = "; ".join(reason for reason in excluded.values() if reason)
    return (*reasons, f"the pods may be unschedulable, since they exclude the nodes with free GPUs: {exclusions}")


def gpu_product(client: Client, names: set[str]) -> str | None:
    """Return the product of the GPUs of the named nodes, else of all nodes; None where they differ or may not be
    read."""
    try:
        products = gpu_products(client.list(NODE) or [], client.list(RESOURCE_SLICE) or [])
    except NotPermitted:
        return None
    distinct = set().union(*(products.get(name, set()) for name in names)) or set().union(*products.values())
    return next(iter(distinct)) if len(distinct) == 1 else None


def _grace_s(pods: Sequence[Json]) -> float:
    """Longest grace period among the pods that terminate."""
    leaving = [pod["metadata"] for pod in pods if pod["metadata"].get("deletionTimestamp")]
    return max((float(meta.get("deletionGracePeriodSeconds") or _GRACE_S) for meta in leaving), default=_GRACE_S)


Amounts = dict[str, Decimal]
# Of a load client's pod. vLLM 0.32: importing the client takes 11 s of a processor and 1.1 GiB. The client has one
# thread; quotas may require a limit.
LOAD_RESOURCES = {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"cpu": "4", "memory": "4Gi"}}
LOAD_POD = {"containers": [{"name": "load", "resources": LOAD_RESOURCES}]}
_COMPUTE = ("cpu", "memory", "ephemeral-storage")  # counted with and without the prefix "requests."
_REQUIRED = ("cpu", "memory")  # a quota of these refuses a container that names none
_GIB, _MIB = Decimal(2**30), Decimal(2**20)
_SUFFIXES = {
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
    **{"m": Decimal("0.001"), "u": Decimal("0.000001"), "n": Decimal("0.000000001")},
}


def require_quota(
    client: Client, namespace: str, pods: Sequence[Json], objects: Mapping[str, int], *, title: str, hint: str
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


def exceeded_quotas(
    quotas: Iterable[Json], ranges: Sequence[Json], pods: Sequence[Json], objects: Mapping[str, int]
) -> Iterator[str]:
    """Name each quota that has no room, with the amounts of each resource that is short."""
    defaulted = [_with_defaults(pod, ranges) for pod in pods]
    for quota in quotas:
        scopes = list(_scopes(quota))
        counted = [pod for pod in defaulted if all(_in_scope(pod, scope) for scope in scopes)]
        needed = _sum(map(_pod_amounts, counted))
        if not scopes:
            needed |= {f"count/{name}": Decimal(number) for name, number in objects.items()}
        status = quota.get("status") or {}
        hard = {**(quota["spec"].get("hard") or {}), **(status.get("hard") or {})}
        used = status.get("used") or {}
        short = [
            f"{name} used {_text(name, _amount(used.get(name, 0)))}, hard {_text(name, _amount(limit))}, "
            f"needed {_text(name, needed[name])}"
            for name, limit in sorted(hard.items())
            if needed.get(name) and _amount(used.get(name, 0)) + needed[name] > _amount(limit)
        ]
        short += [
            f"container {container} names no {key}"
            for key in sorted(hard)
            for container in dict.fromkeys(c for pod in counted for c in _unnamed(pod, key))
        ]
        if short:
            what = f"{len(pods)} more {'pod' if len(pods) == 1 else 'pods'}" if pods else "more objects"
            yield f"ResourceQuota {quota['metadata']['name']} has no room for {what}: {', '.join(short)}"


def exceeded_limits(ranges: Sequence[Json], pods: Sequence[Json]) -> Iterator[str]:
    """Name each limit of a container or a pod that a pod does not keep."""
    violations: dict[str, None] = {}
    for pod in (_with_defaults(pod, ranges) for pod in pods):
        containers = [(f"container {c['name']}", c.get("resources") or {}) for c in pod.get("containers") or []]
        total = {field: _total(pod, field) for field in ("requests", "limits")}
        for limit_range in ranges:
            for item in limit_range["spec"].get("limits") or []:
                checked = {"Container": containers, "Pod": [("the pod", total)]}.get(str(item.get("type")), [])
                for owner, resources in checked:
                    for fault in _beyond(item, resources):
                        violations[f"LimitRange {limit_range['metadata']['name']}: {owner} has {fault}"] = None
    yield from violations


def _beyond(item: Json, resources: Json) -> Iterator[str]:
    for bound, field, sign in (("max", "limits", 1), ("min", "requests", -1)):
        for name, limit in (item.get(bound) or {}).items():
            value = (resources.get(field) or {}).get(name)
            if value is not None and sign * (_amount(value) - _amount(limit)) > 0:
                yield f"{field}.{name} {_text(name, _amount(value))}, {bound} {_text(name, _amount(limit))}"


def _with_defaults(pod: Json, ranges: Sequence[Json]) -> Json:
    """The pod as LimitRanger and the API server's own defaults leave it."""
    items = [i for r in ranges for i in r["spec"].get("limits") or [] if i.get("type") == "Container"]

    def filled(container: Json) -> Json:
        resources = container.get("resources") or {}
        limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
        requests = {**limits, **requests}
        for item in items:
            limits = {**(item.get("default") or {}), **limits}
            requests = {**(item.get("defaultRequest") or item.get("default") or {}), **requests}
        return {**container, "resources": {"limits": limits, "requests": requests}}

    fields = ("containers", "initContainers")
    return {**pod, **{field: [filled(c) for c in pod.get(field) or []] for field in fields}}


def _pod_amounts(pod: Json) -> Amounts:
    """Return what a quota counts of one pod."""
    amounts: Amounts = {"pods": Decimal(1), "count/pods": Decimal(1)}
    for name, value in _total(pod, "requests").items():
        amounts[f"requests.{name}"] = value
        if name in _COMPUTE or name.startswith("hugepages-"):
            amounts[name] = value
    amounts |= {f"limits.{name}": value for name, value in _total(pod, "limits").items() if name in _COMPUTE}
    return amounts


def _total(pod: Json, field: str) -> Amounts:
    """Requests or limits of a pod: of its containers and sidecars together, or of one that runs before them."""
    largest: Amounts = {}
    sidecars: Amounts = {}
    for container in pod.get("initContainers") or []:
        alone = _sum((sidecars, _of(container, field)))
        if container.get("restartPolicy") == "Always":
            sidecars = alone
        largest = {name: max(largest.get(name, Decimal(0)), value) for name, value in {**largest, **alone}.items()}
    together = _sum((sidecars, *(_of(container, field) for container in pod.get("containers") or [])))
    amounts = {name: max(value, largest.get(name, Decimal(0))) for name, value in {**largest, **together}.items()}
    overhead = {name: _amount(value) for name, value in (pod.get("overhead") or {}).items()}
    amounts = _sum((amounts, {name: value for name, value in overhead.items() if name in amounts}))
    return {**amounts, **_of(pod, field)}  # resources of the whole pod count in place of its containers'


def _sum(parts: Iterable[Amounts]) -> Amounts:
    total: Amounts = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, Decimal(0)) + value
    return total


def _of(owner: Json, field: str) -> Amounts:
    return {name: _amount(value) for name, value in ((owner.get("resources") or {}).get(field) or {}).items()}


def _unnamed(pod: Json, key: str) -> Iterator[str]:
    """Containers without a resource that a quota requires every container to name."""
    field, _, name = key.rpartition(".")
    if name not in _REQUIRED or field not in ("", "requests", "limits"):
        return
    field = field or "requests"
    for container in pod.get("containers") or []:
        if name not in _of(container, field) and name not in _of(pod, field):
            yield str(container.get("name"))


def _scopes(quota: Json) -> Iterator[tuple[str, str, list[str]]]:
    spec = quota["spec"]
    for scope in spec.get("scopes") or []:
        yield scope, "Exists", []
    for item in (spec.get("scopeSelector") or {}).get("matchExpressions") or []:
        yield item["scopeName"], item["operator"], item.get("values") or []


def _in_scope(pod: Json, scope: tuple[str, str, list[str]]) -> bool:
    """Return whether a quota of the scope counts the pod. A scope that says nothing of pods here counts none."""
    name, operator, values = scope
    if name == "PriorityClass":
        class_name = pod.get("priorityClassName") or ""
        present = {
            "Exists": bool(class_name),
            "DoesNotExist": not class_name,
            "In": class_name in values,
            "NotIn": class_name not in values,
        }
        return present.get(operator, False)
    ends = pod.get("activeDeadlineSeconds") is not None
    best_effort = not any(
        _of(c, field) for c in (*(pod.get("containers") or []), pod) for field in ("requests", "limits")
    )
    return {
        "Terminating": ends,
        "NotTerminating": not ends,
        "BestEffort": best_effort,
        "NotBestEffort": not best_effort,
    }.get(name, False)


def _amount(value: object) -> Decimal:
    """A Kubernetes quantity as a number. ``kubernetes.utils.quantity`` has it, too, but importing it loads every model
    of the client, for seconds."""
    text = str(value)
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return Decimal(text.removesuffix(suffix)) * factor
    return Decimal(text)


def _text(name: str, value: Decimal) -> str:
    """An amount as a reader writes it: memory and storage in Gi or Mi."""
    if not name.endswith(("memory", "storage")):
        return f"{value.normalize():f}"
    unit, suffix = (_GIB, "Gi") if value >= _GIB else (_MIB, "Mi")
    return f"{round(value / unit, 2).normalize():f}{suffix}"
