"""Modelplane manifests: what is read, and every refusal with file, line and field."""

from __future__ import annotations

import re

import pytest

from mpctl.errors import InputError
from stacks.fleet import read_fleet
from tests.stacks.conftest import ROOT

EKS = (ROOT / "manifests/fleet/eks-l4.yaml").read_text("utf-8")
GKE = (ROOT / "manifests/fleet/gke-l4.yaml").read_text("utf-8")


def test_the_published_manifests_are_read_as_they_are() -> None:
    fleet = read_fleet([("eks.yaml", EKS), ("gke.yaml", GKE)])
    eks, gke = fleet.clusters
    assert (eks.name, eks.provider, eks.region, eks.version, eks.project) == (
        "eks-l4-single",
        "EKS",
        "us-west-2",
        None,
        None,
    )
    assert (gke.name, gke.provider, gke.region, gke.project) == (
        "gke-l4-single",
        "GKE",
        "us-central1",
        "my-gcp-project",
    )
    pool = eks.pools[0]
    assert (pool.minimum, pool.nodes, pool.maximum, pool.zones) == (1, 1, 4, ("us-west-2a",))
    assert (pool.hardware.machine, pool.hardware.disk_gb, pool.hardware.accelerator_count) == (
        "g6.2xlarge",
        100,
        1,
    )
    device = pool.hardware.devices[0]
    assert (device.device_class, device.capacity["memory"], device.attributes["architecture"]) == (
        "gpu.nvidia.com",
        "23034Mi",
        "Ada Lovelace",
    )


def test_classes_may_stand_in_another_file() -> None:
    class_, cluster = EKS.split("---\n")
    assert (
        read_fleet([("z.yaml", cluster), ("a.yaml", class_)]).clusters[0].pools[0].hardware.name
        == "eks-l4-1x-g6"
    )


def test_both_generations_of_the_schema() -> None:
    later = GKE.replace(
        "      project: my-gcp-project  # Replace with your GCP project ID.\n",
        '      kubernetesVersion: "1.36"\n',
    )
    cluster = read_fleet([("gke.yaml", later)]).clusters[0]
    assert (cluster.project, cluster.version) == (None, "1.36")


def test_other_kinds_are_passed_over() -> None:
    other = (
        "apiVersion: modelplane.ai/v1alpha1\nkind: ModelService\nmetadata: {name: x}\nspec: {}\n"
    )
    assert read_fleet([("x.yaml", other)]).clusters == ()


REFUSALS = [
    ("- name: gpu-l4", "- name: system", "spec.nodePools[0].name", "taken by the cluster itself"),
    (
        "- name: gpu-l4",
        "- name: model-volume",
        "spec.nodePools[0].name",
        "taken by the cluster itself",
    ),
    ("- name: gpu-l4", "- name: 4xl4", "spec.nodePools[0].name", "begins with a letter"),
    ("name: eks-l4-single", f"name: e{'k' * 40}", "metadata.name", "at most 40"),
    ("source: EKS", "source: AKS", "spec.cluster.source", "AKS is not supported"),
    ("source: EKS", "source: Existing", "spec.cluster.source", "Existing is not supported"),
    ("source: EKS", "source: ESK", "spec.cluster.source", "did you mean EKS"),
    ("provider: EKS", "provider: Nebius", "spec.provisioning.provider", "Nebius is not supported"),
    (
        "region: us-west-2",
        "regoin: us-west-2",
        "spec.cluster.eks.region",
        "required field is missing",
    ),
    (
        "minNodeCount: 1",
        "minNodesCount: 1",
        "spec.nodePools[0].minNodesCount",
        "did you mean minNodeCount",
    ),
    (
        "maxNodeCount: 4",
        "maxNodeCount: four",
        "spec.nodePools[0].maxNodeCount",
        "expected a whole number",
    ),
    (
        "maxNodeCount: 4",
        "maxNodeCount: true",
        "spec.nodePools[0].maxNodeCount",
        "expected a whole number",
    ),
    ("nodeCount: 1", "nodeCount: 9", "spec.nodePools[0].maxNodeCount", "above maxNodeCount 4"),
    (
        "className: eks-l4-1x-g6",
        "className: eks-h100",
        "spec.nodePools[0].className",
        "the manifests define eks-l4-1x-g6",
    ),
    ("- us-west-2a", "- eu-west-1a", "spec.nodePools[0].zones[0]", "not in region us-west-2"),
    (
        "instanceType: g6.2xlarge",
        "machineType: g6.2xlarge",
        "spec.provisioning.eks.instanceType",
        "required field is missing",
    ),
    ("diskSizeGb: 100", "diskSizeGb: 5", "spec.provisioning.eks.diskSizeGb", "not between 10"),
    ("claim: DRA", "claim: Synthetic", "spec.devices[0].claim", "never claimed"),
    (
        "{ string: Ada Lovelace }",
        "{ string: a, int: 1 }",
        "spec.devices[0].attributes.architecture",
        "exactly one of",
    ),
    ("modelplane.ai/v1alpha1", "modelplane.ai/v1", "apiVersion", "is not modelplane.ai/v1alpha1"),
    (
        "maxNodeCount: 4",
        "maxNodeCount: 4\n    fabric: {type: EFA}",
        "spec.nodePools[0].fabric.type",
        "one service runs on one node",
    ),
    (
        "maxNodeCount: 4",
        "maxNodeCount: 4\n    taints: [{key: a, effect: NO_SCHEDULE}]",
        "spec.nodePools[0].taints[0].effect",
        "NoSchedule",
    ),
    (
        "maxNodeCount: 4",
        "maxNodeCount: 4\n    capacityBlock: {capacityReservationId: abc}",
        "spec.nodePools[0].capacityBlock.capacityReservationId",
        "not a reservation id",
    ),
]


@pytest.mark.parametrize(
    ("good", "bad", "field", "message"), REFUSALS, ids=[f"{r[2]}: {r[1][:24]}" for r in REFUSALS]
)
def test_a_mistake_is_named_with_file_line_and_field(
    good: str, bad: str, field: str, message: str
) -> None:
    text = EKS.replace(good, bad, 1)
    assert text != EKS
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_fleet([("fleet.yaml", text)])
    error = caught.value
    assert error.file == "fleet.yaml" and error.field == field
    assert error.line is not None
    start = text[: text.index(bad)].count("\n") + 1
    if "required field" not in message and "above" not in message:
        assert start <= error.line <= start + bad.count("\n"), "the line that was changed"


def test_not_yaml_names_the_line() -> None:
    with pytest.raises(InputError, match="not YAML") as caught:
        read_fleet([("fleet.yaml", EKS.replace("kind: InferenceClass", "kind: [", 1))])
    assert caught.value.line is not None


def test_one_name_twice() -> None:
    with pytest.raises(InputError, match=r"already defined in a\.yaml:"):
        read_fleet([("a.yaml", EKS), ("b.yaml", EKS)])


def test_class_and_cluster_must_be_on_one_cloud() -> None:
    text = EKS.replace("className: eks-l4-1x-g6", "className: gke-l4-1x-g2")
    with pytest.raises(InputError, match="a class for GKE, the cluster is on EKS"):
        read_fleet([("eks.yaml", text), ("gke.yaml", GKE)])
