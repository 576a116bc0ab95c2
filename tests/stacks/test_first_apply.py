"""What a first real apply, and the first upgrade, would have met: a test for each finding that a schema cannot hold."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mpctl.errors import InputError
from stacks.machines import machines
from stacks.main import load_fleet, load_settings, plans
from stacks.serving import first_services
from stacks.versions import table
from tests.stacks.conftest import DATA, ROOT, TODAY, synthesise

EKS = "eks-l4-single"
GKE = "gke-l4-single"


def golden(folder: Path, *changes: tuple[str, str]) -> dict[str, str]:
    """The environment of the golden files with some texts replaced."""
    text = (DATA / "golden.yaml").read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "environment.yaml"
    path.write_text(text, "utf-8")
    return {"MPCTL_ENV": str(path), "MPCTL_GCP_PROJECT": "a-project"}


def fleet(folder: Path, cloud: str, *changes: tuple[str, str]) -> dict[str, str]:
    """A shipped fleet manifest with some texts replaced."""
    text = (ROOT / "manifests" / "fleet" / f"{cloud}-l4.yaml").read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "fleet.yaml"
    path.write_text(text, "utf-8")
    return {"MPCTL_FLEET": str(path)}


def refused(environ: dict[str, str], day: dt.date = TODAY) -> InputError:
    """The error that planning ends with."""
    with pytest.raises(InputError) as caught:
        plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), day)
    assert caught.value.file and caught.value.line
    return caught.value


def resources(stacks: dict[str, Any], stack: str, type_: str) -> dict[str, Any]:
    found: dict[str, Any] = stacks[stack]["resource"][type_]
    return found


def chart_values(stacks: dict[str, Any], cluster: str, name: str) -> dict[str, Any]:
    release = stacks[f"{cluster}-platform"]["resource"]["helm_release"][name]
    document: dict[str, Any] = yaml.safe_load(release["values"][0])
    return document


@pytest.mark.parametrize("cluster", [EKS, GKE])
def test_the_downloader_has_memory_for_the_model_it_is_given(
    cluster: str, synthesised: dict[str, Any]
) -> None:
    storage = chart_values(synthesised, cluster, "kserve_resources")["kserve"]["storage"]
    assert storage["resources"]["limits"]["memory"] == "6Gi"


def test_the_downloaders_memory_is_a_setting(tmp_path: Path) -> None:
    environ = golden(tmp_path, ("serving:\n", "serving:\n  downloader_memory: 16Gi\n"))
    storage = chart_values(synthesise(environ), EKS, "kserve_resources")["kserve"]["storage"]
    assert storage["resources"]["limits"]["memory"] == "16Gi"


def installer(stacks: dict[str, Any]) -> dict[str, Any]:
    manifest = resources(stacks, f"{GKE}-platform", "kubernetes_manifest")["driver_installer"][
        "manifest"
    ]
    init_container: dict[str, Any] = manifest["spec"]["template"]["spec"]["initContainers"][0]
    return init_container


def test_the_gke_driver_is_the_pinned_one_and_not_the_images_default(
    synthesised: dict[str, Any],
) -> None:
    pin = table().image("gke-gpu-driver")
    assert pin != "default"
    assert installer(synthesised)["command"] == [
        "/cos-gpu-installer",
        "install",
        f"--version={pin}",
    ]


def test_the_gke_driver_is_a_setting(tmp_path: Path) -> None:
    environ = golden(tmp_path, ("serving:\n", "gpu: {gke_driver: 580.126.20}\nserving:\n"))
    assert installer(synthesise(environ))["command"][-1] == "--version=580.126.20"


def test_named_administrators_are_the_only_ones(tmp_path: Path) -> None:
    """EKS's own entry for the creator and one of ours for the same role would be one too many (409)."""
    role = "arn:aws:iam::210987654321:role/platform-admin"
    environ = golden(tmp_path, ("access:\n", f"access:\n  admins: ['{role}']\n"))
    template = synthesise(environ)
    config = resources(template, f"{EKS}-cluster", "aws_eks_cluster")["main"]["access_config"]
    assert config["bootstrap_cluster_creator_admin_permissions"] is False
    entries = resources(template, f"{EKS}-cluster", "aws_eks_access_entry")
    assert [entry["principal_arn"] for entry in entries.values()] == [role]


def test_viewers_read_and_do_no_more(tmp_path: Path) -> None:
    role = "arn:aws:iam::210987654321:role/auditor"
    template = synthesise(golden(tmp_path, ("access:\n", f"access:\n  viewers: ['{role}']\n")))
    (entry,) = resources(template, f"{EKS}-cluster", "aws_eks_access_policy_association").values()
    assert entry["principal_arn"] == role and entry["policy_arn"].endswith("/AmazonEKSViewPolicy")
    config = resources(template, f"{EKS}-cluster", "aws_eks_cluster")["main"]["access_config"]
    assert config["bootstrap_cluster_creator_admin_permissions"] is True
    with pytest.raises(InputError) as caught:
        synthesise(
            golden(
                tmp_path, ("access:\n", f"access:\n  viewers: ['{role}']\n  admins: ['{role}']\n")
            )
        )
    assert caught.value.field == "access.viewers"


def test_without_administrators_the_creator_is_one(synthesised: dict[str, Any]) -> None:
    config = resources(synthesised, f"{EKS}-cluster", "aws_eks_cluster")["main"]["access_config"]
    assert config["bootstrap_cluster_creator_admin_permissions"] is True


def test_node_groups_and_add_ons_follow_the_control_planes_minor(
    synthesised: dict[str, Any],
) -> None:
    stack = synthesised[f"{EKS}-cluster"]
    minor = "${aws_eks_cluster.main.version}"
    for group in stack["resource"]["aws_eks_node_group"].values():
        assert group["version"] == minor
        assert "data.aws_ssm_parameter." in group["release_version"]
    for parameter in stack["data"]["aws_ssm_parameter"].values():
        assert parameter["name"].startswith(
            f"/aws/service/eks/optimized-ami/{minor}/amazon-linux-2023/x86_64/"
        )
    addons = stack["resource"]["aws_eks_addon"]
    for address, addon in addons.items():
        asked = stack["data"]["aws_eks_addon_version"][address]
        assert asked["kubernetes_version"] == minor and asked["addon_name"] == addon["addon_name"]
        assert addon["addon_version"] == f"${{data.aws_eks_addon_version.{address}.version}}"


def test_a_changed_pool_is_made_before_the_old_one_goes(synthesised: dict[str, Any]) -> None:
    for group in resources(synthesised, f"{EKS}-cluster", "aws_eks_node_group").values():
        assert "node_group_name" not in group and group["node_group_name_prefix"].endswith("-")
        assert group["lifecycle"]["create_before_destroy"] is True


def test_gpu_disks_write_an_engines_image_in_reasonable_time(synthesised: dict[str, Any]) -> None:
    templates = resources(synthesised, f"{EKS}-cluster", "aws_launch_template")
    assert templates["gpu_l4"]["block_device_mappings"][0]["ebs"]["throughput"] >= 500


@pytest.mark.parametrize("region", ["ap-northeast-1", "us-west-1", "ca-central-1"])
def test_a_zone_is_not_guessed_where_accounts_differ(region: str, tmp_path: Path) -> None:
    environ = golden(tmp_path) | fleet(tmp_path, "eks", ("us-west-2", region))
    with pytest.raises(InputError) as caught:
        synthesise(environ)
    assert caught.value.field == "network.zones" and region in str(caught.value.message)


def test_named_zones_are_taken_as_they_are(tmp_path: Path) -> None:
    environ = golden(
        tmp_path, ("network:\n", "network:\n  zones: [ap-northeast-1a, ap-northeast-1c]\n")
    )
    template = synthesise(environ | fleet(tmp_path, "eks", ("us-west-2", "ap-northeast-1")))
    subnets = resources(template, f"{EKS}-cluster", "aws_subnet").values()
    assert {subnet["availability_zone"] for subnet in subnets} == {
        "ap-northeast-1a",
        "ap-northeast-1c",
    }


def test_a_google_budget_counts_on_the_project_and_in_its_accounts_currency(
    rich: dict[str, Any],
) -> None:
    stack = rich[f"{GKE}-cluster"]
    provider = stack["provider"]["google"][0]
    assert (
        provider["user_project_override"] is True
        and provider["billing_project"] == provider["project"]
    )
    amount = stack["resource"]["google_billing_budget"]["monthly"]["amount"]["specified_amount"]
    assert amount == {"units": "4000"}


def test_targets_that_gke_does_not_serve_are_off(synthesised: dict[str, Any]) -> None:
    assert chart_values(synthesised, GKE, "kube_prometheus_stack")["coreDns"] == {"enabled": False}
    assert chart_values(synthesised, EKS, "kube_prometheus_stack")["coreDns"] == {"enabled": True}


def test_layers_above_the_cluster_need_the_clouds_provider_for_its_token_alone(
    tmp_path: Path,
) -> None:
    for credentials, expected in (("mpctl", False), ("token", True)):
        environ = golden(
            tmp_path, ("serving:\n", f"kubernetes: {{credentials: {credentials}}}\nserving:\n")
        )
        template = synthesise(environ)
        for layer in ("platform", "serving"):
            assert ("aws" in template[f"{EKS}-{layer}"]["provider"]) is expected
            assert ("google" in template[f"{GKE}-{layer}"]["provider"]) is expected


def test_two_environments_share_no_name(synthesised: dict[str, Any], rich: dict[str, Any]) -> None:
    def names(stacks: dict[str, Any]) -> Iterator[str]:
        for type_ in (
            "aws_eks_cluster",
            "aws_iam_role",
            "aws_kms_alias",
            "aws_cloudwatch_log_group",
        ):
            yield from (one["name"] for one in resources(stacks, f"{EKS}-cluster", type_).values())
        for type_ in (
            "google_container_cluster",
            "google_service_account",
            "google_compute_network",
        ):
            values = resources(stacks, f"{GKE}-cluster", type_).values()
            yield from (one.get("name") or one["account_id"] for one in values)

    assert not set(names(synthesised)) & set(names(rich))


def test_services_that_act_for_aws_act_for_this_account_alone(rich: dict[str, Any]) -> None:
    for role in resources(rich, f"{EKS}-cluster", "aws_iam_role").values():
        (statement,) = json.loads(role["assume_role_policy"])["Statement"]
        if (
            statement["Principal"]["Service"] == "ec2.amazonaws.com"
        ):  # the instance profile, which has no source
            continue
        assert statement["Condition"]["StringEquals"]["aws:SourceAccount"].startswith(
            "${data.aws_caller_identity"
        )


MACHINES = [
    ("eks", "g6.2xlarge", "g6.2xlage", "instanceType", "not a known GPU machine"),
    ("eks", "type: nvidia-l4", "type: nvidia-h100", "accelerator.type", "g6.2xlarge has nvidia-l4"),
    ("eks", "g6.2xlarge", "g5g.2xlarge", "instanceType", "arm64"),
    ("eks", "g6.2xlarge", "p6e-gb200.36xlarge", "instanceType", "arm64"),
    ("eks", "g6.2xlarge", "g6.12xlarge", "accelerator.count", "has 4 GPUs, not 1"),
    ("gke", "g2-standard-8", "a3-highgpu-8g", "accelerator.type", "nvidia-h100-80gb"),
    ("eks", "diskSizeGb: 100", "diskSizeGb: 10", "diskSizeGb", "do not hold the system"),
]


@pytest.mark.parametrize(
    ("cloud", "old", "new", "field", "message"), MACHINES, ids=[row[2] for row in MACHINES]
)
def test_a_machine_that_cannot_be_is_refused_by_file_line_and_field(
    cloud: str, old: str, new: str, field: str, message: str, tmp_path: Path
) -> None:
    error = refused(golden(tmp_path) | fleet(tmp_path, cloud, (old, new)))
    assert error.field == field and message in error.message


SERVICES = [
    ("gpus: 1", "gpus: 8", "gpus", "at most 1"),
    ("size_gib: 17", "size_gib: 400", "size_gib", "downloads 400 GiB"),
    ('"].memory', '"].memroy', "selectors", "did you mean memory"),
    ("device.capacity", "device.attributes", "selectors", "publishes no attributes memory"),
    ('"20Gi"))', '"20Gi")', "selectors", "brackets do not match"),
]


@pytest.mark.parametrize(
    ("old", "new", "field", "message"), SERVICES, ids=[row[1] for row in SERVICES]
)
def test_a_service_that_no_node_can_run_is_refused(
    old: str, new: str, field: str, message: str, tmp_path: Path
) -> None:
    text = (ROOT / "environments" / "dev.yaml").read_text("utf-8")
    assert old in text
    path = tmp_path / "dev.yaml"
    path.write_text(text.replace(old, new), "utf-8")
    environ = {
        "MPCTL_ENV": str(path),
        "MPCTL_PUBLIC_CIDRS": "8.8.8.8/32",
        "MPCTL_GCP_PROJECT": "a-project",
    }
    error = refused(environ)
    assert error.field == field and message in error.message


def test_a_name_that_the_cloud_would_cut_is_refused(tmp_path: Path) -> None:
    error = refused(golden(tmp_path) | fleet(tmp_path, "gke", (GKE, "g" * 38)))
    assert error.field == "metadata.name"


def test_every_machine_of_the_table_is_whole() -> None:
    for value in machines().values():
        for machine in value.values():
            assert (
                machine.vcpus > 0 and 1 <= machine.gpus <= 16 and machine.arch in ("amd64", "arm64")
            )


def test_pins_hold_the_fixes_that_a_first_apply_needs() -> None:
    floors = {
        ("charts", "cert-manager"): (1, 19),
        ("images", "cluster-autoscaler-1.35"): (1, 35, 2),
    }
    for (section, name), floor in floors.items():
        version = tuple(
            int(part) for part in table().pins[section][name].version.lstrip("v").split(".")
        )
        assert version >= floor, f"{name} {version}"


def test_the_order_of_removal_names_what_terraform_does_not_delete(
    synthesised: dict[str, Any],
) -> None:
    page = (ROOT / "docs" / "how-to" / "operate-clusters.md").read_text("utf-8")
    order = page.partition("## Remove a cluster")[2].partition("## ")[0]
    steps = (
        "delete inferenceservices",
        "MPCTL_LAYERS=serving cdktf destroy",
        "delete pvc",
        "platform cdktf destroy",
    )
    assert sorted(steps, key=order.index) == list(steps)
    assert '"reclaimPolicy": "Retain"' in json.dumps(synthesised) and "kubectl get pv" in order
    rings = [
        name
        for name, document in synthesised.items()
        if "google_kms_key_ring" in document["resource"]
    ]
    assert rings and "key ring is never deleted" in order


def test_an_image_release_can_be_pinned_and_belongs_to_the_clusters_minor(tmp_path: Path) -> None:
    template = synthesise(
        golden(tmp_path, ("serving:\n", "gpu: {eks_image: 1.36.2-20261023}\nserving:\n"))
    )
    groups = resources(template, f"{EKS}-cluster", "aws_eks_node_group")
    # The gateway's proxies live on the system group: a deploy must not move it either.
    assert {group["release_version"] for group in groups.values()} == {"1.36.2-20261023"}
    wrong = golden(tmp_path, ("serving:\n", "gpu: {eks_image: 1.35.2-20261023}\nserving:\n"))
    assert "runs Kubernetes 1.36" in refused(wrong).message


def test_a_short_outage_of_dcgm_replaces_no_gpu_node(synthesised: dict[str, Any]) -> None:
    groups = resources(synthesised, f"{EKS}-cluster", "aws_eks_node_group")
    (override,) = groups["gpu_l4"]["node_repair_config"]["node_repair_config_overrides"]
    assert (override["node_unhealthy_reason"], override["repair_action"]) == (
        "DCGMError",
        "NoAction",
    )
    assert groups["system"]["node_repair_config"] == {"enabled": True}


def test_a_long_pool_name_fits_the_prefix_of_a_node_group(tmp_path: Path) -> None:
    template = synthesise(
        golden(tmp_path) | fleet(tmp_path, "eks", ("name: gpu-l4", f"name: {'g' * 40}"))
    )
    prefixes = {
        g["node_group_name_prefix"]
        for g in resources(template, f"{EKS}-cluster", "aws_eks_node_group").values()
    }
    assert max(map(len, prefixes)) == 37


@pytest.mark.parametrize(
    ("machine", "disk"),
    [("a3-ultragpu-8g", "hyperdisk-balanced"), ("g2-standard-8", "pd-balanced")],
)
def test_a_machine_gets_a_boot_disk_that_it_takes(machine: str, disk: str, tmp_path: Path) -> None:
    changes = [("g2-standard-8", machine)]
    if machine != "g2-standard-8":
        changes += [("type: nvidia-l4", "type: nvidia-h200-141gb"), ("count: 1", "count: 8")]
    template = synthesise(golden(tmp_path) | fleet(tmp_path, "gke", *changes))
    config = resources(template, f"{GKE}-cluster", "google_container_node_pool")["gpu_l4"][
        "node_config"
    ]
    assert config["disk_type"] == disk


@pytest.mark.parametrize("region", ["us-gov-west-1", "cn-north-1"])
def test_another_partition_is_refused(region: str, tmp_path: Path) -> None:
    assert (
        "another AWS partition"
        in refused(golden(tmp_path) | fleet(tmp_path, "eks", ("us-west-2", region))).message
    )


def test_keys_of_model_buckets_may_be_used_by_who_reads_them(tmp_path: Path) -> None:
    key = "arn:aws:kms:us-west-2:210987654321:key/0a1b"
    changes = [
        ("serving:\n", f"encryption: {{eks_model_keys: ['{key}']}}\nserving:\n"),
        ("hf://Qwen", "s3://models/Qwen"),
    ]
    template = synthesise(golden(tmp_path, *changes) | fleet(tmp_path, "eks"))
    policy = json.loads(
        resources(template, f"{EKS}-cluster", "aws_iam_role_policy")["models_qwen3_8b"]["policy"]
    )
    assert {"Effect": "Allow", "Action": ["kms:Decrypt"], "Resource": [key]} in policy["Statement"]


@pytest.mark.parametrize(
    ("machine", "limits"),
    [("g6.xlarge", ("3", "12Gi")), ("g6.2xlarge", ("6", "24Gi")), ("g6.8xlarge", ("24", "96Gi"))],
)
def test_an_engine_gets_its_share_of_the_node(
    machine: str, limits: tuple[str, str], tmp_path: Path
) -> None:
    environ = golden(tmp_path) | fleet(tmp_path, "eks", ("g6.2xlarge", machine))
    (plan,) = plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY)
    (service,) = first_services(plan)
    resources_ = service["spec"]["predictor"]["model"]["resources"]
    assert tuple(resources_["limits"].values()) == limits
    assert int(resources_["requests"]["cpu"]) < int(limits[0])


def test_names_are_resolved_by_resolvers_that_are_no_pods(synthesised: dict[str, Any]) -> None:
    policy = resources(synthesised, f"{GKE}-serving", "kubernetes_manifest")[
        "networkpolicy_inference_allow_dns"
    ]
    (rule,) = policy["manifest"]["spec"]["egress"]
    assert {one["ipBlock"]["cidr"] for one in rule["to"] if "ipBlock" in one} == {
        "169.254.169.254/32",
        "169.254.20.10/32",
    }


def test_alerts_and_samples_go_where_the_settings_say(
    synthesised: dict[str, Any], tmp_path: Path
) -> None:
    before = chart_values(synthesised, EKS, "kube_prometheus_stack")
    assert "alertmanager" not in before and not before["prometheus"]["prometheusSpec"].get(
        "remoteWrite"
    )
    store = "{url: https://metrics.mycompany.com/api/v1/write, token_secret: store}"
    chosen = f"monitoring: {{alertmanager_secret: routes, storage_gb: 200, remote_write: [{store}]}}\nserving:\n"
    values = chart_values(
        synthesise(golden(tmp_path, ("serving:\n", chosen))), GKE, "kube_prometheus_stack"
    )
    assert values["alertmanager"]["alertmanagerSpec"]["configSecret"] == "routes"
    spec = values["prometheus"]["prometheusSpec"]
    assert spec["retentionSize"] == "180GiB"
    (written,) = spec["remoteWrite"]
    assert written["authorization"]["credentials"] == {"name": "store", "key": "token"}


def test_spare_nodes_are_held_by_pods_that_every_engine_outranks(tmp_path: Path) -> None:
    template = synthesise(
        golden(tmp_path, ("serving:\n", "gpu: {spare_nodes: 2, image_streaming: true}\nserving:\n"))
    )
    actual_resources = resources(template, f"{EKS}-serving", "kubernetes_manifest")
    assert actual_resources["priorityclass_spare_gpu_node"]["manifest"]["value"] < 0
    spec = actual_resources["deployment_inference_spare_gpu_node"]["manifest"]["spec"]
    assert spec["replicas"] == 2 and "resourceClaims" not in spec["template"]["spec"]
    config = resources(template, f"{GKE}-cluster", "google_container_node_pool")["gpu_l4"][
        "node_config"
    ]
    assert config["gcfs_config"] == {"enabled": True}
