"""What must hold in every stack of every environment, whatever a golden file says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml


@pytest.fixture(params=["synthesised", "rich"])
def stacks(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.getfixturevalue(request.param)
    return found


def resources(stacks: dict[str, Any], type_: str) -> dict[str, dict[str, Any]]:
    return {
        f"{s}.{n}": args
        for s, doc in stacks.items()
        for n, args in doc.get("resource", {}).get(type_, {}).items()
    }


def chart(stacks: dict[str, Any], stack: str, name: str) -> dict[str, Any]:
    release: dict[str, Any] = stacks[stack]["resource"]["helm_release"][name]
    return release


def values(release: dict[str, Any]) -> dict[str, Any]:
    return yaml.safe_load(release["values"][0]) if "values" in release else {}


def test_eks_gpu_pools_keep_a_node_and_leave_the_count_to_the_autoscaler(
    stacks: dict[str, Any],
) -> None:
    groups = resources(stacks, "aws_eks_node_group")
    gpu = {
        name: group for name, group in groups.items() if group["ami_type"] == "AL2023_x86_64_NVIDIA"
    }
    assert gpu
    for group in gpu.values():
        assert group["scaling_config"]["min_size"] >= 1
        assert group["labels"]["nvidia.com/gpu.present"] == "true"
        assert {"key": "nvidia.com/gpu", "value": "present", "effect": "NO_SCHEDULE"} in group[
            "taint"
        ]
    for group in groups.values():
        assert group["lifecycle"]["ignore_changes"] == ["scaling_config[0].desired_size"]


def test_gke_gpu_pools_have_the_three_labels_and_no_automatic_driver(
    stacks: dict[str, Any],
) -> None:
    pools = [
        pool["node_config"] for pool in resources(stacks, "google_container_node_pool").values()
    ]
    gpu = [config for config in pools if "guest_accelerator" in config]
    assert gpu
    for config in gpu:
        labels = config["labels"]
        assert labels["gke-no-default-nvidia-gpu-device-plugin"] == "true"
        assert labels["nvidia.com/gpu.present"] == "true"
        assert labels["cloud.google.com/gke-nvidia-gpu-dra-driver"] == "true"
        driver = config["guest_accelerator"][0]["gpu_driver_installation_config"][
            "gpu_driver_version"
        ]
        assert driver == "INSTALLATION_DISABLED"
    for config in pools:
        assert config["shielded_instance_config"] == {
            "enable_secure_boot": True,
            "enable_integrity_monitoring": True,
        }
        assert config["workload_metadata_config"] == {"mode": "GKE_METADATA"}


def test_no_device_plugin_anywhere(stacks: dict[str, Any]) -> None:
    for release in resources(stacks, "helm_release").values():
        assert release["chart"] not in ("nvidia-device-plugin", "gpu-operator")
    assert "nvidia-device-plugin" not in json.dumps(stacks)


def test_a_chart_that_brings_a_device_plugin_is_refused(stack: Any) -> None:
    from infra.charts import Release, install

    with pytest.raises(ValueError, match="device plugin"):
        install(stack, Release("gpu", "gpu", "oci://example.com", "gpu-operator", "1", {}))


def test_the_dra_driver_hands_out_gpus_from_the_right_root(stacks: dict[str, Any]) -> None:
    for cloud, root in (("eks", "/"), ("gke", "/home/kubernetes/bin/nvidia")):
        release = chart(stacks, f"{cloud}-l4-single-platform", "dra_driver_nvidia_gpu")
        actual_values = values(release)
        assert actual_values["gpuResourcesEnabledOverride"] is True
        assert actual_values["resources"]["computeDomains"]["enabled"] is False
        assert actual_values["nvidiaDriverRoot"] == root
        assert {
            "key": "nvidia.com/gpu",
            "operator": "Exists",
            "effect": "NoSchedule",
        } in actual_values["kubeletPlugin"]["tolerations"]


def test_gke_admits_critical_pods_of_the_driver(stacks: dict[str, Any]) -> None:
    quota = stacks["gke-l4-single-platform"]["resource"]["kubernetes_resource_quota_v1"][
        "dra_critical_pods"
    ]
    assert quota["metadata"]["namespace"] == "dra-driver-nvidia-gpu"
    release = chart(stacks, "gke-l4-single-platform", "dra_driver_nvidia_gpu")
    assert "kubernetes_resource_quota_v1.dra_critical_pods" in release["depends_on"]
    assert "kubernetes_manifest.driver_installer" in release["depends_on"]


def test_kserve_runs_standard_with_the_gateway_api(stacks: dict[str, Any]) -> None:
    for cloud in ("eks", "gke"):
        controller = values(chart(stacks, f"{cloud}-l4-single-platform", "kserve_resources"))[
            "kserve"
        ]["controller"]
        assert controller["deploymentMode"] == "Standard"
        assert controller["gateway"]["ingressGateway"]["enableGatewayApi"] is True


def test_kserves_downloads_fit_the_restricted_standard(stacks: dict[str, Any]) -> None:
    storage = values(chart(stacks, "eks-l4-single-platform", "kserve_resources"))["kserve"][
        "storage"
    ]
    added = storage["containerSecurityContext"]  # on top of the chart's own
    assert added == {"seccompProfile": {"type": "RuntimeDefault"}}
    assert storage["uidModelcar"] == 10001


def test_every_chart_is_pinned_waits_and_ends_clean(stacks: dict[str, Any]) -> None:
    for release in resources(stacks, "helm_release").values():
        assert (
            release["version"]
            and release["atomic"]
            and release["wait"]
            and release["timeout"] >= 300
        )


def test_charts_are_installed_in_the_order_they_need(stacks: dict[str, Any]) -> None:
    releases = stacks["eks-l4-single-platform"]["resource"]["helm_release"]

    def before(name: str) -> set[str]:
        direct = [
            d.split(".")[1]
            for d in releases[name].get("depends_on", [])
            if d.startswith("helm_release.")
        ]
        return set(direct).union(*(before(n) for n in direct)) if direct else set()

    assert {"cert_manager", "envoy_gateway", "kserve_crd", "kserve_resources"} <= before(
        "kserve_runtime_configs"
    )
    assert "kube_prometheus_stack" in before("prometheus_adapter")
    assert {"node_feature_discovery", "kube_prometheus_stack"} <= before("dra_driver_nvidia_gpu")


def test_definitions_and_their_objects_never_share_a_state(stacks: dict[str, Any]) -> None:
    for name, document in stacks.items():
        kinds = {
            m["manifest"]["apiVersion"]
            for m in document["resource"].get("kubernetes_manifest", {}).values()
        }
        if "helm_release" in document["resource"]:
            assert kinds <= {"apps/v1", "v1", "storage.k8s.io/v1", "networking.k8s.io/v1"}, (
                f"{name} installs definitions and also makes custom objects"
            )


def test_every_pod_that_claims_a_gpu_tolerates_the_taint() -> None:
    from stacks.main import load_fleet, load_settings, plans
    from stacks.serving import first_services
    from tests.stacks.conftest import DATA, ROOT, TODAY

    environ = {"MPCTL_ENV": str(DATA / "rich.yaml")}
    count = 0
    for plan in plans(environ, load_settings(environ, ROOT), load_fleet(environ, ROOT), TODAY):
        for service in first_services(plan):
            predictor = service["spec"]["predictor"]
            assert predictor["resourceClaims"] and predictor["model"]["resources"]["claims"]
            assert any(t["key"] == "nvidia.com/gpu" for t in predictor["tolerations"])
            count += 1
    assert count == 6


def test_everything_taggable_is_tagged(stacks: dict[str, Any]) -> None:
    for document in stacks.values():
        for provider in document["provider"].get("aws", []):
            assert {"cluster", "environment", "managed-by", "owner"} <= set(
                provider["default_tags"][0]["tags"]
            )
        for provider in document["provider"].get("google", []):
            assert {"cluster", "environment", "managed-by", "owner"} <= set(
                provider["default_labels"]
            )
    for pool in resources(stacks, "google_container_node_pool").values():
        assert pool["node_config"]["resource_labels"]["managed-by"] == "mpctl"


def test_the_control_plane_is_closed_unless_addresses_are_named(
    synthesised: dict[str, Any], rich: dict[str, Any]
) -> None:
    closed = rich["eks-l4-single-cluster"]["resource"]["aws_eks_cluster"]["main"]["vpc_config"]
    assert closed["endpoint_public_access"] is False and closed["endpoint_private_access"] is True
    named = synthesised["eks-l4-single-cluster"]["resource"]["aws_eks_cluster"]["main"][
        "vpc_config"
    ]
    assert named["public_access_cidrs"] == ["198.18.5.0/24"]
    gke = rich["gke-l4-single-cluster"]["resource"]["google_container_cluster"]["main"]
    assert gke["private_cluster_config"]["enable_private_endpoint"] is True


def test_a_private_api_lets_the_named_networks_in(
    rich: dict[str, Any], synthesised: dict[str, Any]
) -> None:
    rules = rich["eks-l4-single-cluster"]["resource"]["aws_vpc_security_group_ingress_rule"]
    rule = rules["api_0"]
    assert (rule["cidr_ipv4"], rule["from_port"], rule["to_port"]) == ("10.8.0.0/16", 443, 443)
    assert (
        rule["security_group_id"]
        == "${aws_eks_cluster.main.vpc_config[0].cluster_security_group_id}"
    )
    gke = rich["gke-l4-single-cluster"]["resource"]["google_container_cluster"]["main"]
    blocks = gke["master_authorized_networks_config"]["cidr_blocks"]
    assert [block["cidr_block"] for block in blocks] == ["10.8.0.0/16"]
    none = synthesised["eks-l4-single-cluster"]["resource"]["aws_vpc_security_group_ingress_rule"]
    assert "api_0" not in none


def test_nodes_wait_for_their_way_out(synthesised: dict[str, Any], rich: dict[str, Any]) -> None:
    for stacks, way in (
        (
            synthesised,
            {"aws_route.nat", "aws_route.internet", "aws_route_table_association.private_a"},
        ),
        (rich, {"aws_vpc_endpoint.ec2", "aws_vpc_endpoint.s3", "aws_vpc_endpoint.ecr_api"}),
    ):
        for group in stacks["eks-l4-single-cluster"]["resource"]["aws_eks_node_group"].values():
            assert way <= set(group["depends_on"])


def test_a_budget_on_google_cloud_tells_the_addresses_and_names_the_project_by_number(
    rich: dict[str, Any],
) -> None:
    resource = rich["gke-l4-single-cluster"]["resource"]
    budget = resource["google_billing_budget"]["monthly"]
    assert budget["budget_filter"]["projects"] == ["projects/${data.google_project.main.number}"]
    channels = budget["all_updates_rule"]["monitoring_notification_channels"]
    assert channels == ["${google_monitoring_notification_channel.budget_0.id}"]
    assert resource["google_monitoring_notification_channel"]["budget_0"]["labels"] == {
        "email_address": "team@inference.test"
    }


def test_the_control_plane_of_gke_reaches_webhooks(stacks: dict[str, Any]) -> None:
    resource = stacks["gke-l4-single-cluster"]["resource"]
    rule = resource["google_compute_firewall"]["webhooks"]
    assert rule["allow"] == [{"protocol": "tcp", "ports": ["6443", "8443", "9443"]}]
    cluster = resource["google_container_cluster"]["main"]
    assert rule["source_ranges"] == [cluster["private_cluster_config"]["master_ipv4_cidr_block"]]


def test_system_nodes_of_gke_are_in_the_region_and_not_where_the_gpus_are(
    stacks: dict[str, Any],
) -> None:
    resource = stacks["gke-l4-single-cluster"]["resource"]
    pool = resource["google_container_node_pool"]["system"]
    assert (
        "node_locations" not in resource["google_container_cluster"]["main"]
        and "node_locations" not in pool
    )
    assert pool["initial_node_count"] == 1, "one in each of three zones"


def test_the_key_serves_the_logs_of_this_cluster_only(stacks: dict[str, Any]) -> None:
    resource = stacks["eks-l4-single-cluster"]["resource"]
    logs = json.loads(resource["aws_kms_key"]["main"]["policy"])["Statement"][1]
    allowed = logs["Condition"]["ArnEquals"]["kms:EncryptionContext:aws:logs:arn"]
    names = {group["name"] for group in resource["aws_cloudwatch_log_group"].values()}
    assert {arn.split("log-group:")[1] for arn in allowed} >= names
    assert all("*" not in arn and "eks-l4-single" in arn for arn in allowed)


def test_feature_discovery_runs_on_gpu_nodes_and_writes_the_label_the_driver_asks_for(
    stacks: dict[str, Any],
) -> None:
    worker = values(chart(stacks, "eks-l4-single-platform", "node_feature_discovery"))["worker"]
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in worker[
        "tolerations"
    ]
    assert worker["config"]["sources"]["pci"]["deviceLabelFields"] == ["vendor"]


def test_runbooks_are_absolute(stacks: dict[str, Any]) -> None:
    for value in resources(stacks, "kubernetes_manifest").values():
        if value["manifest"]["kind"] == "PrometheusRule":
            rules = [
                rule for group in value["manifest"]["spec"]["groups"] for rule in group["rules"]
            ]
            urls = [rule["annotations"]["runbook_url"] for rule in rules if "alert" in rule]
            assert all(url.startswith("https://") and url.endswith(".md") for url in urls)


def test_without_nat_every_service_has_an_endpoint_and_nothing_is_public(
    rich: dict[str, Any],
) -> None:
    resource = rich["eks-l4-single-cluster"]["resource"]
    assert "aws_nat_gateway" not in resource and "aws_internet_gateway" not in resource
    assert {"s3", "ecr_api", "ecr_dkr", "eks_auth", "sts", "ec2"} <= set(
        resource["aws_vpc_endpoint"]
    )


def test_state_is_separate_locked_and_encrypted(rich: dict[str, Any]) -> None:
    backends = {name: doc["terraform"]["backend"]["s3"] for name, doc in rich.items()}
    assert len({backend["key"] for backend in backends.values()}) == len(backends) == 6
    for backend in backends.values():
        assert (
            backend["encrypt"] is True
            and backend["use_lockfile"] is True
            and backend["kms_key_id"] == "alias/state"
        )


def test_platform_and_serving_read_the_cluster_state_and_make_no_cluster(
    stacks: dict[str, Any],
) -> None:
    for name, document in stacks.items():
        if not name.endswith("-cluster"):
            assert "cluster" in document["data"]["terraform_remote_state"]
            assert not {"aws_eks_cluster", "google_container_cluster"} & set(document["resource"])


def test_serving_denies_by_default_and_enforces_pod_security(stacks: dict[str, Any]) -> None:
    for cloud in ("eks", "gke"):
        resource = stacks[f"{cloud}-l4-single-serving"]["resource"]
        deny = resource["kubernetes_manifest"]["networkpolicy_inference_default_deny"]["manifest"][
            "spec"
        ]
        assert deny == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
        labels = resource["kubernetes_namespace_v1"]["serving"]["metadata"][0]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value that holds no other, with the keys that lead to it."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    if not items:
        yield path, value
    for key, inner in items:
        yield from leaves(inner, (*path, str(key)))


def test_no_manifest_holds_an_empty_list(stacks: dict[str, Any]) -> None:
    """Terraform's provider gets them back as null (hashicorp/terraform-provider-kubernetes#2783)."""
    for name, made in resources(stacks, "kubernetes_manifest").items():
        assert not [path for path, value in leaves(made["manifest"]) if value == []], name


def canonical(quantity: str) -> bool:
    """As the API server writes it: no fraction, and the largest unit that divides."""
    match = re.fullmatch(r"(0|[1-9]\d*)([KMGTPE]i|[mkMGTPE]?)", quantity)
    if not match:
        return False
    number, unit = int(match[1]), match[2]
    return number % (1024 if unit.endswith("i") else 1000) != 0 or (not number and not unit)


def test_quantities_are_canonical(stacks: dict[str, Any]) -> None:
    """1000m comes back as 1, and the provider calls that inconsistent."""
    assert not any(map(canonical, ("1000m", "0.5", "1024Mi", "1000"))) and all(
        map(canonical, ("1050", "500m", "1Gi"))
    )
    count = 0
    for name, made in resources(stacks, "kubernetes_manifest").items():
        for path, value in leaves(made["manifest"]):
            if path[-1] in {"averageValue", "sizeLimit", "storage"} or {"requests", "limits"} & set(
                path[-2:-1]
            ):
                assert canonical(str(value)), f"{name}: {'.'.join(path)} is {value}"
                count += 1
    assert count


def test_an_account_has_one_identity_for_all_its_buckets(rich: dict[str, Any]) -> None:
    resource = rich["eks-l4-single-cluster"]["resource"]
    associations = list(resource["aws_eks_pod_identity_association"].values())
    pairs = [(made["namespace"], made["service_account"]) for made in associations]
    assert len(set(pairs)) == len(pairs) and ("inference", "qwen3-8b") in pairs
    policy = json.loads(resource["aws_iam_role_policy"]["models_qwen3_8b"]["policy"])
    assert policy["Statement"][1]["Resource"] == [
        "arn:aws:s3:::example-drafts/*",
        "arn:aws:s3:::example-models/*",
    ]


def test_role_names_fit(stacks: dict[str, Any]) -> None:
    from infra.aws.eks import role_name

    names = [made["name"] for made in resources(stacks, "aws_iam_role").values()]
    assert all(len(name) <= 64 for name in names)
    long = ["x" * 63 + tail for tail in ("ab", "cd")]
    assert len({role_name(name) for name in long}) == 2 and all(
        len(role_name(name)) == 64 for name in long
    )


def test_gke_lets_the_account_read_its_bucket_and_no_other(rich: dict[str, Any]) -> None:
    grants = rich["gke-l4-single-cluster"]["resource"]["google_storage_bucket_iam_member"]
    assert [(g["bucket"], g["role"]) for g in grants.values()] == [
        ("example-weights", "roles/storage.objectViewer")
    ]
    for grant in grants.values():
        assert grant["member"] == (
            "principal://iam.googleapis.com/projects/${data.google_project.main.number}/locations/global/"
            "workloadIdentityPools/example-project.svc.id.goog/subject/ns/inference/sa/qwen3-8b"
        )


def test_the_vpc_cni_enforces_network_policies(stacks: dict[str, Any]) -> None:
    addon = stacks["eks-l4-single-cluster"]["resource"]["aws_eks_addon"]["vpc_cni"]
    assert json.loads(addon["configuration_values"]) == {"enableNetworkPolicy": "true"}


def test_credentials_command_replaces_the_short_token(rich: dict[str, Any]) -> None:
    helm = rich["eks-l4-single-platform"]["provider"]["helm"][0]["kubernetes"]
    assert helm["exec"]["args"] == ["credential", "eks/us-west-2/eks-l4-single-rich"]
    assert "token" not in helm


def test_the_gateway_faces_the_network_only(stacks: dict[str, Any]) -> None:
    for cloud, annotation in (
        (
            "eks",
            {
                "service.beta.kubernetes.io/aws-load-balancer-internal": "true",
                "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout": "1800",
            },
        ),
        ("gke", {"networking.gke.io/load-balancer-type": "Internal"}),
    ):
        kubernetes_manifest = stacks[f"{cloud}-l4-single-serving"]["resource"][
            "kubernetes_manifest"
        ]
        spec = kubernetes_manifest["gateway_kserve_kserve_ingress_gateway"]["manifest"]["spec"]
        assert spec["infrastructure"]["annotations"] == annotation


def test_every_volume_asked_for_has_a_class_made_before(stacks: dict[str, Any]) -> None:
    for cloud in ("eks", "gke"):
        platform = stacks[f"{cloud}-l4-single-platform"]["resource"]
        classes = {
            m["manifest"]["metadata"]["name"]
            for m in platform["kubernetes_manifest"].values()
            if m["manifest"]["kind"] == "StorageClass"
        }
        metrics = platform["helm_release"]["kube_prometheus_stack"]
        template = values(metrics)["prometheus"]["prometheusSpec"]["storageSpec"][
            "volumeClaimTemplate"
        ]
        assert template["spec"]["storageClassName"] in classes
        assert "kubernetes_manifest.storageclass_mpctl_disk" in metrics["depends_on"]
        for claim in stacks[f"{cloud}-l4-single-serving"]["resource"][
            "kubernetes_manifest"
        ].values():
            if claim["manifest"]["kind"] == "PersistentVolumeClaim":
                assert claim["manifest"]["spec"]["storageClassName"] in classes


def test_machines_and_disks_carry_the_tags(stacks: dict[str, Any]) -> None:
    for template in resources(stacks, "aws_launch_template").values():
        for specification in template["tag_specifications"]:
            assert {"cluster", "environment", "managed-by", "owner", "Name"} <= set(
                specification["tags"]
            )
