"""``mpctl capacity`` without a terminal: a request in, the answer out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpctl.app.cluster.clouds import assess_capacity
from mpctl.app.environment_requests import CapacityRequest, CloudClusterRef
from mpctl.errors import InputError
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


@pytest.fixture
def cloud(monkeypatch):
    fake = FakeCloud()
    monkeypatch.setattr("mpctl.app.cluster.clouds.open_cloud", lambda cluster, *, profile=None: fake)
    return fake


def test_missing_nodes_are_counted_against_the_pool(cloud):
    outcome = assess_capacity(EKS)
    assert (outcome.fit.verdict, outcome.fit.add_nodes) == ("resize", 1)


def test_what_could_not_be_checked_is_no_capacity(cloud):
    cloud.offered = PoolLimits(("us-east-1a",), "EC2 quota", None, None, 8)
    assert assess_capacity(EKS).fit.verdict == "unknown"


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (replace(EKS, pool="a100"), "--pool"),
        (replace(EKS, cluster=CloudClusterRef("serving")), "CLUSTER"),
    ],
)
def test_what_is_missing_or_unknown_is_refused_by_its_option(cloud, request_, field):
    with pytest.raises(InputError) as caught:
        assess_capacity(request_)
    assert caught.value.field == field


def test_one_of_several_pools_has_to_be_named(cloud):
    cloud.known = (*cloud.known, replace(cloud.known[0], name="h100"))
    with pytest.raises(InputError, match="several GPU pools") as caught:
        assess_capacity(EKS)
    assert caught.value.hint == "name one of: l4, h100"
    assert assess_capacity(replace(EKS, pool="h100")).pool.name == "h100"
