from __future__ import annotations

import pytest

from mpctl.cloud.managed_cluster import Cluster, parse_cluster
from mpctl.errors import InputError

EKS = Cluster("serving", "us-east-1")
GKE = Cluster("serving", "us-central1", "my-project")


@pytest.mark.parametrize(
    "cluster", [EKS, GKE, Cluster("a_b", "cn-north-1"), Cluster("a", "us-central1-a", "b.c:d")]
)
def test_a_cluster_is_parsed_from_its_short_name(cluster: Cluster) -> None:
    assert parse_cluster(cluster.short) == cluster


@pytest.mark.parametrize(
    "text",
    [
        "serving",
        "",
        "aks/west/serving",
        "eks/us-east-1",
        "gke/us-central1/serving",
        "eks/us-east-1/a b",
        "eks/r/n/x",
    ],
)
def test_other_names_are_refused_with_both_forms(text: str) -> None:
    with pytest.raises(InputError, match="CLUSTER") as refused:
        parse_cluster(text)
    assert "eks/REGION/NAME" in (refused.value.hint or "")
