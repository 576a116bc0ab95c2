"""GPUs: whether the driver publishes devices on every GPU node, and which label, taint or quota prevents it.

A chart that is Ready proves nothing: the NVIDIA DRA driver runs happily without publishing one GPU. So the check
reads ResourceSlices with devices.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpctl import commands
from mpctl.doctor.api import DRA
from mpctl.doctor.facts import ClusterFacts, Thing, age_s, at, each, is_true, label, place, title
from mpctl.doctor.finding import Finding, Severity
from mpctl.estimate.capacity import DRIVER, GPU_LABEL

LIMIT = "nvidia.com/gpu"
_DRIVER = "kubernetes-sigs/dra-driver-nvidia-gpu, chart 0.4"
_GKE_POOL, _EKS_POOL = "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup"
# Labels set by infra/gcp/pools.py, with their purpose (GKE documentation, "Prepare GKE infrastructure for DRA").
GKE_LABELS = {
    "gke-no-default-nvidia-gpu-device-plugin": "turns off GKE's device plugin, which hands out the same GPUs",
    GPU_LABEL: "lets the DRA driver's plugin land",
    "cloud.google.com/gke-nvidia-gpu-dra-driver": "makes the autoscaler count GPUs to come, so that the pool can grow",
}
# A new node publishes late; until then nothing is wrong (kubernetes/autoscaler#7530).
_GRACE_S = 600
_CRITICAL = {"system-node-critical", "system-cluster-critical"}


def is_gpu_node(node: Thing) -> bool:
    """By NVIDIA's label, the clouds' accelerator labels, or what the device plugin allocates."""
    labels = at(node, "metadata", "labels") or {}
    accelerator = any(key in labels for key in ("cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator"))
    return labels.get(GPU_LABEL) == "true" or accelerator or allocatable(node) > 0


def allocatable(node: Thing) -> int:
    """GPUs that the device plugin hands out on a node."""
    text = str(at(node, "status", "allocatable", LIMIT) or "0")
    return int(text) if text.isdigit() else 0


def devices_of(facts: ClusterFacts, node: str) -> int | None:
    """Devices the driver publishes for a node; None when there is no slice at all."""
    slices = [
        s
        for s in facts.known("resourceslices")
        if at(s, "spec", "driver") == DRIVER and at(s, "spec", "nodeName") == node
    ]
    return len({d.get("name") for s in slices for d in each(s, "spec", "devices")}) if slices else None


def check_nodes(facts: ClusterFacts) -> Iterator[Finding]:
    nodes = facts.read("nodes")
    if nodes is None:
        return
    gpus = [n for n in nodes if is_gpu_node(n) or devices_of(facts, place(n)[1])]
    if not gpus:
        yield Finding(
            "gpu-nodes",
            "warn",
            "cluster",
            f"none of {len(nodes)} nodes has a GPU label, a GPU to allocate or a ResourceSlice of {DRIVER}",
            f"if the pool is at zero, {commands.line('capacity', 'CLUSTER')} reports whether it can grow",
            "docs/how-to/stacks.md",
        )
    for node in gpus:
        if at(node, "spec", "unschedulable"):
            yield Finding(
                "gpu-node-cordoned", "warn", title("node", node), "is cordoned: no pod is placed there",
                f"kubectl uncordon {place(node)[1]} when the work on it is done",
            )  # fmt: skip
        elif not is_true(node, "Ready"):
            yield Finding(
                "gpu-node-not-ready", "warn", title("node", node), "is not Ready: its GPUs cannot be used",
                f"kubectl describe node {place(node)[1]}",
            )  # fmt: skip
        taints = [t for t in each(node, "spec", "taints") if t.get("key") == LIMIT]
        if not taints:
            yield Finding(
                "gpu-node-open",
                "note",
                title("node", node),
                f"has no {LIMIT} taint: pods without a GPU fill the node and block its GPUs",
                f"taint the pool with {LIMIT}=present:NoSchedule",
                "docs/how-to/stacks.md",
            )


def check_driver(facts: ClusterFacts) -> Iterator[Finding]:
    classes, nodes = facts.read("deviceclasses"), facts.read("nodes")
    if classes is None or "v1" not in facts.groups.get(DRA, ()):
        return
    subject = f"DeviceClass {DRIVER}"
    if any(at(c, "metadata", "name") == DRIVER for c in classes):
        yield Finding("dra-driver", "ok", subject, "exists")
        return
    plugin = sum(allocatable(n) for n in nodes or ())
    users = [s for s in facts.known("inferenceservices") if each(s, "spec", "predictor", "resourceClaims")]
    yield Finding(
        "dra-driver",
        "fail" if users else "note",
        subject,
        "not found: no claim for a GPU can be allocated"
        + (f"; the device plugin offers {plugin} through {LIMIT}" if plugin else ""),
        "install the NVIDIA DRA driver's chart, with gpuResourcesEnabledOverride: true",
        _DRIVER,
    )


def check_slices(facts: ClusterFacts) -> Iterator[Finding]:
    nodes = facts.read("nodes")
    driver = any(at(c, "metadata", "name") == DRIVER for c in facts.known("deviceclasses"))
    if nodes is None or not driver or facts.read("resourceslices") is None:
        return
    gpus = [n for n in nodes if is_gpu_node(n) and at(n, "metadata", "name")]
    counts = {place(n)[1]: devices_of(facts, place(n)[1]) for n in gpus}
    none_publishes = bool(gpus) and not any(counts.values())
    for node in gpus:
        name = place(node)[1]
        if counts[name]:
            yield Finding("dra-slices", "ok", title("node", node), f"publishes {counts[name]} GPUs")
            continue
        symptom = "publishes a ResourceSlice without devices" if counts[name] == 0 else "publishes no ResourceSlice"
        young = (age_s(node, facts.now) or _GRACE_S) < _GRACE_S
        cause, fix, source = _why_silent(facts, node, none_publishes)
        if young:
            cause, fix, source = "the node is young", "wait ten minutes after it is Ready", "kubernetes/autoscaler#7530"
        severity: Severity = "note" if young else "warn" if allocatable(node) else "fail"
        yield Finding("dra-slices", severity, title("node", node), f"{symptom} of {DRIVER}: {cause}", fix, source)


def _why_silent(facts: ClusterFacts, node: Thing, none_publishes: bool) -> tuple[str, str, str]:
    """The likeliest cause: the plugin does not run on the node, or runs with publishing turned off."""
    plugins = facts.known("dra-daemonsets")
    landed = [p for p in plugins if at(p, "status", "numberReady")]
    if label(node, GPU_LABEL) != "true" and label(node, "feature.node.kubernetes.io/pci-10de.present") != "true":
        return (
            "the driver's plugin does not land there, neither of the labels it asks for is on the node",
            f"label the pool {GPU_LABEL}=true, or run node-feature-discovery with tolerations for GPU nodes "
            "and pci.deviceLabelFields [vendor]",
            _DRIVER,
        )
    if none_publishes and plugins and not landed:
        return (
            "the driver's plugin runs on no node",
            f"kubectl -n {place(plugins[0])[0]} describe daemonset {place(plugins[0])[1]}",
            _DRIVER,
        )
    if none_publishes:
        return (
            "no node does; the chart leaves its GPU plugin off unless two values turn it on",
            "set gpuResourcesEnabledOverride: true and resources.gpus.enabled: true in the chart's values",
            f"{_DRIVER}: gpuResourcesEnabledOverride",
        )
    return (
        "other nodes do, so the plugin does not run or fails there",
        "kubectl get pods -A -o wide -l app.kubernetes.io/name=nvidia-dra-driver-gpu; they must tolerate its taints",
        _DRIVER,
    )


def check_double(facts: ClusterFacts) -> Iterator[Finding]:
    for node in facts.known("nodes"):
        if allocatable(node) and devices_of(facts, place(node)[1]):
            yield Finding(
                "gpu-twice",
                "fail",
                title("node", node),
                f"its GPUs are handed out twice: {allocatable(node)} by the device plugin and "
                f"{devices_of(facts, place(node)[1])} by the DRA driver, which do not know of each other",
                "turn the device plugin off there"
                + (" (label gke-no-default-nvidia-gpu-device-plugin=true)" if label(node, _GKE_POOL) else ""),
                "NVIDIA DRA driver documentation, coexistence with the device plugin",
            )


def check_cloud_labels(facts: ClusterFacts) -> Iterator[Finding]:
    dra = bool(facts.known("resourceslices")) or bool(facts.known("deviceclasses"))
    checked_pools: set[str] = set()
    for node in facts.known("nodes"):
        pool = label(node, _GKE_POOL)
        if not dra or not pool or pool in checked_pools or not is_gpu_node(node):
            continue
        checked_pools.add(pool)
        missing = [f"{key}=true {what}" for key, what in GKE_LABELS.items() if label(node, key) != "true"]
        if missing:
            yield Finding(
                "gke-labels",
                "warn",
                f"node pool {pool}",
                f"lacks labels: {'; '.join(missing)}",
                f"gcloud container node-pools update {pool} --node-labels=...; labels of the pool, not of its nodes",
                "GKE documentation, DRA; infra/gcp/pools.py",
            )


def check_growth(facts: ClusterFacts) -> Iterator[Finding]:
    nodes = [n for n in facts.known("nodes") if is_gpu_node(n)]
    users = [s for s in facts.known("inferenceservices") if each(s, "spec", "predictor", "resourceClaims")]
    if not users:
        return
    karpenter = [n for n in nodes if label(n, "karpenter.sh/nodepool") or label(n, "eks.amazonaws.com/compute-type")]
    if karpenter:
        yield Finding(
            "karpenter-dra",
            "warn",
            title("node", karpenter[0]),
            "comes from Karpenter or EKS Auto Mode, which do not see claims: a pod that waits for a GPU brings no node",
            "keep the nodes of a candidate ready, or use a managed node group with the cluster autoscaler",
            "kubernetes-sigs/karpenter#1231, aws/containers-roadmap#2314",
        )
    pools = sorted({pool for n in nodes if (pool := label(n, _EKS_POOL))})
    if pools:
        yield Finding(
            "eks-minimum",
            "note",
            f"node group {', '.join(pools)}",
            "cluster autoscaler cannot start a group from zero for pods with claims",
            f"keep the group's minimum at 1 or more; {commands.line('capacity', 'CLUSTER')} reads it",
            "kubernetes/autoscaler#10199",
        )


def check_quota(facts: ClusterFacts) -> Iterator[Finding]:
    """GKE allows system-critical pods outside kube-system only where a ResourceQuota allows them."""
    if not any(label(n, _GKE_POOL) for n in facts.known("nodes")) or facts.read("resourcequotas") is None:
        return
    for plugin in facts.known("dra-daemonsets"):
        namespace = place(plugin)[0]
        critical = at(plugin, "spec", "template", "spec", "priorityClassName")
        if critical not in _CRITICAL or namespace == "kube-system":
            continue
        quotas = [q for q in facts.known("resourcequotas") if place(q)[0] == namespace]
        if not any(_allows_critical(q) for q in quotas):
            yield Finding(
                "gke-critical-quota",
                "fail" if not at(plugin, "status", "numberReady") else "warn",
                f"namespace {namespace}",
                f"has no ResourceQuota for {critical} pods: GKE refuses the driver's pods there",
                "create one with scopeSelector PriorityClass In [system-node-critical, system-cluster-critical]",
                "GKE documentation, DRA; stacks/platform.py",
            )


def _allows_critical(quota: Thing) -> bool:
    rules = each(quota, "spec", "scopeSelector", "matchExpressions")
    return any(r.get("scopeName") == "PriorityClass" and _CRITICAL & set(r.get("values") or ()) for r in rules)


CHECKS = (
    check_nodes, check_driver, check_slices, check_double, check_cloud_labels, check_growth, check_quota,
)  # fmt: skip
