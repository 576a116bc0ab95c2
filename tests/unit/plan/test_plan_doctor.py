"""The doctor's checks: a cluster in order, and what each fault added to it makes them say."""

import ast
import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mpctl.plan.doctor as plan_doctor
from mpctl.plan.doctor import SEVERITIES, ClusterFacts, Denied, MetricAnswer, access, diagnose
from mpctl.platform.kubernetes import names, text

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LONG_AGO = (NOW - timedelta(days=3)).isoformat()
ISVC = "serving.kserve.io/inferenceservice"
GKE = "cloud.google.com/gke-nodepool"
CLAIM = {"name": "gpu", "resourceClaimTemplateName": "one-l4"}
PROBE = {"httpGet": {"path": "/v1/models", "port": 8080}}


def meta(name, namespace=None, *, labels=None, annotations=None, created=LONG_AGO, **more):
    found = {"name": name, "labels": labels or {}, "annotations": annotations or {}, "creationTimestamp": created}
    return {**found, **({"namespace": namespace} if namespace else {}), **more}


def node(name, **labels):
    return {
        "metadata": meta(name, labels={"nvidia.com/gpu.present": "true", **labels}),
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8"}},
    }


def slice_of(name, devices=1):
    found = [{"name": f"gpu-{i}"} for i in range(devices)]
    return {
        "metadata": meta(f"{name}-gpu"),
        "spec": {"driver": "gpu.nvidia.com", "nodeName": name, "pool": {"name": name}, "devices": found},
    }


def service(name="qwen"):
    return {
        "metadata": meta(name, "chat", annotations={"serving.kserve.io/autoscalerClass": "external"}),
        "spec": {"predictor": {"minReplicas": 1, "resourceClaims": [dict(CLAIM)]}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "deploymentMode": "Standard"},
    }


def deployment(name="qwen"):
    container = {
        "name": "kserve-container",
        "image": "vllm/vllm-openai:v0.28.0",
        "readinessProbe": PROBE,
        "startupProbe": PROBE,
        "resources": {"claims": [{"name": "gpu"}], "limits": {"cpu": "2"}},
    }
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    return {
        "metadata": meta(f"{name}-predictor", "chat"),
        "spec": {
            "strategy": rolling,
            "template": {"spec": {"containers": [container], "resourceClaims": [dict(CLAIM)]}},
        },
        "status": {"conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]},
    }


def pod(name="qwen-predictor-1", of="qwen"):
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
    return {
        "metadata": meta(name, "chat", labels={ISVC: of, "component": "predictor"}),
        "spec": {"nodeName": "gpu-a", "resourceClaims": [dict(CLAIM)]},
        "status": {"phase": "Running", "conditions": conditions},
    }


def hpa(name="qwen-queue-wait"):
    metric = {"type": "Pods", "pods": {"metric": {"name": "queue_wait_ms"}}}
    return {
        "metadata": meta(name, "chat"),
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "qwen-predictor"},
            "minReplicas": 1,
            "maxReplicas": 4,
            "metrics": [metric],
        },
        "status": {"conditions": [{"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"}]},
    }


def webhook(name, *, bundle="Q0E="):
    client = {"service": {"name": "kserve-webhook-server-service", "namespace": "kserve"}, "caBundle": bundle}
    return {
        "metadata": meta("inferenceservice.serving.kserve.io"),
        "webhooks": [{"name": name, "clientConfig": client}],
    }


def healthy():
    image = {"name": "manager", "image": "kserve/kserve-controller:v0.20.0"}
    return {
        "nodes": [node("gpu-a"), node("gpu-b")],
        "resourceslices": [slice_of("gpu-a"), slice_of("gpu-b")],
        "resourceclaims": [],
        "resourceclaimtemplates": [{"metadata": meta("one-l4", "chat")}],
        "deviceclasses": [{"metadata": meta("gpu.nvidia.com")}],
        "dra-daemonsets": [
            {
                "metadata": meta("nvidia-dra-driver-gpu-kubelet-plugin", "nvidia-dra-driver-gpu"),
                "spec": {"template": {"spec": {"priorityClassName": "system-node-critical"}}},
                "status": {"numberReady": 2},
            }
        ],
        "resourcequotas": [],
        "kserve-deployments": [
            {
                "metadata": meta("kserve-controller-manager", "kserve"),
                "spec": {"template": {"spec": {"containers": [image]}}},
                "status": {"availableReplicas": 1},
            }
        ],
        "kserve-configmaps": [
            {
                "metadata": meta("inferenceservice-config", "kserve"),
                "data": {
                    "deploy": '{"defaultDeploymentMode": "Standard"}',
                    "ingress": '{"enableGatewayApi": true}',
                    "storageInitializer": '{"enableModelcar": true}',
                    "inferenceService": '{"serviceAnnotationDisallowedList": ["my.org/note"]}',
                },
            }
        ],
        "kserve-endpointslices": [
            {
                "metadata": meta("x", "kserve", labels={"kubernetes.io/service-name": "kserve-webhook-server-service"}),
                "endpoints": [{"conditions": {"ready": True}}],
            }
        ],
        "mutatingwebhookconfigurations": [webhook("inferenceservice.kserve-webhook-server.defaulter")],
        "validatingwebhookconfigurations": [webhook("inferenceservice.kserve-webhook-server.validator")],
        "clusterservingruntimes": [{"metadata": meta("kserve-vllmserver")}],
        "inferenceservices": [service()],
        "deployments": [deployment()],
        "pods": [pod()],
        "horizontalpodautoscalers": [hpa()],
        "scaledobjects": [],
        "podmonitors": [{"metadata": meta("qwen", "chat"), "spec": {"selector": {"matchLabels": {ISVC: "qwen"}}}}],
        "leases": [],
    }


def facts(objects=None, **changes):
    base = ClusterFacts(
        now=NOW,
        version="v1.36.2",
        groups={
            "resource.k8s.io": ("v1",),
            "gateway.networking.k8s.io": ("v1", "v1beta1"),
            "serving.kserve.io": ("v1beta1", "v1alpha1"),
            "custom.metrics.k8s.io": ("v1beta1",),
            "monitoring.coreos.com": ("v1",),
            "keda.sh": ("v1alpha1",),
        },
        objects=healthy() if objects is None else objects,
        metrics=(MetricAnswer("chat", {"qwen-predictor-1": "120"}),),
        denied=(),
    )
    return replace(base, **changes)


def said(found):
    return {(f.id, f.severity) for f in found if f.severity != "ok"}


def test_a_cluster_in_order_has_nothing_against_it_and_says_what_was_checked():
    found = diagnose(facts())
    assert said(found) == set()
    assert {f.id for f in found} >= {
        *("api-version", "dra-api", "gateway-api", "kserve-version", "kserve-mode", "kserve-webhook", "vllm-runtime"),
        *("dra-driver", "dra-slices", "queue-wait", "rights", "kserve-annotations"),
    }


FAULTS = {}


def fault(expected, *more):
    """A change to the healthy objects and the findings it must add, no other."""

    def keep(change):
        FAULTS[change.__name__] = (change, {expected, *more})
        return change

    return keep


def the(objects, resource, index=0):
    return objects[resource][index]


def container(objects):
    return the(objects, "deployments")["spec"]["template"]["spec"]["containers"][0]


@fault(("gpu-nodes", "warn"))
def no_gpu_nodes(o):
    o["nodes"] = [{"metadata": meta("cpu"), "spec": {}, "status": {}}]
    o["resourceslices"] = []


@fault(("gpu-node-cordoned", "warn"))
def cordoned(o):
    the(o, "nodes")["spec"]["unschedulable"] = True


@fault(("gpu-node-not-ready", "warn"))
def not_ready(o):
    the(o, "nodes")["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]


@fault(("gpu-node-open", "note"))
def no_taint(o):
    the(o, "nodes")["spec"]["taints"] = []


@fault(("dra-driver", "fail"))
def no_device_class(o):
    o["deviceclasses"] = []


@fault(("dra-slices", "fail"))
def override_trap(o):
    o["resourceslices"] = []


@fault(("dra-slices", "fail"))
def slice_without_devices(o):
    o["resourceslices"][1] = slice_of("gpu-b", devices=0)


@fault(("dra-slices", "note"))
def young_node_without_slice(o):
    the(o, "nodes")["metadata"]["creationTimestamp"] = (NOW - timedelta(seconds=90)).isoformat()
    o["resourceslices"] = o["resourceslices"][1:]


@fault(("dra-slices", "warn"))
def device_plugin_alone_on_one_node(o):
    the(o, "nodes")["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    o["resourceslices"] = o["resourceslices"][1:]


@fault(("gpu-twice", "fail"))
def device_plugin_beside_dra(o):
    the(o, "nodes")["status"]["allocatable"]["nvidia.com/gpu"] = "1"


@fault(("gke-labels", "warn"), ("gke-critical-quota", "warn"))
def gke_without_labels(o):
    for one in o["nodes"]:
        one["metadata"]["labels"][GKE] = "l4"


@fault(("karpenter-dra", "warn"))
def karpenter(o):
    the(o, "nodes")["metadata"]["labels"]["karpenter.sh/nodepool"] = "gpu"


@fault(("eks-minimum", "note"))
def eks(o):
    the(o, "nodes")["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] = "l4"


@fault(("kserve-controller", "fail"))
def controller_down(o):
    the(o, "kserve-deployments")["status"] = {}


@fault(("kserve-version", "warn"))
def old_kserve(o):
    the(o, "kserve-deployments")["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "kserve/kserve-controller:v0.15.2"
    )


@fault(("kserve-mode", "warn"))
def knative_by_default(o):
    the(o, "kserve-configmaps")["data"]["deploy"] = '{"defaultDeploymentMode": "Serverless"}'


@fault(("kserve-config", "fail"))
def broken_config(o):
    the(o, "kserve-configmaps")["data"]["deploy"] = '{"defaultDeploymentMode": }'


@fault(("kserve-modelcar", "note"))
def no_modelcar(o):
    the(o, "kserve-configmaps")["data"]["storageInitializer"] = '{"enableModelcar": false}'


@fault(("kserve-webhook", "fail"))
def webhook_without_bundle(o):
    o["validatingwebhookconfigurations"] = [webhook("v", bundle="")]


@fault(("kserve-webhook", "fail"))
def webhook_without_endpoint(o):
    the(o, "kserve-endpointslices")["endpoints"] = [{"conditions": {"ready": False}}]


@fault(("vllm-runtime", "note"))
def no_runtime(o):
    o["clusterservingruntimes"] = []


@fault(("hpa-name", "fail"))
def hpa_called_as_kserve_calls_its_own(o):
    the(o, "horizontalpodautoscalers")["metadata"]["name"] = "qwen-predictor"


@fault(("autoscaler-class", "warn"))
def class_not_external(o):
    the(o, "inferenceservices")["metadata"]["annotations"] = {}


@fault(("autoscaler-twice", "fail"))
def two_autoscalers(o):
    o["horizontalpodautoscalers"].append(hpa("qwen-cpu"))


@fault(("autoscaler-pinned", "warn"))
def pinned_by_hand(o):
    the(o, "horizontalpodautoscalers")["spec"]["maxReplicas"] = 1


@fault(("autoscaler-minimum", "warn"))
def down_to_zero(o):
    the(o, "horizontalpodautoscalers")["spec"]["minReplicas"] = 0


@fault(("hpa-inactive", "fail"))
def hpa_without_metric(o):
    the(o, "horizontalpodautoscalers")["status"]["conditions"] = [
        {"type": "ScalingActive", "status": "False", "reason": "FailedGetPodsMetric", "message": "no metrics returned"}
    ]


def scaled_object(**metadata):
    trigger = {
        "type": "prometheus",
        "metadata": {"query": "sum(queue_wait_ms)", "ignoreNullValues": "false", **metadata},
    }
    return {
        "metadata": meta("qwen-queue-wait", "chat"),
        "spec": {"scaleTargetRef": {"name": "qwen-predictor"}, "minReplicaCount": 1, "triggers": [trigger]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


@fault(("keda-null", "warn"))
def keda_takes_nothing_for_zero(o):
    o["horizontalpodautoscalers"] = []
    o["scaledobjects"] = [scaled_object(ignoreNullValues="true")]


@fault(("keda-paused", "warn"))
def keda_paused(o):
    o["horizontalpodautoscalers"] = []
    o["scaledobjects"] = [scaled_object()]
    the(o, "scaledobjects")["metadata"]["annotations"]["autoscaling.keda.sh/paused-replicas"] = "2"


@fault(("keda-not-ready", "fail"))
def keda_not_ready(o):
    o["horizontalpodautoscalers"] = []
    o["scaledobjects"] = [scaled_object()]
    the(o, "scaledobjects")["status"]["conditions"] = [{"type": "Ready", "status": "False", "message": "no trigger"}]


@fault(("pod-monitor", "warn"))
def monitor_of_another_namespace(o):
    the(o, "podmonitors")["metadata"]["namespace"] = "monitoring"


@fault(("probe-tcp", "warn"))
def tcp_probe(o):
    container(o)["readinessProbe"] = {"tcpSocket": {"port": 8080}}


@fault(("probe-startup", "note"))
def no_startup_probe(o):
    del container(o)["startupProbe"]


@fault(("ready-but-stuck", "fail"))
def surge_pod_that_never_schedules(o):
    extra = pod("qwen-predictor-2")
    reason = "0/2 nodes are available: 2 cannot allocate all claims."
    extra["status"] = {
        "phase": "Pending",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": reason}],
    }
    o["pods"].append(extra)


@fault(("ready-but-stuck", "fail"))
def claim_template_that_is_gone(o):
    extra = pod("qwen-predictor-2")
    extra["spec"].pop("nodeName")
    extra["status"] = {"phase": "Pending"}
    o["pods"].append(extra)
    o["resourceclaimtemplates"] = []


@fault(("ready-but-stuck", "fail"))
def new_pod_crashes(o):
    extra = pod("qwen-predictor-2")
    extra["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    extra["status"]["containerStatuses"] = [{"name": "kserve-container", "restartCount": 4, "state": waiting}]
    o["pods"].append(extra)


@fault(("not-ready", "fail"))
def deadline_exceeded(o):
    the(o, "inferenceservices")["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    the(o, "deployments")["status"]["conditions"] = [
        {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "has timed out"}
    ]


@fault(("surge-deadlock", "warn"))
def last_gpu_and_default_strategy(o):
    the(o, "deployments")["spec"]["strategy"]["rollingUpdate"] = {"maxSurge": "25%", "maxUnavailable": "25%"}
    taken = [{"driver": "gpu.nvidia.com", "pool": name, "device": "gpu-0"} for name in ("gpu-a", "gpu-b")]
    o["resourceclaims"] = [
        {"metadata": meta("c", "chat"), "status": {"allocation": {"devices": {"results": taken}}}},
    ]


@fault(("cpu-image", "fail"))
def cpu_image_under_a_claim(o):
    container(o)["image"] = "vllm/vllm-openai-cpu:v0.11.0"


@fault(("gpu-asked-twice", "fail"))
def claim_and_limit(o):
    container(o)["resources"]["limits"]["nvidia.com/gpu"] = "1"


@fault(("claim-unknown", "fail"))
def claim_nobody_offers(o):
    container(o)["resources"]["claims"] = [{"name": "cards"}]


@fault(("claim-unused", "warn"))
def claim_nobody_uses(o):
    del container(o)["resources"]["claims"]


@fault(("native-canary", "warn"))
def native_canary(o):
    the(o, "inferenceservices")["spec"]["canary"] = [{"trafficPercent": 10}]


@fault(("canary-ignored", "warn"))
def percent_in_standard_mode(o):
    the(o, "inferenceservices")["spec"]["predictor"]["canaryTrafficPercent"] = 10


@fault(("stopped", "note"))
def stopped(o):
    the(o, "inferenceservices")["metadata"]["annotations"]["serving.kserve.io/stop"] = "true"


@fault(("annotation-restarts", "note"))
def state_on_the_service(o):
    the(o, "inferenceservices")["metadata"]["annotations"]["mpctl.dev/revision"] = "3"


def lease(renewed_s_ago):
    return {
        "metadata": meta(
            "mpctl-qwen", "chat", labels={"app.kubernetes.io/managed-by": "mpctl", "mpctl.dev/service": "qwen"}
        ),
        "spec": {
            "holderIdentity": "ann@laptop",
            "leaseDurationSeconds": 30,
            "renewTime": (NOW - timedelta(seconds=renewed_s_ago)).isoformat().replace("+00:00", "Z"),
        },
    }


@fault(("lease-stale", "warn"))
def stale_lease(o):
    o["leases"] = [lease(31)]


@fault(("lease", "note"))
def held_lease(o):
    o["leases"] = [lease(29)]


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_nothing_else(name):
    change, expected = FAULTS[name]
    objects = healthy()
    change(objects)
    found = diagnose(facts(objects))
    assert said(found) == expected
    for finding in found:
        if finding.severity != "ok":
            assert finding.subject and finding.cause
        if finding.severity in ("fail", "warn"):
            assert finding.fix and (finding.source or finding.id.startswith("gpu-node"))


def test_what_is_pinned_by_a_rollout_is_a_fault_once_nobody_carries_it_on():
    objects = healthy()
    pinned_by_hand(objects)
    opened = {("chat", "qwen"): "op-1 (ngram)"}
    found = said(diagnose(facts(objects, unfinished=opened)))
    assert found == {("autoscaler-pinned", "fail"), ("unfinished", "warn")}
    objects["leases"] = [lease(5)]
    assert said(diagnose(facts(objects, unfinished=opened))) == {("lease", "note")}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"version": "v1.33.4-gke.1"}, ("api-version", "warn")),
        ({"version": "v0.0.0-master+$Format:%H$"}, ("api-version", "note")),
        ({"version": None}, ("api-version", "note")),
        (
            {"metrics": (MetricAnswer("chat", None, "404 the server could not find the metric"),)},
            ("queue-wait", "fail"),
        ),
        ({"metrics": (MetricAnswer("chat", {}),)}, ("queue-wait", "fail")),
        (
            {"metrics": (MetricAnswer("chat", {"qwen-predictor-1": "-9223372036854775808m"}),)},
            ("queue-wait-nan", "fail"),
        ),
        ({"denied": (Denied("update leases", ("rollout",), False),)}, ("rights", "warn")),
        ({"owners": {("chat", "qwen"): "Argo CD (models)"}}, ("owned", "note")),
        ({"unread": {"nodes": "forbidden"}}, ("could-not-look", "note")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_faults_outside_the_objects(change, expected):
    assert expected in said(diagnose(facts(**change)))


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("resource.k8s.io", ("dra-api", "fail")),
        ("serving.kserve.io", ("kserve-missing", "fail")),
        ("custom.metrics.k8s.io", ("metrics-adapter", "fail")),
        ("gateway.networking.k8s.io", ("kserve-gateway", "fail")),
    ],
)
def test_groups_that_are_not_served(group, expected):
    groups = {name: versions for name, versions in facts().groups.items() if name != group}
    assert expected in said(diagnose(facts(groups=groups)))


def test_beta_dra_alone_is_not_enough():
    groups = {**facts().groups, "resource.k8s.io": ("v1beta1",)}
    found = next(f for f in diagnose(facts(groups=groups)) if f.id == "dra-api")
    assert found.severity == "fail"
    assert "v1beta1" in found.cause


def test_a_metric_that_some_pods_lack():
    objects = healthy()
    objects["pods"].append(pod("qwen-predictor-2"))
    assert said(diagnose(facts(objects))) == {("queue-wait-partial", "warn")}


@pytest.mark.parametrize(
    ("labels", "landed", "everywhere", "word"),
    [
        ({"nvidia.com/gpu.present": "true"}, 2, True, "gpuResourcesEnabledOverride"),
        ({"nvidia.com/gpu.present": "true"}, 2, False, "taints"),
        ({"nvidia.com/gpu.present": "true"}, 0, True, "describe daemonset"),
        ({"nvidia.com/gpu.present": "no", "cloud.google.com/gke-accelerator": "nvidia-l4"}, 2, True, "label the pool"),
    ],
)
def test_why_a_node_publishes_nothing(labels, landed, everywhere, word):
    objects = healthy()
    objects["resourceslices"] = [] if everywhere else [slice_of("gpu-b")]
    objects["nodes"] = [node("gpu-a", **labels), *([] if everywhere else [node("gpu-b")])]
    the(objects, "dra-daemonsets")["status"]["numberReady"] = landed
    found = next(f for f in diagnose(facts(objects)) if f.id == "dra-slices" and f.severity == "fail")
    assert word in found.fix
    assert found.subject == "node gpu-a"


def test_gke_quota_is_a_failure_once_no_plugin_runs_and_none_with_a_quota():
    objects = healthy()
    gke_without_labels(objects)
    the(objects, "dra-daemonsets")["status"]["numberReady"] = 0
    assert ("gke-critical-quota", "fail") in said(diagnose(facts(objects)))
    rule = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
    objects["resourcequotas"] = [
        {
            "metadata": meta("critical", "nvidia-dra-driver-gpu"),
            "spec": {"scopeSelector": {"matchExpressions": [rule]}},
        }
    ]
    assert "gke-critical-quota" not in {f.id for f in diagnose(facts(objects))}


@pytest.mark.parametrize(
    ("fields", "severity", "word"),
    [
        (frozenset({"predictor.storageUris", "canary"}), "ok", "0.20"),
        (frozenset({"predictor.storageUris"}), "ok", "0.16"),
        (frozenset(), "warn", "older than 0.16"),
        (None, "note", "could not be told"),
    ],
)
def test_kserve_version_from_the_schema_where_no_image_tells(fields, severity, word):
    objects = healthy()
    the(objects, "kserve-deployments")["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "mirror/kserve@sha256:0123"
    )
    found = next(f for f in diagnose(facts(objects, kserve_fields=fields)) if f.id == "kserve-version")
    assert found.severity == severity
    assert word in found.cause


def test_candidates_that_are_still_there():
    objects = healthy()
    left = service("qwen-candidate")
    left["metadata"]["labels"]["mpctl.dev/service"] = "qwen"
    left["metadata"]["annotations"]["mpctl.dev/arm"] = "arm-0123456789"
    objects["inferenceservices"].append(left)
    assert said(diagnose(facts(objects))) == {("candidate-left", "note")}
    opened = {("chat", "qwen"): "op-1 (ngram)"}
    assert said(diagnose(facts(objects, unfinished=opened))) == {("unfinished", "warn")}
    objects["inferenceservices"] = [left]
    assert ("candidate-orphan", "warn") in said(diagnose(facts(objects)))


def test_names_are_those_that_the_platform_writes():
    assert access.SERVICE == names.SERVICE_LABEL
    assert access.ARM == text.ARM_ANNOTATION
    assert access.WHO == "mpctl.dev/who"


UNREADABLE = sorted(healthy())
REQUIRED = {"name", "metadata", "driver", "pool", "device"}  # the API server refuses objects without them


@given(st.sets(st.sampled_from(UNREADABLE)))
def test_what_could_not_be_looked_at_is_said_and_never_taken_for_absent(hidden):
    seen = facts(unread=dict.fromkeys(hidden, "forbidden"))
    found = diagnose(seen)
    assert {name for f in found if f.id == "could-not-look" for name in f.subject.split(", ")} == hidden
    assert not [f for f in found if f.severity in ("fail", "warn")]


@given(st.data())
def test_any_hole_in_the_objects_is_survived(data):
    """API servers leave out what is empty: any key may be missing anywhere but those that a schema requires."""
    objects = healthy()
    resource = data.draw(st.sampled_from(UNREADABLE))
    here = objects[resource]
    while isinstance(here, dict | list) and here:
        keys = sorted(set(here) - REQUIRED) if isinstance(here, dict) else range(len(here))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if data.draw(st.booleans()) or not isinstance(here[key], dict | list):
            if isinstance(here, dict):
                del here[key]
            else:
                here.pop(key)
            break
        here = here[key]
    found = diagnose(facts(copy.deepcopy(objects)))
    assert [f.severity for f in found] == sorted((f.severity for f in found), key=SEVERITIES.index)


def test_every_finding_is_documented_and_every_documented_one_exists():
    source = Path(plan_doctor.__file__).parent
    calls = [node for file in source.glob("*.py") for node in ast.walk(ast.parse(file.read_text()))]
    made = [n.args[0] for n in calls if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "Finding"]
    words = [c.value for name in made for c in ast.walk(name) if isinstance(c, ast.Constant)]
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text()
    table = page[page.index("## Findings") : page.index("## Why a chart")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][1:]
    listed = {name.strip() for row in rows for name in row.split(",")}
    assert listed | {"could-not-look"} == set(words)
    assert "`could-not-look`" in page
