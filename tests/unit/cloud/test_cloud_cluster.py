from __future__ import annotations

import sys

import pytest

from mpctl.cloud.managed_cluster import Cluster, open_cloud, parse_cluster
from mpctl.errors import InputError, MpctlError

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


@pytest.mark.parametrize(
    ("cluster", "library"), [("eks/us-east-1/a", "boto3"), ("gke/p/us-east1/a", "google")]
)
def test_a_cloud_without_its_library_says_what_to_install(
    cluster: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mpctl.cloud.eks", "mpctl.cloud.gke"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MpctlError) as error:
        open_cloud(parse_cluster(cluster), profile=None)
    assert error.value.message.startswith(f"{cluster} needs {library}")
    assert (error.value.hint or "").startswith("pip install 'mpctl[cloud]'")
