"""Updates that cannot proceed: the strategy wants a new pod first, and no node or quota has room for it.

Replicas, maxSurge and maxUnavailable count as the Deployment controller counts them (maxSurge is rounded up,
maxUnavailable down), nodes as the scheduler does: readiness, taints, node selector and affinity, requests, claims and
required anti-affinity. Objects that cannot be read make no finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from mpctl.doctor.state import ClusterFacts, KubeObject, Symptom, full_name, selects
from mpctl.doctor.workloads import Workload, workloads
from mpctl.estimate.capacity import EXTENDED, excluded, exclusion_reason, gpu_nodes, is_finished
from mpctl.estimate.quota import Amounts, amount, exceeded_quotas, requested, total
from mpctl.json_fields import list_at, mapping_at, value_at
from mpctl.json_types import JsonView

ALL_PODS = "pods of all namespaces"
_MANY = 10**6
_HOST = "kubernetes.io/hostname"
_CHANGED = "{maxSurge: 0, maxUnavailable: 1}"
_FIELDS = {
    "InferenceService": f"spec.predictor.deploymentStrategy.rollingUpdate: {_CHANGED}",
    "Deployment": f"spec.strategy.rollingUpdate: {_CHANGED}",
    "LeaderWorkerSet": f"spec.rolloutStrategy.rollingUpdateConfiguration: {_CHANGED}",
    "VLLMRuntime": "the deploymentStrategy of its pods to Recreate",
}  # KServe gives an LLMInferenceService no update strategy


def _count(value: Any, replicas: int, *, up: bool) -> int:
    """Pods of an IntOrString."""
    text = str(value)
    if not text.endswith("%"):
        return int(text)
    hundredths = int(text.removesuffix("%")) * replicas
    return -(-hundredths // 100) if up else hundredths // 100


def strategy(workload: Workload) -> tuple[int, int]:
    """Return how many pods an update may add and how many it may stop first, as their controller resolves them."""
    spec, replicas = value_at(workload.record, "spec"), workload.replicas
    if value_at(spec, "leaderWorkerTemplate"):
        rolling = mapping_at(spec, "rolloutStrategy", "rollingUpdateConfiguration")
        limits = {"maxSurge": "0", "maxUnavailable": "1", **rolling}
        return resolved_limits({"rollingUpdate": limits}, replicas)
    return resolved_limits(value_at(spec, "strategy"), replicas)


def resolved_limits(strategy: JsonView | None, replicas: int) -> tuple[int, int]:
    """Return how many pods a Deployment's update with this strategy may add, and how many it may stop first."""
    if value_at(strategy, "type") == "Recreate":
        return 0, replicas
    surge, unavailable = (
        value_at(strategy, "rollingUpdate", key) for key in ("maxSurge", "maxUnavailable")
    )
    surge = "25%" if surge is None else surge
    unavailable = "25%" if unavailable is None else unavailable
    added, stopped = _count(surge, replicas, up=True), _count(unavailable, replicas, up=False)
    return added, stopped if added or stopped else 1


@dataclass(frozen=True)
class _Room:
    """Nodes with what runs on them."""

    nodes: Sequence[KubeObject]
    pods: Mapping[str, Sequence[KubeObject]]  # all that could be read, by node
    used: Mapping[str, Amounts]  # what these request, by node
    devices: Mapping[str, int] | None  # free GPUs of the DRA driver by node, None when unknown

    def slots(self, node: KubeObject, pod: JsonView) -> int:
        """Pods that the free resources of a node are enough for."""
        allocatable, used = (
            mapping_at(node, "status", "allocatable"),
            self.used.get(full_name(node)[1], {}),
        )
        counts = [_MANY]
        for name, needed in requested(pod).items():
            if needed and ("/" in name or name in allocatable):
                free = amount(allocatable.get(name) or 0) - used.get(name, Decimal(0))
                counts.append(max(0, int(free // needed)))
        if claims := _templates(pod):
            counts.append((self.devices or {}).get(full_name(node)[1], 0) // claims)
        return min(counts)


def _templates(pod: JsonView) -> int:
    """GPU claims that a new pod gets, in addition to those that pods share: none next to GPUs of the device plugin."""
    if requested(pod).get(EXTENDED):
        return 0
    return sum("resourceClaimTemplateName" in claim for claim in list_at(pod, "resourceClaims"))


def _room(facts: ClusterFacts) -> _Room | None:
    nodes, known = facts.read("nodes"), facts.read("resourceslices") is not None
    if nodes is None:
        return None
    pods = {full_name(pod): pod for name in (ALL_PODS, "pods") for pod in facts.listed(name)}
    staying = [
        p
        for p in pods.values()
        if not is_finished(p) and not value_at(p, "metadata", "deletionTimestamp")
    ]
    counted = known and facts.read("resourceclaims") is not None
    kinds = {"nodes": "Node", "resourceslices": "ResourceSlice", "resourceclaims": "ResourceClaim"}
    items = [
        {**item, "kind": kind}
        for resource, kind in kinds.items()
        for item in facts.listed(resource)
    ]
    devices = {node.name: node.free for node in gpu_nodes([{"items": items}])} if counted else None
    by_node: dict[str, list[KubeObject]] = {}
    for pod in staying:
        by_node.setdefault(str(value_at(pod, "spec", "nodeName")), []).append(pod)
    used = {
        name: total(requested(value_at(pod, "spec")) for pod in on_node)
        for name, on_node in by_node.items()
    }
    return _Room(nodes, by_node, used, devices)


def check_surge(facts: ClusterFacts) -> Iterator[Symptom]:
    """A new pod that must start before an old one stops, and cannot."""
    room = _room(facts)
    if room is None or not room.nodes:
        return
    for workload in workloads(facts):
        surge, unavailable = strategy(workload)
        pod = mapping_at(workload.template, "spec")
        devices = (
            _templates(pod)
            or any("/" in name for name in requested(pod))
            or _terms(workload.template)
        )
        if (
            unavailable
            or not workload.replicas
            or not devices
            or (_templates(pod) and room.devices is None)
        ):
            continue
        obstacle = _obstacle(workload, pod, room, facts)
        if obstacle is None:
            continue
        field = _FIELDS.get(workload.kind)
        stop = "" if workload.replicas > 1 else " and accept the downtime"
        yield Symptom(
            "surge-deadlock",
            "warn",
            workload.title,
            f"every change starts a new pod before an old one stops (maxSurge {surge}, maxUnavailable 0 for "
            f"{workload.replicas} replicas), and {obstacle}: the new pod can never start while the old ones serve",
            (f"set {field}{stop}, or " if field else "") + "add a node that takes the pod",
            "Kubernetes, rolling update of a Deployment",
        )


def _obstacle(workload: Workload, pod: JsonView, room: _Room, facts: ClusterFacts) -> str | None:
    """Return why no node takes a new pod; None when one does."""
    size = int(value_at(workload.record, "spec", "leaderWorkerTemplate", "size") or 1)
    homes = {value_at(own, "spec", "nodeName") for own in workload.pods(facts)}
    tolerated = [
        taint
        for n in room.nodes
        if full_name(n)[1] in homes
        for taint in list_at(n, "spec", "taints")
    ]
    tolerated += [{"key": name} for name in requested(pod) if "/" in name]  # admission adds these
    tolerations = [{"key": taint.get("key"), "operator": "Exists"} for taint in tolerated]
    tolerant = {**pod, "tolerations": [*list_at(pod, "tolerations"), *tolerations]}
    usable = [
        n
        for n in room.nodes
        if not excluded(n) and not exclusion_reason(tolerant, n) and _in_affinity(pod, n)
    ]
    free = [node for node in usable if room.slots(node, pod)]
    if sum(room.slots(node, pod) for node in free) < size:
        claims = {"GPU claims": Decimal(_templates(pod))} if _templates(pod) else {}
        wanted = ", ".join(
            f"{name} {value:f}" for name, value in {**requested(pod), **claims}.items()
        )
        return f"none of {len(room.nodes)} nodes has room for it ({wanted})"
    if all(_repelled(workload, pod, node, room) for node in free):
        return "a required podAntiAffinity excludes every node that has room"
    return None


def _in_affinity(pod: JsonView, node: KubeObject) -> bool:
    required = value_at(
        pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    terms = list_at(required, "nodeSelectorTerms")
    return not terms or any(selects(term, mapping_at(node, "metadata", "labels")) for term in terms)


def _repelled(workload: Workload, pod: JsonView, node: KubeObject, room: _Room) -> bool:
    """Return whether a required anti-affinity, of the new pod or of one that runs, keeps the new pod off a node."""
    new = {"metadata": {"namespace": workload.names[0], "labels": workload.labels}, "spec": pod}
    for other in room.nodes:
        for running in room.pods.get(full_name(other)[1], ()):
            terms = (
                *((t, new, running) for t in _terms(new)),
                *((t, running, new) for t in _terms(running)),
            )
            for term, owner, target in terms:
                key = str(term.get("topologyKey"))
                domain = _domain(node, key)
                if (
                    domain is not None
                    and domain == _domain(other, key)
                    and _selected(term, owner, target)
                ):
                    return True
    return False


def _terms(pod: KubeObject) -> Sequence[Any]:
    return list_at(
        pod, "spec", "affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )


def _domain(node: KubeObject, key: str) -> str | None:
    value = value_at(node, "metadata", "labels", key)
    return full_name(node)[1] if value is None and key == _HOST else value


def _selected(term: JsonView, owner: KubeObject, target: KubeObject) -> bool:
    """Return whether a pod affinity's term selects a pod."""
    everywhere = term.get("namespaceSelector") == {}
    namespaces = term.get("namespaces") or [full_name(owner)[0]]
    if term.get("labelSelector") is None or not (everywhere or full_name(target)[0] in namespaces):
        return False
    labels, own = (mapping_at(pod, "metadata", "labels") for pod in (target, owner))
    same = all(labels.get(key) == own.get(key) for key in list_at(term, "matchLabelKeys"))
    return same and selects(term["labelSelector"], labels)


def check_quotas(facts: ClusterFacts) -> Iterator[Symptom]:
    """Quotas without room for one more pod of a service."""
    for workload in workloads(facts):
        quotas, ranges = (
            [
                item
                for item in facts.listed(name)
                if full_name(item)[0] == workload.names[0] and item.get("spec")
            ]
            for name in ("resourcequotas", "limitranges")
        )
        pod = value_at(workload.template, "spec")
        if not pod or not workload.replicas or facts.read("limitranges") is None:
            continue
        waits = (
            "" if strategy(workload)[1] else ", and no change of the service can start its new pod"
        )
        for fault in exceeded_quotas(quotas, ranges, [pod], {}):
            yield Symptom(
                "quota-full",
                "warn",
                workload.title,
                f"{fault}: a candidate is refused{waits}",
                "raise the quota, or free what uses it",
                "Kubernetes, resource quotas",
            )


CHECKS = (check_surge, check_quotas)
