"""GPUs: whether they can be claimed, and whether the driver publishes devices on every GPU node.

A chart that is Ready proves nothing: the NVIDIA DRA driver runs happily without publishing one GPU. So the check
reads ResourceSlices with devices.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpctl import commands
from mpctl.doctor.state import (
    ClusterFacts,
    KubeObject,
    Severity,
    Symptom,
    age_s,
    full_name,
    label,
    title,
)
from mpctl.doctor.workloads import workloads
from mpctl.estimate.capacity import DRIVER, GPU_LABEL
from mpctl.json_fields import list_at, mapping_at, value_at

LIMIT = "nvidia.com/gpu"
_DRIVER = "kubernetes-sigs/dra-driver-nvidia-gpu, chart 0.4"
_GKE_POOL = "cloud.google.com/gke-nodepool"
DRA, _SERVER = "resource.k8s.io", "API server"
# A new node publishes late; until then nothing is wrong (kubernetes/autoscaler#7530).
_GRACE_S = 600


def is_gpu_node(node: KubeObject) -> bool:
    """Return whether NVIDIA's label, a cloud's accelerator label or the device plugin says that a node has GPUs."""
    labels = mapping_at(node, "metadata", "labels")
    accelerator = any(
        key in labels
        for key in ("cloud.google.com/gke-accelerator", "k8s.amazonaws.com/accelerator")
    )
    return labels.get(GPU_LABEL) == "true" or accelerator or allocatable(node) > 0


def allocatable(node: KubeObject) -> int:
    """GPUs that the device plugin hands out on a node."""
    text = str(value_at(node, "status", "allocatable", LIMIT) or "0")
    return int(text) if text.isdigit() else 0


def devices_of(facts: ClusterFacts, node: str) -> int | None:
    """Devices the driver publishes for a node; None when there is no slice at all."""
    slices = [
        s
        for s in facts.listed("resourceslices")
        if value_at(s, "spec", "driver") == DRIVER and value_at(s, "spec", "nodeName") == node
    ]
    return (
        len({d.get("name") for s in slices for d in list_at(s, "spec", "devices")})
        if slices
        else None
    )


def check_nodes(facts: ClusterFacts) -> Iterator[Symptom]:
    nodes = facts.read("nodes")
    if nodes is None or any(is_gpu_node(n) or devices_of(facts, full_name(n)[1]) for n in nodes):
        return
    yield Symptom(
        "gpu-nodes",
        "warn",
        "cluster",
        f"none of {len(nodes)} nodes has a GPU label, a GPU to allocate or a ResourceSlice of {DRIVER}",
        "raise the GPU pool's minimum, or let a pending pod scale it up from zero",
        "docs/how-to/stacks.md",
    )


def _claiming(facts: ClusterFacts) -> set[str]:
    """The services that claim a GPU, by themselves or by their runtime (KServe 0.21), as their workloads show."""
    claiming = {w.title for w in workloads(facts) if list_at(w.template, "spec", "resourceClaims")}
    services = facts.listed("inferenceservices")
    claims = ("spec", "predictor", "resourceClaims")
    return claiming | {
        title("InferenceService", service) for service in services if list_at(service, *claims)
    }


def check_dra(facts: ClusterFacts) -> Iterator[Symptom]:
    versions, services = facts.groups.get(DRA, ()), _claiming(facts)
    if "v1" in versions:
        yield Symptom("dra-api", "ok", _SERVER, f"serves {DRA}/v1")
    elif services and "discovery" not in facts.unread:
        served = f"{DRA} only as {', '.join(versions)}" if versions else f"no {DRA}"
        yield Symptom(
            "dra-api",
            "fail",
            _SERVER,
            f"serves {served}: no GPU can be claimed, and {len(services)} services claim one",
            "upgrade the control plane to 1.34 or later, or use the device plugin (limits: nvidia.com/gpu)",
            "Kubernetes 1.34 release notes",
        )


def check_driver(facts: ClusterFacts) -> Iterator[Symptom]:
    classes, nodes = facts.read("deviceclasses"), facts.read("nodes")
    if classes is None or "v1" not in facts.groups.get(DRA, ()):
        return
    subject = f"DeviceClass {DRIVER}"
    if any(value_at(c, "metadata", "name") == DRIVER for c in classes):
        yield Symptom("dra-driver", "ok", subject, "exists")
        return
    if not _claiming(facts):
        return
    plugin = sum(allocatable(n) for n in nodes or ())
    yield Symptom(
        "dra-driver",
        "fail",
        subject,
        "not found: no claim for a GPU can be allocated"
        + (f"; the device plugin offers {plugin} through {LIMIT}" if plugin else ""),
        "install the NVIDIA DRA driver's chart, with gpuResourcesEnabledOverride: true",
        _DRIVER,
    )


def check_slices(facts: ClusterFacts) -> Iterator[Symptom]:
    nodes = facts.read("nodes")
    driver = any(value_at(c, "metadata", "name") == DRIVER for c in facts.listed("deviceclasses"))
    if nodes is None or not driver or facts.read("resourceslices") is None:
        return
    gpus = [n for n in nodes if is_gpu_node(n) and value_at(n, "metadata", "name")]
    counts = {full_name(n)[1]: devices_of(facts, full_name(n)[1]) for n in gpus}
    none_publishes = bool(gpus) and not any(counts.values())
    for node in gpus:
        name = full_name(node)[1]
        if counts[name]:
            yield Symptom("dra-slices", "ok", title("node", node), f"publishes {counts[name]} GPUs")
            continue
        symptom = (
            "publishes a ResourceSlice without devices"
            if counts[name] == 0
            else "publishes no ResourceSlice"
        )
        young = (age_s(node, facts.now) or _GRACE_S) < _GRACE_S
        cause, fix = _why_silent(facts, node, none_publishes)
        if young:
            cause, fix = "the node is young", "wait ten minutes after it is Ready"
        source = "kubernetes/autoscaler#7530" if young else _DRIVER
        severity: Severity = "note" if young else "warn" if allocatable(node) else "fail"
        yield Symptom(
            "dra-slices",
            severity,
            title("node", node),
            f"{symptom} of {DRIVER}: {cause}",
            fix,
            source,
        )


def check_double(facts: ClusterFacts) -> Iterator[Symptom]:
    for node in facts.listed("nodes"):
        if allocatable(node) and devices_of(facts, full_name(node)[1]):
            yield Symptom(
                "gpu-twice",
                "fail",
                title("node", node),
                f"its GPUs are handed out twice: {allocatable(node)} by the device plugin and "
                f"{devices_of(facts, full_name(node)[1])} by the DRA driver, which do not know of each other",
                "turn the device plugin off there"
                + (
                    " (label gke-no-default-nvidia-gpu-device-plugin=true)"
                    if label(node, _GKE_POOL)
                    else ""
                ),
                "NVIDIA DRA driver documentation, coexistence with the device plugin",
            )


def _why_silent(facts: ClusterFacts, node: KubeObject, none_publishes: bool) -> tuple[str, str]:
    """The likeliest cause and its fix: the plugin does not run on the node, or runs with publishing turned off."""
    plugins = facts.listed("dra-daemonsets")
    if (
        label(node, GPU_LABEL) != "true"
        and label(node, "feature.node.kubernetes.io/pci-10de.present") != "true"
    ):
        return (
            "the driver's plugin does not run there, neither of the labels it asks for is on the node",
            (
                f"label the pool {GPU_LABEL}=true, or run node-feature-discovery with tolerations for GPU nodes and "
                "pci.deviceLabelFields [vendor]"
            ),
        )
    if (
        none_publishes
        and plugins
        and not any(value_at(p, "status", "numberReady") for p in plugins)
    ):
        return "the driver's plugin runs on no node", (
            commands.kubectl(
                "describe",
                "daemonset",
                full_name(plugins[0])[1],
                namespace=full_name(plugins[0])[0],
            )
        )
    if none_publishes:
        return "no node does; the chart leaves its GPU plugin off unless two values turn it on", (
            "set gpuResourcesEnabledOverride: true and resources.gpus.enabled: true in the chart's values"
        )
    return "other nodes do, so the plugin does not run or fails there", (
        commands.kubectl(
            "get", "pods", "-A", "-o", "wide", "-l", "app.kubernetes.io/name=nvidia-dra-driver-gpu"
        )
        + "; they must tolerate its taints"
    )


CHECKS = (check_nodes, check_dra, check_driver, check_slices, check_double)
