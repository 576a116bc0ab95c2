"""``mpctl capacity`` without a terminal: a request in, the answer and the resize out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from console import RecordingConsole

from mpctl.app.cluster.capacity import run
from mpctl.app.requests import CapacityRequest, CloudClusterRef
from mpctl.errors import Cancelled, InputError, Refused
from mpctl.estimate.capacity import Pool, PoolLimits

NODES = (Path(__file__).parents[3] / "data" / "gpu-nodes.json").read_text(encoding="utf-8")
EKS = CapacityRequest(CloudClusterRef("eks/us-east-1/serving"), replicas=2, objects=NODES)


class FakeCloud:
    """A pool of one node that may have three."""

    def __init__(self, *pools):
        self.offered = PoolLimits(("us-east-1a",), "EC2 quota", 64, 8, 8)
        self.known = pools or (Pool("l4", "g6.2xlarge", 1, 1, 1, 3, ("us-east-1a",)),)

    def pools(self):
        return self.known

    def limits(self, pool):
        return self.offered

    def resize(self, pool, size):
        self.known = (replace(pool, size=size),)
        return size


@pytest.fixture
def cloud(monkeypatch, tmp_path):
    fake = FakeCloud()
    monkeypatch.setenv("MPCTL_STATE_DIR", str(tmp_path))
    monkeypatch.setattr("mpctl.cloud.reach.open_cloud", lambda cluster, *, profile=None: fake)
    return fake


def test_without_a_resize_nothing_is_asked_or_changed(cloud):
    console = RecordingConsole()
    outcome = run(EKS, console)
    assert (outcome.fit.verdict, outcome.fit.add_nodes, outcome.resize) == ("resize", 1, None)
    assert console.questions == []


def test_a_pool_grows_by_what_is_missing_and_is_restored(cloud):
    console = RecordingConsole()
    grown = run(replace(EKS, change="grow"), console).resize
    assert (grown.pool, grown.nodes, grown.changed) == ("l4", 2, True)
    assert console.questions == ["Enlarge pool l4 of eks/us-east-1/serving from 1 by 1?"]
    restored = run(replace(EKS, change="restore"), console)
    assert (restored.fit, restored.resize.nodes, restored.resize.changed) == (None, 1, True)
    assert console.warnings == [
        "the cloud chooses which nodes it removes; their pods are evicted and restart elsewhere"
    ]
    assert run(replace(EKS, change="restore"), console).resize.changed is False


def test_a_pool_does_not_grow_unless_confirmed(cloud):
    with pytest.raises(Cancelled):
        run(replace(EKS, change="grow"), RecordingConsole(declines=True))
    assert cloud.known[0].size == 1


def test_a_pool_does_not_grow_for_a_rollout_that_cannot_fit(cloud):
    outcome = run(replace(EKS, replicas=9, change="grow"), RecordingConsole())
    assert (outcome.fit.verdict, outcome.resize) == ("no", None)


def test_what_could_not_be_checked_grows_no_pool_unless_accepted(cloud):
    cloud.offered = PoolLimits(("us-east-1a",), "EC2 quota", None, None, 8)
    unchecked = replace(EKS, change="grow")
    assert run(unchecked, RecordingConsole()).resize is None
    assert run(replace(unchecked, accept_unchecked=True), RecordingConsole()).resize.changed


def test_nodes_that_serve_are_not_removed(cloud):
    run(replace(EKS, change="grow"), RecordingConsole())
    listing = json.loads(NODES)
    listing["items"].append(json.loads(json.dumps(listing["items"][-1]).replace("gpu-a", "gpu-b")))
    with pytest.raises(Refused, match="2 nodes of pool l4 serve"):
        run(replace(EKS, objects=json.dumps(listing), change="restore"), RecordingConsole())


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (replace(EKS, objects=None, change="restore"), "--objects"),
        (replace(EKS, cluster=CloudClusterRef("gke/p/us-central1/c"), objects=None, change="grow"), "--objects"),
        (replace(EKS, pool="a100"), "--pool"),
        (replace(EKS, cluster=CloudClusterRef("serving")), "CLUSTER"),
    ],
)
def test_what_is_missing_or_unknown_is_refused_by_its_option(cloud, request_, field):
    with pytest.raises(InputError) as caught:
        run(request_, RecordingConsole())
    assert caught.value.field == field


def test_one_of_several_pools_has_to_be_named(cloud):
    cloud.known = (*cloud.known, replace(cloud.known[0], name="h100"))
    with pytest.raises(InputError, match="several GPU pools") as caught:
        run(EKS, RecordingConsole())
    assert caught.value.hint == "name one of: l4, h100"
    assert run(replace(EKS, pool="h100"), RecordingConsole()).pool.name == "h100"
