from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from mpctl.estimate.capacity import Need, assess_fit, gpu_nodes

LISTING = json.loads((Path(__file__).parents[2] / "data" / "gpu-nodes.json").read_text())


def listing() -> Any:
    return copy.deepcopy(LISTING)


def node_of(document: Any, name: str) -> Any:
    return next(
        item
        for item in document["items"]
        if item["kind"] == "Node" and item["metadata"]["name"] == name
    )


def test_devices_from_slices_and_allocations_from_claims() -> None:
    a, b = gpu_nodes([LISTING])
    assert (a.name, a.devices, a.taken, a.free) == ("gpu-a", 1, 1, 0)
    assert (b.name, b.free, b.published) == ("gpu-b", 1, True)


@pytest.mark.parametrize("change", ["cordoned", "not ready"])
def test_a_node_that_takes_no_pods_has_nothing_free(change: str) -> None:
    document = listing()
    node = node_of(document, "gpu-b")
    if change == "cordoned":
        node["spec"]["unschedulable"] = True
    else:
        node["status"]["conditions"][0]["status"] = "Unknown"
    nodes = gpu_nodes([document])
    assert [n.free for n in nodes] == [0, 0]
    assert f"gpu-b is {change}: it takes no pod" in assess_fit(Need(1), nodes)[1]


def test_a_gpu_node_without_a_slice_is_named_with_the_reason() -> None:
    document = listing()
    document["items"] = [
        item for item in document["items"] if item["metadata"]["name"] != "gpu-b-gpu"
    ]
    nodes = gpu_nodes([document])
    assert not nodes[1].published
    fits, reasons = assess_fit(Need(1), nodes)
    assert not fits
    assert any(
        "gpu-b publish no ResourceSlice" in reason and "#7530" in reason for reason in reasons
    )


def test_a_claim_of_another_driver_takes_nothing() -> None:
    document = listing()
    claim = document["items"][-1]
    claim["status"]["allocation"]["devices"]["results"][0]["driver"] = "net.example.com"
    assert [n.free for n in gpu_nodes([document])] == [1, 1]


def test_gpus_of_one_replica_must_be_on_one_node() -> None:
    nodes = gpu_nodes(
        [{"items": [item for item in LISTING["items"] if item["kind"] != "ResourceClaim"]}]
    )
    assert assess_fit(Need(2, 1), nodes)[0]
    fits, reasons = assess_fit(Need(1, 2), nodes)
    assert not fits
    assert reasons[-1] == "1 x 2 GPU cannot be placed now"
