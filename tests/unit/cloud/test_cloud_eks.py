"""What is read of node groups that moto does not make: those on a Capacity Block."""

from __future__ import annotations

from typing import Any

import pytest

from mpctl.cloud.managed_cluster import Cluster

pytest.importorskip("botocore", reason="botocore is missing: pip install 'mpctl[cloud]'")


class Client:
    """Answers as EKS and EC2 do for one group."""

    def __init__(self, group: dict[str, Any], template: dict[str, Any]) -> None:
        self.group, self.template = group, template
        self.asked: list[dict[str, Any]] = []

    def get_paginator(self, _name: str) -> Any:
        return self

    def paginate(self, **_arguments: Any) -> list[dict[str, list[str]]]:
        return [{"nodegroups": ["block"]}]

    def describe_nodegroup(self, **_arguments: Any) -> dict[str, Any]:
        return {"nodegroup": self.group}

    def describe_launch_template_versions(self, **arguments: Any) -> dict[str, Any]:
        self.asked.append(arguments)
        return {"LaunchTemplateVersions": [{"LaunchTemplateData": self.template}]}

    def describe_instance_types(self, **_arguments: Any) -> dict[str, Any]:
        return {"InstanceTypes": [{"GpuInfo": {"Gpus": [{"Count": 8}]}}]}


GROUP = {
    "nodegroupName": "block",
    "scalingConfig": {"minSize": 1, "maxSize": 2, "desiredSize": 1},
    "capacityType": "CAPACITY_BLOCK",
    "launchTemplate": {"id": "lt-1", "version": "3"},
}


def pools_of(monkeypatch: pytest.MonkeyPatch, client: Client) -> Any:
    from mpctl.cloud.eks import Eks

    cluster = object.__new__(Eks)
    cluster.cluster = Cluster("eks", "serving", "us-east-1")
    monkeypatch.setattr(cluster, "_client", lambda _service: client)
    return cluster.pools()


def test_a_group_on_a_capacity_block_has_its_machine_in_the_launch_template(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(GROUP, {"InstanceType": "p5.48xlarge"})
    (pool,) = pools_of(monkeypatch, client)
    assert (pool.name, pool.machine, pool.gpus, pool.spot) == ("block", "p5.48xlarge", 8, False)
    assert client.asked == [{"LaunchTemplateId": "lt-1", "Versions": ["3"]}]


@pytest.mark.parametrize("group", [GROUP, {k: v for k, v in GROUP.items() if k != "launchTemplate"}])
def test_a_group_whose_machine_nobody_names_is_no_gpu_pool(
    monkeypatch: pytest.MonkeyPatch, group: dict[str, Any]
) -> None:
    assert pools_of(monkeypatch, Client(group, {})) == ()
