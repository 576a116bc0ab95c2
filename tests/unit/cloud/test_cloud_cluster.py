from __future__ import annotations

import pytest

from mpctl.cloud.managed_cluster import Cluster, parse_cluster
from mpctl.errors import InputError

EKS = Cluster("eks", "serving", "us-east-1")
GKE = Cluster("gke", "serving", "us-central1", "my-project")


@pytest.mark.parametrize(
    ("text", "flags", "cluster"),
    [
        ("eks/us-east-1/serving", {}, EKS),
        ("serving", {"region": "us-east-1"}, EKS),
        (
            "arn:aws:eks:us-east-1:123456789012:cluster/serving",
            {},
            Cluster("eks", "serving", "us-east-1", "123456789012"),
        ),
        ("arn:aws-cn:eks:cn-north-1:123456789012:cluster/a_b", {}, Cluster("eks", "a_b", "cn-north-1", "123456789012")),
        ("gke/my-project/us-central1/serving", {}, GKE),
        ("projects/my-project/locations/us-central1/clusters/serving", {}, GKE),
        ("https://container.googleapis.com/v1/projects/my-project/zones/us-central1/clusters/serving", {}, GKE),
        ("serving", {"project": "my-project", "location": "us-central1"}, GKE),
        ("eks/us-east-1/serving", {"region": "us-east-1"}, EKS),
    ],
)
def test_every_way_to_write_it(text: str, flags: dict[str, str], cluster: Cluster) -> None:
    assert parse_cluster(text, **flags) == cluster


@pytest.mark.parametrize("cluster", [EKS, GKE])
def test_the_short_name_reads_back(cluster: Cluster) -> None:
    assert parse_cluster(cluster.short) == cluster


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("serving", {}),
        ("", {"region": "us-east-1"}),
        ("aks/west/serving", {}),
        ("serving", {"project": "my-project"}),
        ("serving", {"region": "us-east-1", "project": "p", "location": "l"}),
        ("eks/us-east-1/serving", {"region": "eu-west-1"}),
        ("gke/my-project/us-central1/serving", {"project": "other"}),
        ("gke/my-project/us-central1/serving", {"region": "us-central1"}),
    ],
)
def test_what_names_no_cluster_or_two(text: str, flags: dict[str, str]) -> None:
    with pytest.raises(InputError, match="CLUSTER"):
        parse_cluster(text, **flags)
