"""GPU nodes, the DRA driver and what the clouds add, as the doctor sees them."""

from datetime import timedelta

import pytest
from doctor_cluster import NOW, check, facts, faults, healthy, meta, node, slice_of, the

from mpctl.doctor import diagnose

FAULTS = {}
fault = faults(FAULTS)


@fault(("gpu-nodes", "warn"))
def no_gpu_nodes(o):
    o["nodes"] = [{"metadata": meta("cpu"), "spec": {}, "status": {}}]
    o["resourceslices"] = []


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


@fault(("gpu-twice", "fail"))
def device_plugin_beside_dra(o):
    the(o, "nodes")["status"]["allocatable"]["nvidia.com/gpu"] = "1"


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_nothing_else(name):
    check(*FAULTS[name])


@pytest.mark.parametrize(
    ("labels", "landed", "everywhere", "word"),
    [
        ({"nvidia.com/gpu.present": "true"}, 2, True, "gpuResourcesEnabledOverride"),
        ({"nvidia.com/gpu.present": "true"}, 2, False, "taints"),
        ({"nvidia.com/gpu.present": "true"}, 0, True, "describe daemonset"),
        (
            {"nvidia.com/gpu.present": "no", "cloud.google.com/gke-accelerator": "nvidia-l4"},
            2,
            True,
            "label the pool",
        ),
    ],
)
def test_why_a_node_publishes_nothing(labels, landed, everywhere, word):
    objects = healthy()
    objects["resourceslices"] = [] if everywhere else [slice_of("gpu-b")]
    objects["nodes"] = [node("gpu-a", **labels), *([] if everywhere else [node("gpu-b")])]
    the(objects, "dra-daemonsets")["status"]["numberReady"] = landed
    finding = next(
        f for f in diagnose(facts(objects)) if f.id == "dra-slices" and f.severity == "fail"
    )
    assert word in finding.fix
    assert finding.subject == "node gpu-a"
