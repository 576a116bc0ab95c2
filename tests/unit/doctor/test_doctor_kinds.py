"""Every kind that is changed on a cluster gets every check, and updates count as Kubernetes counts them."""

import copy

import pytest
from doctor_cluster import ISVC, facts, healthy, meta, node, pod, said

from mpctl.doctor import diagnose
from mpctl.doctor.updates import ALL_PODS

GPU = "nvidia.com/gpu"
READY = {"httpGet": {"path": "/health", "port": 8000}}
KINDS = ("InferenceService", "Deployment", "LLMInferenceService", "VLLMRuntime", "LeaderWorkerSet")
LIMITED = {"resources": {"limits": {GPU: "1"}}}
NEW_FIRST = {"maxSurge": 1, "maxUnavailable": 0}
DEFAULT = {"maxSurge": "25%", "maxUnavailable": "25%"}


def engine(**more):
    """An engine against which nothing can be said."""
    return {
        "name": "kserve-container",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": ["--model=Qwen/Qwen3-8B", "--shutdown-timeout=600"],
        "lifecycle": {"preStop": {"sleep": {"seconds": 15}}},
        "readinessProbe": READY,
        **more,
    }


def deployed(kind, *, replicas=1, rolling=None, status=(), pod_spec=None, **more):
    """The objects of one service of a kind, and the selector of its pods."""
    template = {
        "metadata": {"labels": {"app": "chat"}},
        "spec": {
            "terminationGracePeriodSeconds": 630,
            "containers": [engine(**more)],
            **(pod_spec or {}),
        },
    }
    record = {
        "metadata": meta("chat", "chat"),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "chat"}},
            "template": template,
        },
        "status": {"conditions": list(status)},
    }
    if rolling is not None:
        record["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": rolling}
    if kind == "LeaderWorkerSet":
        record["spec"] = {
            "replicas": replicas,
            "leaderWorkerTemplate": {"size": 1, "workerTemplate": template},
            "rolloutStrategy": {"rollingUpdateConfiguration": rolling or {}},
        }
        return {"leaderworkersets": [record]}, {"leaderworkerset.sigs.k8s.io/name": "chat"}
    if kind == "InferenceService":
        service = {
            "metadata": meta("chat", "chat"),
            "spec": {"predictor": {}},
            "status": {"conditions": []},
        }
        record["metadata"] = meta("chat-predictor", "chat", labels={ISVC: "chat"})
        return {"deployments": [record], "inferenceservices": [service]}, {ISVC: "chat"}
    if kind != "Deployment":
        record["metadata"] |= {
            "ownerReferences": [{"kind": kind, "name": "chat", "controller": True}]
        }
    return {"deployments": [record]}, {"app": "chat"}


def running(name, labels, host="gpu-a", **more):
    """A pod that runs on a node."""
    status = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    return {
        "metadata": meta(name, "chat", labels=labels),
        "spec": {"nodeName": host, "containers": [LIMITED], **more},
        "status": status,
    }


def waiting(name, labels, reason="0/2 nodes are available: 2 Insufficient nvidia.com/gpu."):
    scheduled = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": reason,
    }
    return {
        "metadata": meta(name, "chat", labels=labels),
        "spec": {"containers": [LIMITED]},
        "status": {"phase": "Pending", "conditions": [scheduled]},
    }


def with_gpus(name, number="1", resource=GPU):
    record = node(name)
    record["status"]["allocatable"][resource] = number
    return record


def findings(objects, *, nodes=("gpu-a", "gpu-b"), pods=(), groups=None, **more):
    """What the doctor says of a cluster with a device plugin and one service."""
    base = {
        **healthy(),
        "inferenceservices": [],
        "deployments": [],
        "horizontalpodautoscalers": [],
        "deviceclasses": [],
    }
    listed = [n if isinstance(n, dict) else with_gpus(n) for n in nodes]
    cluster = {**base, "resourceslices": [], "nodes": listed, "pods": list(pods), **objects, **more}
    return diagnose(facts(copy.deepcopy(cluster), **({} if groups is None else {"groups": groups})))


def ids(*arguments, **more):
    return {name for name, _ in said(findings(*arguments, **more))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_in_order_has_nothing_against_it(kind):
    assert ids(deployed(kind, **LIMITED)[0]) == set()


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_that_no_node_takes_is_a_failure(kind):
    stuck = {
        "type": "Progressing",
        "status": "False",
        "reason": "ProgressDeadlineExceeded",
        "message": "timed out",
    }
    objects, labels = deployed(kind, status=[stuck])
    (finding,) = [
        f for f in findings(objects, pods=[waiting("chat-1", labels)]) if f.severity == "fail"
    ]
    assert finding.id == "not-ready" and finding.subject == f"{kind} chat/chat"
    assert "Insufficient nvidia.com/gpu" in finding.cause and "timed out" in finding.cause


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_service_that_serves_with_an_old_pod_while_a_new_one_waits_is_a_failure(kind):
    objects, labels = deployed(kind, status=[{"type": "Available", "status": "True"}])
    (finding,) = [
        f for f in findings(objects, pods=[waiting("chat-2", labels)]) if f.severity == "fail"
    ]
    assert (
        finding.id == "ready-but-stuck"
        and "reports Available, because an old pod serves" in finding.cause
    )


@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_pod_of_another_service_is_not_its_trouble(kind):
    assert ids(deployed(kind)[0], pods=[waiting("other", {"app": "other"})]) == set()


def test_a_waiting_pod_of_a_service_in_knative_mode_is_found():
    objects, labels = deployed("InferenceService")
    objects["deployments"][0]["metadata"]["name"] = "chat-predictor-00001-deployment"
    assert ids(objects, pods=[waiting("chat-1", labels)]) == {"not-ready"}


def test_pods_that_a_quota_keeps_from_being_created_are_a_failure():
    message = 'pods "chat-1" is forbidden: exceeded quota: gpus'
    failure = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": message,
    }
    (finding,) = [
        f for f in findings(deployed("Deployment", status=[failure])[0]) if f.severity == "fail"
    ]
    assert message in finding.cause


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("probe", [{"tcpSocket": {"port": 8000}}, {}])
def test_a_readiness_that_passes_before_the_model_is_loaded_is_a_warning(kind, probe):
    assert ids(deployed(kind, readinessProbe=probe)[0]) == {"probe-tcp"}


LIVENESS = {
    "httpGet": {"path": "/health", "port": 8000},
    "initialDelaySeconds": 120,
    "periodSeconds": 10,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("probes", "allowed"),
    [
        ({"livenessProbe": LIVENESS}, 150),
        ({"livenessProbe": {"tcpSocket": {"port": 8000}}}, 30),
        (
            {
                "livenessProbe": {
                    "exec": {"command": ["curl", "localhost:8000/health"]},
                    "failureThreshold": 12,
                }
            },
            120,
        ),
        ({"livenessProbe": LIVENESS, "startupProbe": {**READY, "failureThreshold": 6}}, 60),
    ],
)
def test_a_probe_that_kills_an_engine_that_starts_is_a_warning_with_the_lines_to_add(
    kind, probes, allowed
):
    (finding,) = [f for f in findings(deployed(kind, **probes)[0]) if f.severity != "ok"]
    assert finding.id == "liveness-before-start" and f"allows {allowed} s" in finding.cause
    assert (
        "startupProbe: {" in finding.fix
        and '"periodSeconds": 10, "failureThreshold": 60' in finding.fix
    )


@pytest.mark.parametrize(
    "probes",
    [
        {
            "livenessProbe": LIVENESS,
            "startupProbe": {**READY, "periodSeconds": 10, "failureThreshold": 60},
        },
        {"livenessProbe": {**LIVENESS, "initialDelaySeconds": 900}},
        {"livenessProbe": {**READY, "periodSeconds": 30, "failureThreshold": 30}},
    ],
)
def test_a_probe_that_waits_for_the_engine_is_no_finding(probes):
    assert ids(deployed("Deployment", **probes)[0]) == set()


FULL = [running("other-a", {"app": "other"}), running("other-b", {"app": "other"}, "gpu-b")]


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_that_needs_a_second_gpu_where_none_is_free_is_a_warning(kind):
    objects, _ = deployed(kind, rolling=NEW_FIRST, **LIMITED)
    (finding,) = [f for f in findings(objects, pods=FULL) if f.severity != "ok"]
    assert finding.id == "surge-deadlock" and "nvidia.com/gpu 1" in finding.cause
    assert ids(objects, pods=FULL[:1]) == set(), "one is free"


@pytest.mark.parametrize(
    ("replicas", "rolling", "found"),
    [
        (1, DEFAULT, True),  # 1 more, 0 fewer
        (1, None, True),  # the default of Kubernetes
        (3, DEFAULT, True),  # 0.75 fewer is 0
        (4, DEFAULT, False),  # 1 fewer
        (1, {"maxSurge": 1, "maxUnavailable": 1}, False),
        (
            1,
            {"maxSurge": 0, "maxUnavailable": "25%"},
            False,
        ),  # neither more nor fewer: the controller takes 1 fewer
        (2, {"maxSurge": "10%", "maxUnavailable": "49%"}, True),
        (2, {"maxSurge": "10%", "maxUnavailable": "50%"}, False),
        (0, DEFAULT, False),
    ],
)
def test_surge_is_rounded_up_and_what_may_be_missing_down(replicas, rolling, found):
    objects, _ = deployed("Deployment", replicas=replicas, rolling=rolling, **LIMITED)
    assert ("surge-deadlock" in ids(objects, pods=FULL)) is found


def test_an_update_that_stops_the_old_pod_first_never_waits():
    objects, _ = deployed("Deployment", **LIMITED)
    objects["deployments"][0]["spec"]["strategy"] = {"type": "Recreate"}
    assert ids(objects, pods=FULL) == set()


@pytest.mark.parametrize(
    ("resource", "nodes"),
    [
        ("amd.com/gpu", [with_gpus("gpu-a", resource="amd.com/gpu")]),
        ("nvidia.com/mig-3g.40gb", [with_gpus("gpu-a", resource="nvidia.com/mig-3g.40gb")]),
        (GPU, [{**with_gpus("gpu-a"), "spec": {"unschedulable": True}}]),
        (GPU, [with_gpus("gpu-a", "0")]),
    ],
)
def test_devices_of_every_plugin_count_and_nodes_that_take_no_pod_do_not(resource, nodes):
    objects, labels = deployed("Deployment", resources={"limits": {resource: "1"}})
    taken = running("chat-1", labels)
    taken["spec"]["containers"] = [{"resources": {"limits": {resource: "1"}}}]
    assert "surge-deadlock" in ids(objects, nodes=nodes, pods=[taken])


def test_pods_of_other_namespaces_take_gpus_and_those_that_ended_do_not():
    objects, _ = deployed("Deployment", **LIMITED)
    elsewhere = copy.deepcopy(FULL)
    for item in elsewhere:
        item["metadata"]["namespace"] = "train"
    assert "surge-deadlock" in ids(objects, **{ALL_PODS: elsewhere})
    elsewhere[0]["status"]["phase"] = "Succeeded"
    assert ids(objects, **{ALL_PODS: elsewhere}) == set()


def apart(labels, key="kubernetes.io/hostname", **more):
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key, **more}
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


@pytest.mark.parametrize(
    ("pod_spec", "found"),
    [
        (apart({"app": "chat"}), True),
        (apart({"app": "chat"}, "example.com/rack"), False),  # no node has that label
        (apart({"app": "chat"}, namespaces=["other"]), False),
        (
            apart({"app": "chat"}, matchLabelKeys=["pod-template-hash"]),
            False,
        ),  # pods of the same form alone
        (apart({"app": "else"}), False),
    ],
)
def test_a_required_anti_affinity_against_its_own_pods_counts(pod_spec, found):
    objects, labels = deployed("Deployment", pod_spec=pod_spec, **LIMITED)
    pods = [running("chat-1", {**labels, "pod-template-hash": "abc"})]
    actual = findings(objects, nodes=[with_gpus("gpu-a", "4")], pods=pods)
    assert [f.id for f in actual if f.severity != "ok"] == (["surge-deadlock"] if found else [])
    assert not found or "podAntiAffinity" in next(
        f.cause for f in actual if f.id == "surge-deadlock"
    )


def test_a_required_anti_affinity_of_another_pod_counts():
    objects, _ = deployed("Deployment", **LIMITED)
    alone = running("lonely", {"app": "lonely"}, **apart({"app": "chat"}))
    assert "surge-deadlock" in ids(objects, nodes=[with_gpus("gpu-a", "4")], pods=[alone])


def test_a_node_selector_leaves_nodes_out():
    objects, _ = deployed("Deployment", pod_spec={"nodeSelector": {"pool": "h100"}}, **LIMITED)
    other = with_gpus("gpu-b")
    other["metadata"]["labels"]["pool"] = "h100"
    assert "surge-deadlock" in ids(objects, nodes=["gpu-a", other], pods=FULL[1:])
    assert ids(objects, nodes=["gpu-a", other], pods=FULL[:1]) == set()


def quota(used, hard="1"):
    name = f"requests.{GPU}"
    return {
        "metadata": meta("gpus", "chat"),
        "spec": {"hard": {name: hard}},
        "status": {"hard": {name: hard}, "used": {name: used}},
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_quota_without_room_for_one_more_pod_is_a_warning(kind):
    objects, _ = deployed(kind, **LIMITED)
    quotas = {"resourcequotas": [quota("1")], "limitranges": []}
    (finding,) = [f for f in findings(objects, **quotas) if f.severity != "ok"]
    assert (
        finding.id == "quota-full"
        and "ResourceQuota gpus has no room for 1 more pod" in finding.cause
    )
    assert ids(objects, resourcequotas=[quota("1", "2")], limitranges=[]) == set()
    quotas["resourcequotas"][0]["metadata"]["namespace"] = "other"
    assert ids(objects, **quotas) == set()


GROUPS = {"apps": ("v1",)}
NO_KSERVE = {
    name: []
    for name in healthy()
    if name.startswith("kserve") or name.endswith("webhookconfigurations")
}


@pytest.mark.parametrize("kind", ["Deployment", "VLLMRuntime", "LeaderWorkerSet"])
def test_no_kserve_is_a_note_where_no_service_of_kserve_is_in_scope(kind):
    found = [
        f
        for f in findings(deployed(kind, **LIMITED)[0], groups=GROUPS, **NO_KSERVE)
        if f.severity != "ok"
    ]
    assert [(f.id, f.severity) for f in found] == [("kserve-missing", "note")]
    assert "install" not in found[0].fix
    record = "LeaderWorkerSet" if kind == "LeaderWorkerSet" else kind
    assert f"1 {record}" in found[0].cause


def test_no_kserve_is_a_failure_where_it_made_a_deployment():
    objects, _ = deployed("InferenceService", **LIMITED)
    found = said(findings({**objects, "inferenceservices": []}, groups=GROUPS, **NO_KSERVE))
    assert ("kserve-missing", "fail") in found


@pytest.mark.parametrize("kind", KINDS)
def test_two_autoscalers_and_a_missing_budget_are_found_for_every_kind(kind):
    objects, _ = deployed(kind, replicas=2, **LIMITED)
    name = next(iter(objects.values()))[0]["metadata"]["name"]
    target = {"spec": {"scaleTargetRef": {"name": name}, "minReplicas": 1, "maxReplicas": 3}}
    scalers = [{"metadata": meta(f"{one}-hpa", "chat"), **target} for one in "ab"]
    found = ids(objects, horizontalpodautoscalers=scalers, poddisruptionbudgets=[])
    assert {"autoscaler-twice", "no-disruption-budget"} <= found


@pytest.mark.parametrize("kind", ["Deployment", "LLMInferenceService", "VLLMRuntime"])
def test_a_candidate_that_is_left_is_found_for_every_kind(kind):
    plural = {
        "Deployment": "deployments",
        "LLMInferenceService": "llminferenceservices",
        "VLLMRuntime": "vllmruntimes",
    }
    arm = {"mpctl.dev/arm": "arm-1"}
    labels = {"mpctl.dev/service": "chat", "app.kubernetes.io/managed-by": "mpctl"}
    candidate = {"metadata": meta("chat-arm-1", "chat", labels=labels, annotations=arm), "spec": {}}
    (finding,) = [f for f in findings({plural[kind]: [candidate]}) if f.severity != "ok"]
    assert (
        finding.id == "candidate-orphan"
        and f"kubectl delete {kind.lower()} chat-arm-1" in finding.fix
    )


def test_a_pod_that_its_claims_keep_waiting_is_named():
    objects, labels = deployed("Deployment")
    ignored = pod("chat-2")
    ignored["metadata"]["labels"] = labels
    ignored["spec"].pop("nodeName")
    ignored["status"] = {"phase": "Pending"}
    (finding,) = [
        f
        for f in findings(objects, pods=[ignored], resourceclaimtemplates=[])
        if f.severity == "fail"
    ]
    assert "ResourceClaimTemplate one-l4 not found" in finding.cause
