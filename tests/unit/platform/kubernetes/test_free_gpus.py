"""GPUs of pods that terminate are waited for; those of pods that stay are not. Which GPUs the nodes have."""

import pytest

from mpctl.errors import NotPermitted, Refused
from mpctl.platform.kubernetes.gpu_capacity import gpu_product, require_capacity

NODE = {
    "kind": "Node",
    "metadata": {"name": "n"},
    "spec": {},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}
SLICE = {
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "gpu.nvidia.com",
        "nodeName": "n",
        "pool": {"name": "n"},
        "devices": [{"name": "gpu-0"}],
    },
}
TEMPLATE = {"containers": [{"name": "engine"}], "resourceClaims": [{"name": "gpu"}]}
LEAVING = {"deletionTimestamp": "2026-11-22T10:00:00Z", "deletionGracePeriodSeconds": 30}


def pod(uid="u", **more):
    metadata = {"name": "old", "namespace": "team", "uid": uid} | more
    return {"metadata": metadata, "spec": TEMPLATE | {"nodeName": "n"}, "status": {}}


def claim(users=("u",), owner="u", **more):
    results = [{"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}]
    owners = [{"kind": "Pod", "uid": owner}] if owner else []
    return {
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "team", "ownerReferences": owners} | more,
        "status": {
            "allocation": {"devices": {"results": results}},
            "reservedFor": [{"resource": "pods", "uid": user} for user in users],
        },
    }


class Cluster:
    """Lists what there is; ``sleep`` lets time pass and, after ``free_after_s``, removes pods and claims."""

    def __init__(self, pods, claims, free_after_s):
        self.lists = {
            "Node": [NODE],
            "ResourceSlice": [SLICE],
            "ResourceClaim": claims,
            "Pod": pods,
        }
        self.free_after_s, self.passed_s = free_after_s, 0.0

    def list(self, kind, *_, **__):
        return self.lists[kind.name]

    def sleep(self, seconds):
        self.passed_s += seconds
        if self.passed_s >= self.free_after_s:
            self.lists |= {"ResourceClaim": [], "Pod": []}


@pytest.fixture
def ask(monkeypatch):
    def ask(pods, claims, free_after_s=20.0):
        cluster = Cluster(pods, claims, free_after_s)
        monkeypatch.setattr(
            "mpctl.platform.kubernetes.gpu_capacity.time.monotonic", lambda: cluster.passed_s
        )
        fields = {
            "title": "service a/b",
            "pods": 1,
            "purpose": "a candidate",
            "hint": "",
            "sleep": cluster.sleep,
        }
        try:
            require_capacity(cluster, TEMPLATE, pods[0] if pods else {"spec": TEMPLATE}, **fields)
        except Refused as error:
            return error.message, cluster.passed_s
        return "fits", cluster.passed_s

    return ask


@pytest.mark.parametrize(
    ("pods", "claims"),
    [
        ([pod(**LEAVING)], [claim()]),
        ([], [claim()]),  # the pod is gone, its claim is not released yet
        ([], [claim(users=())]),
        ([], [claim(deletionTimestamp="2026-11-22T10:00:00Z")]),
    ],
)
def test_a_gpu_that_is_being_released_is_waited_for(ask, pods, claims):
    assert ask(pods, claims) == ("fits", 20.0)


@pytest.mark.parametrize(
    ("pods", "claims"),
    [
        ([pod()], [claim()]),
        ([pod(**LEAVING), pod("v")], [claim(users=("u", "v"))]),
        ([], [claim(users=(), owner="")]),  # a claim that somebody made by hand
    ],
)
def test_a_gpu_that_stays_in_use_is_refused_at_once(ask, pods, claims):
    message, waited_s = ask(pods, claims)
    assert "service a/b: no free GPU for a candidate: 0 of 1 GPUs on 1 nodes are free" in message
    assert message.endswith(f"in use by {'team/old' if pods else 'claim team/c'}")
    assert waited_s == 0


def test_a_claim_for_several_gpus_needs_as_many(ask, monkeypatch):
    devices = [{"name": f"gpu-{number}"} for number in range(3)]
    monkeypatch.setitem(SLICE["spec"], "devices", devices)
    pair = claim()
    second = {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-1"}
    pair["status"]["allocation"]["devices"]["results"].append(second)
    message, _ = ask([pod()], [pair])
    assert "1 of 3 GPUs on 1 nodes are free; 1 x 2 GPU cannot be placed now" in message
    assert ask([pod()], [claim()]) == ("fits", 0.0)


def test_a_pod_that_never_ends_is_waited_for_no_longer_than_its_grace_period_and_a_minute(ask):
    message, waited_s = ask([pod(**LEAVING)], [claim()], free_after_s=1e9)
    assert "no free GPU" in message
    assert 90 < waited_s <= 92


def labelled(name, product):
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"nvidia.com/gpu.product": product} if product else {},
        },
    }


def published(node, *products):
    devices = [
        {"name": f"gpu-{n}", "attributes": {"productName": {"string": p}}}
        for n, p in enumerate(products)
    ]
    return {
        "kind": "ResourceSlice",
        "spec": {"driver": "gpu.nvidia.com", "nodeName": node, "devices": devices},
    }


class Nodes:
    def __init__(self, nodes, slices):
        self.lists = {"Node": nodes, "ResourceSlice": slices}

    def list(self, kind):
        return self.lists[kind.name]


class Unreadable:
    def list(self, kind):
        raise NotPermitted(f"list {kind.plural} is forbidden", hint="")


MIXED = Nodes(
    [labelled("a", "NVIDIA-L4"), labelled("b", ""), labelled("c", "")],
    [published("b", "NVIDIA H100 NVL")],
)


@pytest.mark.parametrize(
    ("cluster", "nodes", "product"),
    [
        (MIXED, {"a"}, "NVIDIA L4"),
        (MIXED, {"b"}, "NVIDIA H100 NVL"),
        (MIXED, {"a", "b"}, None),
        (MIXED, set(), None),
        (Nodes([labelled("a", "NVIDIA-L4"), labelled("c", "")], []), {"c"}, "NVIDIA L4"),
        (
            Nodes([labelled("a", "NVIDIA-L4-SHARED")], [published("a", "NVIDIA L4")]),
            {"a"},
            "NVIDIA L4",
        ),
        (Nodes([], []), set(), None),
        (Unreadable(), {"a"}, None),
    ],
)
def test_the_gpu_is_that_of_the_nodes_that_run_the_pods_else_of_all_nodes_else_unknown(
    cluster, nodes, product
):
    assert gpu_product(cluster, nodes) == product
