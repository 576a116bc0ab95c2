"""GPU nodes, the DRA driver and what the clouds add, as the doctor sees them."""

from datetime import timedelta

import pytest
from doctor_cluster import GKE, NOW, check, facts, faults, healthy, meta, node, said, slice_of, the

from mpctl.doctor import diagnose

FAULTS = {}
fault = faults(FAULTS)


@fault(("gpu-nodes", "warn"))
def no_gpu_nodes(o):
    o["nodes"] = [{"metadata": meta("cpu"), "spec": {}, "status": {}}]
    o["resourceslices"] = []


@fault(("gpu-node-cordoned", "warn"))
def cordoned(o):
    the(o, "nodes")["spec"]["unschedulable"] = True


@fault(("gpu-node-not-ready", "warn"))
def not_ready(o):
    the(o, "nodes")["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]


@fault(("gpu-node-open", "note"))
def no_taint(o):
    the(o, "nodes")["spec"]["taints"] = []


@fault(("dra-driver", "fail"))
def no_device_class(o):
    o["deviceclasses"] = []


@fault(("dra-slices", "fail"))
def override_trap(o):
    o["resourceslices"] = []


@fault(("dra-slices", "fail"))
def slice_without_devices(o):
    o["resourceslices"][1] = slice_of("gpu-b", devices=0)


@fault(("dra-slices", "note"))
def young_node_without_slice(o):
    the(o, "nodes")["metadata"]["creationTimestamp"] = (NOW - timedelta(seconds=90)).isoformat()
    o["resourceslices"] = o["resourceslices"][1:]


@fault(("dra-slices", "warn"))
def device_plugin_alone_on_one_node(o):
    the(o, "nodes")["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    o["resourceslices"] = o["resourceslices"][1:]


@fault(("gpu-driver", "fail"))
def driver_older_than_dra(o):
    for device in o["resourceslices"][1]["spec"]["devices"]:
        device["attributes"] = {"driverVersion": {"version": "535.274.2"}}


@fault(("gpu-driver", "warn"))
def driver_older_than_cuda_13(o):
    for device in o["resourceslices"][1]["spec"]["devices"]:
        device["attributes"] = {"driverVersion": {"version": "570.86.15"}}


@fault(("gpu-twice", "fail"))
def device_plugin_beside_dra(o):
    the(o, "nodes")["status"]["allocatable"]["nvidia.com/gpu"] = "1"


@fault(("gke-labels", "warn"), ("gke-critical-quota", "warn"))
def gke_without_labels(o):
    for one in o["nodes"]:
        one["metadata"]["labels"][GKE] = "l4"


@fault(("karpenter-dra", "warn"))
def karpenter(o):
    the(o, "nodes")["metadata"]["labels"]["karpenter.sh/nodepool"] = "gpu"


@fault(("eks-minimum", "note"))
def eks(o):
    the(o, "nodes")["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] = "l4"


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_nothing_else(name):
    check(*FAULTS[name])


@pytest.mark.parametrize(
    ("labels", "landed", "everywhere", "word"),
    [
        ({"nvidia.com/gpu.present": "true"}, 2, True, "gpuResourcesEnabledOverride"),
        ({"nvidia.com/gpu.present": "true"}, 2, False, "taints"),
        ({"nvidia.com/gpu.present": "true"}, 0, True, "describe daemonset"),
        ({"nvidia.com/gpu.present": "no", "cloud.google.com/gke-accelerator": "nvidia-l4"}, 2, True, "label the pool"),
    ],
)
def test_why_a_node_publishes_nothing(labels, landed, everywhere, word):
    objects = healthy()
    objects["resourceslices"] = [] if everywhere else [slice_of("gpu-b")]
    objects["nodes"] = [node("gpu-a", **labels), *([] if everywhere else [node("gpu-b")])]
    the(objects, "dra-daemonsets")["status"]["numberReady"] = landed
    found = next(f for f in diagnose(facts(objects)) if f.id == "dra-slices" and f.severity == "fail")
    assert word in found.fix
    assert found.subject == "node gpu-a"


def test_gke_quota_is_a_failure_once_no_plugin_runs_and_none_with_a_quota():
    objects = healthy()
    gke_without_labels(objects)
    the(objects, "dra-daemonsets")["status"]["numberReady"] = 0
    assert ("gke-critical-quota", "fail") in said(diagnose(facts(objects)))
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
    objects["resourcequotas"] = [
        {
            "metadata": meta("critical", "nvidia-dra-driver-gpu"),
            "spec": {"scopeSelector": {"matchExpressions": [rule]}},
        }
    ]
    assert "gke-critical-quota" not in {f.id for f in diagnose(facts(objects))}


def test_the_driver_of_every_node_is_named_once_a_version():
    objects = healthy()
    for one, version in zip(objects["resourceslices"], ("580.126.20", "570.86.15"), strict=True):
        for device in one["spec"]["devices"]:
            device["attributes"] = {"driverVersion": {"version": version}}
    told = {f.subject: (f.severity, f.cause) for f in diagnose(facts(objects)) if f.id == "gpu-driver"}
    assert told["GPU driver 580.126.20"] == ("ok", "on gpu-a: 580 or newer")
    assert told["GPU driver 570.86.15"][0] == "warn" and "CUDA 13" in told["GPU driver 570.86.15"][1]


@pytest.mark.parametrize(
    "attributes", [{}, {"driverVersion": {"version": ""}}, {"driverVersion": "580"}, {"driverVersion": {"string": "x"}}]
)
def test_a_driver_that_is_not_published_is_no_finding(attributes):
    objects = healthy()
    for one in objects["resourceslices"]:
        for device in one["spec"]["devices"]:
            device["attributes"] = attributes
    assert not [f for f in diagnose(facts(objects)) if f.id == "gpu-driver"]
