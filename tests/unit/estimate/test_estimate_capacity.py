from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from mpctl.estimate.capacity import Need, Pool, PoolLimits, assess_fit, gpu_nodes

LISTING = json.loads((Path(__file__).parents[2] / "data" / "gpu-nodes.json").read_text())
POOL = Pool("l4", "g6.2xlarge", 1, 1, 1, 3, ("us-east-1a", "us-east-1b"))
ROOM = PoolLimits(("us-east-1a",), "quota", 64, 8, 8)


def listing() -> Any:
    return copy.deepcopy(LISTING)


def node_of(document: Any, name: str) -> Any:
    return next(item for item in document["items"] if item["kind"] == "Node" and item["metadata"]["name"] == name)


def test_devices_from_slices_and_allocations_from_claims() -> None:
    a, b = gpu_nodes([LISTING])
    assert (a.name, a.pool, a.devices, a.taken, a.free) == ("gpu-a", "l4", 1, 1, 0)
    assert (b.name, b.free, b.published) == ("gpu-b", 1, True)


def test_free_gpus_of_another_pool_are_not_this_pools() -> None:
    document = listing()
    node_of(document, "gpu-b")["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] = "h100"
    fit = assess_fit(Need(1), gpu_nodes([document]), POOL, ROOM)
    assert fit.verdict == "resize"
    assert "0 of 1 GPUs on 1 nodes are free" in fit.reasons
    assert "not counted, as outside pool l4: gpu-b" in fit.reasons


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
    assert f"gpu-b is {change}: it takes no pod" in assess_fit(Need(1), nodes, None, ROOM).reasons


def test_a_gpu_node_without_a_slice_is_named_with_the_reason() -> None:
    document = listing()
    document["items"] = [item for item in document["items"] if item["metadata"]["name"] != "gpu-b-gpu"]
    nodes = gpu_nodes([document])
    assert not nodes[1].published
    fit = assess_fit(Need(1), nodes, POOL, ROOM)
    assert fit.verdict == "resize"
    assert any("gpu-b publish no ResourceSlice" in reason and "#7530" in reason for reason in fit.reasons)


def test_a_claim_of_another_driver_takes_nothing() -> None:
    document = listing()
    claim = document["items"][-1]
    claim["status"]["allocation"]["devices"]["results"][0]["driver"] = "net.example.com"
    assert [n.free for n in gpu_nodes([document])] == [1, 1]


def test_gpus_of_one_replica_must_be_on_one_node() -> None:
    nodes = gpu_nodes([{"items": [item for item in LISTING["items"] if item["kind"] != "ResourceClaim"]}])
    assert assess_fit(Need(2, 1), nodes, None, PoolLimits()).verdict == "fits"
    fit = assess_fit(Need(1, 2), nodes, POOL, ROOM)
    assert fit.verdict == "no"
    assert "a g6.2xlarge of pool l4 has 1 GPU, a replica needs 2" in fit.reasons


@pytest.mark.parametrize(
    ("need", "room", "verdict", "add"),
    [
        (Need(1), ROOM, "resize", 1),
        (Need(2), ROOM, "resize", 2),
        (Need(3), ROOM, "no", 3),
        (Need(2), PoolLimits(("us-east-1a",), "quota", 16, 8, 8), "no", 2),
        (Need(1), PoolLimits(("us-east-1a",), "quota", 16, 8, 8), "resize", 1),
        (Need(1), PoolLimits((), "quota", 64, 8, 8), "no", 1),
        (Need(1), PoolLimits(None, "quota", 64, 8, 8), "unknown", 1),
        (Need(1), PoolLimits(("us-east-1a",), "quota", None, 8, 8), "unknown", 1),
        (Need(1), PoolLimits(("us-east-1a",), "quota", 64, None, 8), "unknown", 1),
        (Need(3), PoolLimits(None, "quota", None, None, 8), "no", 3),  # one certain no is enough
    ],
)
def test_the_truth_table(need: Need, room: PoolLimits, verdict: str, add: int) -> None:
    fit = assess_fit(need, (), POOL, room)
    assert (fit.verdict, fit.add_nodes) == (verdict, add)


def test_without_objects_every_device_counts_as_taken() -> None:
    fit = assess_fit(Need(1), None, POOL, ROOM)
    assert fit.verdict == "resize"
    assert fit.unchecked[0].startswith("free GPUs")


def test_no_pool_is_a_no() -> None:
    assert assess_fit(Need(1), (), None, PoolLimits()).verdict == "no"
