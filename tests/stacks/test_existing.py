"""A network or a cluster that exists: what is still made, what is read instead, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpctl.errors import InputError
from stacks.main import own_layers
from stacks.preflight.checks import Outcome, assess
from stacks.preflight.facts import AccountFacts
from tests.stacks.conftest import synthesise
from tests.stacks.test_apply import Terraform, for_provider_5, terraform  # noqa: F401
from tests.stacks.test_first_apply import EKS, GKE, fleet, golden, refused, resources

VPC = "{vpc: vpc-0a1b2c3d, cidr: 10.0.0.0/16, subnets: {us-west-2a: subnet-0a1b2c3d, us-west-2b: subnet-0e4f5a6b}}"
SHARED_VPC = (
    "{network: shared, subnetwork: nodes, pods: pod-range, services: service-range, cidr: 10.0.0.0/16, "
    "control_plane: 172.16.0.0/28}"
)
CLUSTER = "{cluster: ours, cidr: 10.0.0.0/16, model_volume: fs-0a1b2c3d}"


def existing(folder: Path, cloud: str, text: str) -> dict[str, str]:
    name = EKS if cloud == "eks" else GKE
    return golden(folder, ("serving:\n", f"existing: {{{name}: {text}}}\nserving:\n")) | fleet(
        folder, cloud
    )


def types(stack: dict[str, Any]) -> set[str]:
    return set(stack.get("resource", {}))


def test_an_existing_vpc_is_used_and_no_network_is_made(tmp_path: Path) -> None:
    stack = synthesise(existing(tmp_path, "eks", VPC))[f"{EKS}-cluster"]
    assert not types(stack) & {
        "aws_vpc",
        "aws_subnet",
        "aws_nat_gateway",
        "aws_route_table",
        "aws_vpc_endpoint",
    }
    subnets = {
        name: one["filter"][0]["values"][0] for name, one in stack["data"]["aws_subnet"].items()
    }
    assert subnets == {"private_a": "subnet-0a1b2c3d", "private_b": "subnet-0e4f5a6b"}
    groups = stack["resource"]["aws_eks_node_group"]
    assert groups["gpu_l4"]["subnet_ids"] == ["${data.aws_subnet.private_a.id}"]
    assert len(stack["resource"]["aws_eks_cluster"]["main"]["vpc_config"]["subnet_ids"]) == 2
    (rule,) = stack["resource"]["aws_vpc_security_group_ingress_rule"].values()
    assert rule["cidr_ipv4"] == "10.0.0.0/16"


@pytest.mark.timeout(600)
def test_terraform_accepts_an_existing_vpc(terraform: str, tmp_path: Path) -> None:  # noqa: F811
    actual_terraform = Terraform(
        terraform,
        tmp_path,
        for_provider_5(synthesise(existing(tmp_path, "eks", VPC))[f"{EKS}-cluster"]),
    )
    document = (tmp_path / "cdk.tf.json").read_text("utf-8")
    (tmp_path / "cdk.tf.json").write_text(
        document.replace('"version": "6.69.1"', '"version": "5.100.0"'), "utf-8"
    )
    assert (done := actual_terraform.run("init")).returncode == 0, done.stderr
    assert (done := actual_terraform.run("validate")).returncode == 0, done.stdout + done.stderr


def test_an_existing_subnetwork_is_used(tmp_path: Path) -> None:
    stack = synthesise(existing(tmp_path, "gke", SHARED_VPC))[f"{GKE}-cluster"]
    assert not types(stack) & {
        "google_compute_network",
        "google_compute_subnetwork",
        "google_compute_router",
    }
    cluster = stack["resource"]["google_container_cluster"]["main"]
    assert cluster["subnetwork"] == "${data.google_compute_subnetwork.nodes.id}"
    assert cluster["ip_allocation_policy"]["cluster_secondary_range_name"] == "pod-range"
    assert cluster["private_cluster_config"]["master_ipv4_cidr_block"] == "172.16.0.0/28"


@pytest.mark.parametrize(("cloud", "name"), [("eks", EKS), ("gke", GKE)])
def test_an_existing_cluster_gets_platform_and_serving(
    cloud: str, name: str, tmp_path: Path
) -> None:
    template = synthesise(existing(tmp_path, cloud, CLUSTER))
    for layer in ("platform", "serving"):
        stack = template[f"{name}-{layer}"]
        assert "terraform_remote_state" not in stack["data"]
        (source,) = [type_ for type_ in stack["data"] if type_.endswith("_cluster")]
        assert stack["data"][source]["existing"]["name"] == "ours"
        access = stack["provider"]["kubernetes"][0]
        assert f"data.{source}.existing" in access["host"] and access["exec"][0]["args"][
            1
        ].endswith("/ours")
    releases = resources(template, f"{name}-platform", "helm_release")
    assert "kserve_resources" in releases and "cluster_autoscaler" not in releases


def test_an_existing_cluster_has_no_cluster_layer(tmp_path: Path) -> None:
    from stacks.main import load_fleet, load_settings, plans
    from tests.stacks.conftest import ROOT, TODAY

    environ = existing(tmp_path, "eks", CLUSTER)
    (plan,) = plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)
    assert own_layers(plan, ("cluster", "platform", "serving")) == ["platform", "serving"]
    with pytest.raises(InputError, match="exists already"):
        own_layers(plan, ("cluster",))
    verdict = assess(plan, AccountFacts("me", taken=("EKS cluster ours",)))
    assert {one.outcome for one in verdict} == {Outcome.OK}
    assert Outcome.FAIL in {one.outcome for one in assess(plan, AccountFacts("me"))}


REFUSED = [
    ("eks", SHARED_VPC, "existing.eks-l4-single", "is on EKS"),
    ("gke", VPC, "existing.gke-l4-single", "is on GKE"),
    (
        "eks",
        "{cluster: ours, cidr: 10.0.0.0/16}",
        "existing.eks-l4-single.model_volume",
        "need a volume",
    ),
    ("eks", "{cidr: 10.0.0.0/16}", "existing.eks-l4-single.cluster", "exactly one of"),
    ("eks", "{cluster: ours, cidr: ten}", "existing.eks-l4-single.cidr", "not an address block"),
]


@pytest.mark.parametrize(
    ("cloud", "text", "field", "message"), REFUSED, ids=[row[3] for row in REFUSED]
)
def test_what_cannot_be_used_is_refused(
    cloud: str, text: str, field: str, message: str, tmp_path: Path
) -> None:
    try:
        error = refused(existing(tmp_path, cloud, text))
    except InputError as raised:
        error = raised
    assert error.field == field and message in error.message and error.line


def test_a_pool_without_a_subnet_of_its_zone_is_refused(tmp_path: Path) -> None:
    text = VPC.replace("us-west-2a", "us-west-2c")
    with pytest.raises(InputError, match="no subnet is named there"):
        synthesise(existing(tmp_path, "eks", text))
