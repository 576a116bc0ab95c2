"""What a bank asks of production: certificates, authentication, routes of named namespaces, own keys, isolation."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mpctl.errors import InputError
from tests.stacks.conftest import synthesise
from tests.stacks.test_first_apply import EKS, GKE, chart_values, golden, resources

DOMAIN = "domain: models.bank.test"
JWT = (
    "jwt: {issuer: 'https://id.bank.test', jwks: 'https://id.bank.test/keys', audiences: [models]}"
)


def made(folder: Path, serving: str = "", root: str = "") -> dict[str, Any]:
    return synthesise(golden(folder, ("serving:\n", f"{root}\nserving:\n{serving}\n")))


def objects(stacks: dict[str, Any], layer: str, kind: str) -> list[dict[str, Any]]:
    every = resources(stacks, f"{EKS}-{layer}", "kubernetes_manifest").values()
    return [one["manifest"] for one in every if one["manifest"]["kind"] == kind]


def listener(stacks: dict[str, Any]) -> dict[str, Any]:
    (gateway,) = objects(stacks, "serving", "Gateway")
    (actual_listener,) = gateway["spec"]["listeners"]
    assert isinstance(actual_listener, dict)
    return actual_listener


def test_routes_come_from_named_namespaces_only(
    synthesised: dict[str, Any], tmp_path: Path
) -> None:
    def names(stacks: dict[str, Any]) -> list[str]:
        allowed = listener(stacks)["allowedRoutes"]["namespaces"]
        assert allowed["from"] == "Selector"
        (chosen,) = allowed["selector"]["matchExpressions"]
        assert (chosen["key"], chosen["operator"]) == ("kubernetes.io/metadata.name", "In")
        values: list[str] = chosen["values"]
        return values

    assert names(synthesised) == ["inference"]
    assert names(made(tmp_path, "  gateway: {namespaces: [chat]}")) == ["chat", "inference"]


def test_a_certificate_leaves_no_listener_for_plain_http(tmp_path: Path) -> None:
    stacks = made(tmp_path, f"  gateway: {{{DOMAIN}, tls: {{secret: bank-tls}}}}")
    actual_listener = listener(stacks)
    assert (actual_listener["protocol"], actual_listener["port"], actual_listener["hostname"]) == (
        "HTTPS",
        443,
        "*.models.bank.test",
    )
    assert actual_listener["tls"] == {
        "mode": "Terminate",
        "certificateRefs": [{"kind": "Secret", "name": "bank-tls"}],
    }
    assert not objects(stacks, "serving", "Certificate")
    kserve = chart_values(stacks, EKS, "kserve_resources")["kserve"]["controller"]["gateway"]
    assert (kserve["domain"], kserve["urlScheme"]) == ("models.bank.test", "https")


def test_an_issuer_makes_the_certificate_that_the_listener_shows(tmp_path: Path) -> None:
    stacks = made(tmp_path, f"  gateway: {{{DOMAIN}, tls: {{issuer: bank-ca}}}}")
    (certificate,) = objects(stacks, "serving", "Certificate")
    assert certificate["metadata"]["namespace"] == "kserve" and certificate["spec"]["dnsNames"] == [
        "*.models.bank.test"
    ]
    assert certificate["spec"]["issuerRef"]["name"] == "bank-ca"
    assert (
        certificate["spec"]["secretName"] == listener(stacks)["tls"]["certificateRefs"][0]["name"]
    )


@pytest.mark.parametrize(("auth", "key"), [("api_keys: callers", "apiKeyAuth"), (JWT, "jwt")])
def test_callers_without_credentials_are_refused_on_the_whole_gateway(
    auth: str, key: str, tmp_path: Path
) -> None:
    stacks = made(tmp_path, f"  gateway: {{auth: {{{auth}}}}}")
    (policy,) = objects(stacks, "serving", "SecurityPolicy")
    (gateway,) = objects(stacks, "serving", "Gateway")
    (target,) = policy["spec"]["targetRefs"]
    assert target == {
        "group": "gateway.networking.k8s.io",
        "kind": "Gateway",
        "name": gateway["metadata"]["name"],
    }
    assert policy["metadata"]["namespace"] == gateway["metadata"]["namespace"]
    assert set(policy["spec"]) == {"targetRefs", key}


REFUSED = [
    ("public_gateway: true", "tls", "faces the internet"),
    (
        f"public_gateway: true\n  gateway: {{{DOMAIN}, tls: {{secret: a}}}}",
        "auth",
        "faces the internet",
    ),
    ("gateway: {tls: {secret: a}}", "domain", "needs a domain"),
    (f"gateway: {{{DOMAIN}, tls: {{secret: a, issuer: b}}}}", "secret", "exactly one"),
    (f"gateway: {{auth: {{api_keys: a, {JWT}}}}}", "jwt", "one kind"),
    (
        "gateway: {auth: {jwt: {issuer: 'https://a', jwks: 'https://a'}}}",
        "audiences",
        "every token",
    ),
    (
        "gateway: {auth: {jwt: {issuer: 'http://a', jwks: 'https://a', audiences: [a]}}}",
        "issuer",
        "https",
    ),
]


@pytest.mark.parametrize(
    ("text", "field", "message"), REFUSED, ids=[row[0][:40] for row in REFUSED]
)
def test_half_of_a_protection_is_refused(
    text: str, field: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        made(tmp_path, f"  {text}")
    assert (
        caught.value.line
        and str(caught.value.field).endswith(field)
        and message in caught.value.message
    )


def test_a_public_gateway_with_certificate_and_keys_is_made(tmp_path: Path) -> None:
    text = f"  public_gateway: true\n  gateway: {{{DOMAIN}, tls: {{secret: a}}, auth: {{api_keys: callers}}}}"
    (gateway,) = objects(made(tmp_path, text), "serving", "Gateway")
    assert list(gateway["spec"]["infrastructure"]["annotations"]) == [IDLE]


IDLE = "service.beta.kubernetes.io/aws-load-balancer-connection-idle-timeout"


def test_the_proxies_outlive_a_drain_of_one_node(tmp_path: Path) -> None:
    stacks = made(tmp_path, "  gateway: {replicas: 3}")
    (proxies,) = objects(stacks, "serving", "EnvoyProxy")
    (kind,) = objects(stacks, "serving", "GatewayClass")
    assert kind["spec"]["parametersRef"]["name"] == proxies["metadata"]["name"]
    assert kind["spec"]["parametersRef"]["namespace"] == proxies["metadata"]["namespace"]
    kubernetes = proxies["spec"]["provider"]["kubernetes"]
    assert kubernetes["envoyPDB"] == {"maxUnavailable": 1}
    deployment = kubernetes["envoyDeployment"]
    assert deployment["replicas"] == 3
    assert set(deployment["container"]["resources"]["requests"]) == {"cpu", "memory"}
    assert {
        (each["topologyKey"], each["whenUnsatisfiable"])
        for each in deployment["pod"]["topologySpreadConstraints"]
    } == {
        ("topology.kubernetes.io/zone", "ScheduleAnyway"),
        ("kubernetes.io/hostname", "DoNotSchedule"),
    }
    shutdown = proxies["spec"]["shutdown"]
    # The probe's period of 5 s is the controller's own.
    containers = deployment["patch"]["value"]["spec"]["template"]["spec"]["containers"]
    assert 5 * containers[0]["readinessProbe"]["failureThreshold"] <= int(
        shutdown["minDrainDuration"].rstrip("s")
    )


def test_gateway_and_load_balancer_let_the_longest_answer_of_a_service_pass(tmp_path: Path) -> None:
    stacks = synthesise(golden(tmp_path, ("    gpus: 1\n", "    gpus: 1\n    timeout_s: 5400\n")))
    (policy,) = objects(stacks, "serving", "ClientTrafficPolicy")
    (gateway,) = objects(stacks, "serving", "Gateway")
    assert policy["spec"]["targetRefs"][0]["name"] == gateway["metadata"]["name"]
    assert policy["metadata"]["namespace"] == gateway["metadata"]["namespace"]
    assert policy["spec"]["timeout"]["http"]["streamIdleTimeout"] == "5400s"
    assert policy["spec"]["tcpKeepalive"]["idleTime"] == "60s"
    (proxies,) = objects(stacks, "serving", "EnvoyProxy")
    assert proxies["spec"]["shutdown"]["drainTimeout"] == "5400s"
    assert gateway["spec"]["infrastructure"]["annotations"][IDLE] == "4000", (
        "the most that a Classic LB takes"
    )
    (budget,) = objects(stacks, "serving", "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"] == {
        "matchLabels": {"serving.kserve.io/inferenceservice": "qwen3-8b"}
    }


ARN = "arn:aws:kms:us-west-2:210987654321:key/1234abcd-12ab-34cd-56ef-1234567890ab"
CRYPTO_KEY = "projects/bank/locations/us-central1/keyRings/disks/cryptoKeys/disks"


def test_disks_take_the_customers_key_on_eks(tmp_path: Path) -> None:
    stacks = made(tmp_path, root=f"encryption: {{eks_disk_key: {ARN}}}")
    for template in resources(stacks, f"{EKS}-cluster", "aws_launch_template").values():
        assert template["block_device_mappings"][0]["ebs"]["kms_key_id"] == ARN
    disk = next(
        one
        for one in objects(stacks, "platform", "StorageClass")
        if one["metadata"]["name"] == "mpctl-disk"
    )
    assert disk["parameters"]["kmsKeyId"] == ARN
    policies = resources(stacks, f"{EKS}-cluster", "aws_iam_role_policy")
    assert (
        ARN in policies["ebs_csi"]["policy"] and "kms:CreateGrant" in policies["ebs_csi"]["policy"]
    )


def test_disks_take_the_customers_key_on_gke(tmp_path: Path) -> None:
    stacks = made(tmp_path, root=f"encryption: {{gke_disk_key: {CRYPTO_KEY}}}")
    for pool in resources(stacks, f"{GKE}-cluster", "google_container_node_pool").values():
        assert pool["node_config"]["boot_disk_kms_key"] == CRYPTO_KEY
    classes = resources(stacks, f"{GKE}-platform", "kubernetes_manifest")
    (disk,) = (
        one["manifest"]
        for one in classes.values()
        if one["manifest"]["metadata"]["name"] == "mpctl-disk"
    )
    assert disk["parameters"]["disk-encryption-kms-key"] == CRYPTO_KEY
    (models,) = (
        one["manifest"]
        for one in classes.values()
        if one["manifest"]["metadata"]["name"] == "mpctl-shared"
    )
    assert models["parameters"]["instance-encryption-kms-key"] == CRYPTO_KEY
    grants = resources(stacks, f"{GKE}-cluster", "google_kms_crypto_key_iam_member")
    for name, agent in (("disks", "compute-system"), ("models", "cloud-filer")):
        assert grants[name]["crypto_key_id"] == CRYPTO_KEY
        assert f"@{agent}.iam.gserviceaccount.com" in grants[name]["member"]


def test_a_key_of_the_other_cloud_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        made(tmp_path, root="encryption: {eks_disk_key: alias/mine}")
    assert caught.value.field == "encryption.eks_disk_key"


def test_every_namespace_of_a_chart_admits_its_callers_only(
    synthesised: dict[str, Any], rich: dict[str, Any]
) -> None:
    for stacks in (synthesised, rich):
        for cluster in (EKS, GKE):
            platform = stacks[f"{cluster}-platform"]["resource"]
            charts = {one["namespace"] for one in platform["helm_release"].values()} - {
                "kube-system"
            }
            policies = {
                one["manifest"]["metadata"]["namespace"]: one["manifest"]["spec"]
                for one in platform["kubernetes_manifest"].values()
                if one["manifest"]["kind"] == "NetworkPolicy"
            }
            assert charts == set(policies)
            for namespace, spec in policies.items():
                assert spec["podSelector"] == {} and spec["policyTypes"] == ["Ingress"]
                open_to_all = [rule["ports"] for rule in spec["ingress"] if "from" not in rule]
                assert bool(open_to_all) == (namespace == "envoy-gateway-system")


def test_logs_are_kept_as_long_as_the_settings_say_on_both_clouds(tmp_path: Path) -> None:
    stacks = synthesise(golden(tmp_path, ("log_days: 365", "log_days: 400")))
    groups = resources(stacks, f"{EKS}-cluster", "aws_cloudwatch_log_group").values()
    assert {group["retention_in_days"] for group in groups} == {400}
    bucket = resources(stacks, f"{GKE}-cluster", "google_logging_project_bucket_config")["main"]
    assert bucket["retention_days"] == 400
    sink = resources(stacks, f"{GKE}-cluster", "google_logging_project_sink")["main"]
    assert sink["destination"].endswith(f"/buckets/{bucket['bucket_id']}")
    assert f'cluster_name="{GKE}-golden"' in sink["filter"]


def test_gpus_are_watched_on_every_node(synthesised: dict[str, Any]) -> None:
    """By the exporter on both clouds, and on EKS by the agent that node repair acts on."""
    for cluster in (EKS, GKE):
        values = chart_values(synthesised, cluster, "dcgm_exporter")
        assert values["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in values[
            "tolerations"
        ]
        assert values["kubernetesDRA"]["enabled"] and values["serviceMonitor"]["honorLabels"]
    context = chart_values(synthesised, EKS, "dcgm_exporter")["securityContext"]
    assert context["capabilities"] == {"add": ["SYS_ADMIN"]} and "privileged" not in context
    assert "eks_node_monitoring_agent" in resources(synthesised, f"{EKS}-cluster", "aws_eks_addon")
    assert any(
        one["metadata"]["name"] == "gpu"
        for one in objects(synthesised, "serving", "PrometheusRule")
    )


def test_the_network_addon_has_an_identity_and_nodes_have_no_right_on_interfaces(
    synthesised: dict[str, Any],
) -> None:
    cluster = f"{EKS}-cluster"
    attached = resources(synthesised, cluster, "aws_iam_role_policy_attachment")
    (address,) = (
        name
        for name, one in attached.items()
        if one["policy_arn"].endswith("/AmazonEKS_CNI_Policy")
    )
    assert attached[address]["role"] == "${aws_iam_role.vpc_cni.name}"
    addon = resources(synthesised, cluster, "aws_eks_addon")["vpc_cni"]
    assert addon["pod_identity_association"] == [
        {"service_account": "aws-node", "role_arn": "${aws_iam_role.vpc_cni.arn}"}
    ]
    assert addon["depends_on"] == [f"aws_iam_role_policy_attachment.{address}"], "before nodes"
    # A policy that moved to another address would be detached after it was attached.
    pull = attached["node_2"]["policy_arn"]
    assert pull.endswith("/AmazonEC2ContainerRegistryPullOnly") and "node_1" not in attached


def test_the_logs_of_engines_on_eks_go_to_cloudwatch(
    synthesised: dict[str, Any], rich: dict[str, Any]
) -> None:
    cluster = f"{EKS}-cluster"
    assert "engines" not in resources(synthesised, cluster, "aws_cloudwatch_log_group")
    group = resources(rich, cluster, "aws_cloudwatch_log_group")["engines"]
    control_plane = resources(rich, cluster, "aws_cloudwatch_log_group")["control_plane"]
    assert group == {**control_plane, "name": group["name"]}, "the same key and retention"
    key = json.loads(resources(rich, cluster, "aws_kms_key")["main"]["policy"])
    (condition,) = (one["Condition"] for one in key["Statement"] if "Condition" in one)
    assert f"log-group:{group['name']}" in json.dumps(condition), "CloudWatch may use the key"

    account, collector = (
        resources(rich, f"{EKS}-platform", "kubernetes_manifest")[name]["manifest"]
        for name in (
            "serviceaccount_kube_system_engine_logs",
            "daemonset_kube_system_engine_logs",
        )
    )
    pod = collector["spec"]["template"]["spec"]
    identity = resources(rich, cluster, "aws_eks_pod_identity_association")["engine_logs"]
    assert identity["namespace"] == account["metadata"]["namespace"] == "kube-system"
    assert identity["service_account"] == account["metadata"]["name"] == pod["serviceAccountName"]
    (container,) = pod["containers"]
    options = dict(item.removeprefix("--prop=").split("=", 1) for item in container["args"])
    assert options["log_group_name"] == group["name"] and options["region"] == "us-west-2"
    file = "qwen3-8b-predictor-5d_inference_kserve-container-" + 64 * "0" + ".log"
    assert fnmatch.fnmatch(f"/var/log/containers/{file}", options["path"])
    parts = re.search(options["tag_regex"].replace("?<", "?P<"), f"/var/log/containers/{file}")
    assert parts and parts.groupdict() == {
        "pod": "qwen3-8b-predictor-5d",
        "container": "kserve-container",
    }
    assert f"{GKE}-platform" in rich and "daemonset_kube_system_engine_logs" not in resources(
        rich, f"{GKE}-platform", "kubernetes_manifest"
    ), "GKE's own agent sends them"


def test_logs_of_a_cluster_on_gke_are_stored_once(synthesised: dict[str, Any]) -> None:
    sink, exclusion = (
        resources(synthesised, f"{GKE}-cluster", f"google_logging_project_{kind}")["main"]
        for kind in ("sink", "exclusion")
    )
    assert exclusion["filter"] == sink["filter"]
    assert exclusion["depends_on"] == ["google_logging_project_sink.main"]


def test_a_private_cluster_on_gke_is_deployed_to_by_its_name(tmp_path: Path) -> None:
    by_address, by_name = (
        synthesise(golden(tmp_path, ("access:\n", f"access:\n  dns_endpoint: {wanted}\n")))
        for wanted in ("false", "true")
    )
    path = "control_plane_endpoints_config[0].dns_endpoint_config[0].endpoint"
    for stacks, external, endpoint in ((by_address, False, "endpoint"), (by_name, True, path)):
        cluster = resources(stacks, f"{GKE}-cluster", "google_container_cluster")["main"]
        settings = cluster["control_plane_endpoints_config"]["dns_endpoint_config"]
        assert settings == {"allow_external_traffic": external}
        output = stacks[f"{GKE}-cluster"]["output"]["cluster_endpoint"]["value"]
        assert output == f"https://${{google_container_cluster.main.{endpoint}}}"
        for layer in ("platform", "serving"):
            # The name's certificate is one that every machine knows.
            (provider,) = stacks[f"{GKE}-{layer}"]["provider"]["kubernetes"]
            assert ("cluster_ca_certificate" in provider) is not external
            (eks,) = stacks[f"{EKS}-{layer}"]["provider"]["kubernetes"]
            assert "cluster_ca_certificate" in eks
