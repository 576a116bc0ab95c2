"""Fleets of other GPUs, reserved ones, and those that the cloud may take back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stacks.preflight.checks import Outcome, assess
from tests.stacks.conftest import synthesise
from tests.stacks.test_first_apply import EKS, GKE, fleet, golden, refused, resources
from tests.stacks.test_preflight import WELL, plan_of

FLEETS = [
    ("eks", "g6e.2xlarge", "nvidia-l40s", 1),
    ("eks", "g6e.12xlarge", "nvidia-l40s", 4),
    ("eks", "g5.2xlarge", "nvidia-a10g", 1),
    ("eks", "p4d.24xlarge", "nvidia-a100", 8),
    ("eks", "p5.4xlarge", "nvidia-h100", 1),
    ("eks", "p5.48xlarge", "nvidia-h100", 8),
    ("gke", "a2-highgpu-1g", "nvidia-tesla-a100", 1),
    ("gke", "a3-highgpu-1g", "nvidia-h100-80gb", 1),
    ("gke", "a3-highgpu-8g", "nvidia-h100-80gb", 8),
]


@pytest.mark.parametrize(
    ("cloud", "machine", "gpu", "count"), FLEETS, ids=[f"{c}-{m}" for c, m, _, _ in FLEETS]
)
def test_a_fleet_of_another_gpu_is_whole(
    cloud: str, machine: str, gpu: str, count: int, tmp_path: Path
) -> None:
    standard = "g6.2xlarge" if cloud == "eks" else "g2-standard-8"
    wanted = fleet(
        tmp_path,
        cloud,
        (standard, machine),
        ("nvidia-l4", gpu),
        ("count: 1\n  devices", f"count: {count}\n  devices"),
    )
    template = synthesise(golden(tmp_path) | wanted)
    assert len(template) == 3
    if cloud == "eks":
        group = resources(template, f"{EKS}-cluster", "aws_eks_node_group")["gpu_l4"]
        assert group["instance_types"] == [machine] and group["ami_type"] == "AL2023_x86_64_NVIDIA"
        return
    config = resources(template, f"{GKE}-cluster", "google_container_node_pool")["gpu_l4"][
        "node_config"
    ]
    (accelerator,) = config["guest_accelerator"]
    assert (config["machine_type"], accelerator["type"], accelerator["count"]) == (
        machine,
        gpu,
        count,
    )


def pool(folder: Path, cloud: str, gpu: str, *changes: tuple[str, str]) -> dict[str, Any]:
    actual_template = synthesise(
        golden(folder, ("serving:\n", f"gpu: {gpu}\nserving:\n")) | fleet(folder, cloud, *changes)
    )
    cluster, type_ = (
        (EKS, "aws_eks_node_group") if cloud == "eks" else (GKE, "google_container_node_pool")
    )
    gpu_l4: dict[str, Any] = resources(actual_template, f"{cluster}-cluster", type_)["gpu_l4"]
    template = (
        actual_template[f"{cluster}-cluster"]["resource"]
        .get("aws_launch_template", {})
        .get("gpu_l4", {})
    )
    return {**gpu_l4, "template": template}


def test_a_reservation_on_eks_is_what_the_template_takes(tmp_path: Path) -> None:
    actual_pool = pool(tmp_path, "eks", "{reservations: {gpu-l4: cr-0a1b2c3d4e5f}}")
    target = actual_pool["template"]["capacity_reservation_specification"][
        "capacity_reservation_target"
    ]
    assert target == {"capacity_reservation_id": "cr-0a1b2c3d4e5f"}
    assert actual_pool["capacity_type"] == "ON_DEMAND" and actual_pool["instance_types"] == [
        "g6.2xlarge"
    ]
    assert actual_pool["update_config"]["update_strategy"] == "MINIMAL", (
        "a spare node would be outside of the reservation"
    )


def test_a_reservation_on_gke_is_the_pools_own(tmp_path: Path) -> None:
    actual_pool = pool(tmp_path, "gke", "{reservations: {gpu-l4: inference}}")
    affinity = actual_pool["node_config"]["reservation_affinity"]
    assert (affinity["consume_reservation_type"], affinity["values"]) == (
        "SPECIFIC_RESERVATION",
        ["inference"],
    )
    assert actual_pool["upgrade_settings"] == {"max_surge": 0, "max_unavailable": 1}


def test_flex_start_begins_at_zero_and_is_not_repaired(tmp_path: Path) -> None:
    actual_pool = pool(
        tmp_path, "gke", "{flex_start: [gpu-l4]}", ("minNodeCount: 1", "minNodeCount: 0")
    )
    assert (
        actual_pool["node_config"]["flex_start"] is True and actual_pool["initial_node_count"] == 0
    )
    assert (
        actual_pool["autoscaling"]["total_min_node_count"] == 0
        and actual_pool["autoscaling"]["location_policy"] == "ANY"
    )
    assert actual_pool["management"]["auto_repair"] is False


REFUSED = [
    ("eks", "{flex_start: [gpu-l4]}", "gpu.flex_start", "exists on GKE"),
    ("gke", "{flex_start: [gpu-l4]}", "minNodeCount", "seven days"),
    ("gke", "{flex_start: [gpu-l4], capacity_type: SPOT}", "gpu.flex_start", "neither spot"),
    ("eks", "{reservations: {gpu-l4: inference}}", "gpu.reservations", "no capacity reservation"),
    (
        "eks",
        "{reservations: {gpu-l4: cr-0a1b2c3d}, capacity_type: SPOT}",
        "gpu.reservations",
        "is spot",
    ),
]


@pytest.mark.parametrize(
    ("cloud", "gpu", "field", "message"), REFUSED, ids=[f"{r[0]}-{r[1]}" for r in REFUSED]
)
def test_capacity_that_the_cloud_would_refuse_is_refused(
    cloud: str, gpu: str, field: str, message: str, tmp_path: Path
) -> None:
    error = refused(
        golden(tmp_path, ("serving:\n", f"gpu: {gpu}\nserving:\n")) | fleet(tmp_path, cloud)
    )
    assert error.field == field and message in error.message


@pytest.mark.parametrize(("cloud", "notice"), [("eks", "two minutes"), ("gke", "30 seconds")])
def test_spot_is_told_with_what_it_means_to_a_rollout(cloud: str, notice: str) -> None:
    plan = plan_of(cloud)
    spot = replace(plan, settings=replace(plan.settings, capacity_type="SPOT"))
    (finding,) = (one for one in assess(spot, WELL) if one.check == "capacity")
    assert (
        finding.outcome is Outcome.WARN
        and notice in finding.message
        and "rollout" in finding.message
    )
    assert not [one for one in assess(plan, WELL) if one.check == "capacity"]
