"""The load Job as a document: what it takes from the serving pod, what it leaves, and what its troubles are called."""

import copy
import json

import pytest

from mpctl.platform.kubernetes.load_job.job_manifest import is_finished, load_job, owned_by, pod_problem
from stacks.services.isolation import LOAD_PODS

POD = {
    "metadata": {"name": "demo-predictor-1", "labels": {"serving.kserve.io/inferenceservice": "demo"}},
    "spec": {
        "serviceAccountName": "puller",
        "imagePullSecrets": [{"name": "mirror"}],
        "nodeSelector": {"pool": "l4"},
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-l4"}],
        "securityContext": {"runAsUser": 1000, "fsGroup": 2000, "sysctls": []},
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        "containers": [
            {"name": "queue-proxy", "image": "proxy"},
            {
                "name": "kserve-container",
                "image": "vllm/vllm-openai:v0.32.0",
                "imagePullPolicy": "Never",
                "args": ["--api-key=sk-secret"],
                "env": [{"name": "HF_TOKEN", "value": "hf-secret"}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}, "claims": [{"name": "gpu"}]},
                "securityContext": {"runAsNonRoot": True, "privileged": True},
            },
        ],
    },
}


def made(pod=POD, service="demo", scope="rollout"):
    return load_job(pod, service, "chat", scope)


def spec_of(found):
    return found.job["spec"]["template"]["spec"]


def test_it_runs_where_the_serving_pod_may():
    spec = spec_of(made())
    (container,) = spec["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("vllm/vllm-openai:v0.32.0", "Never")
    assert (spec["serviceAccountName"], spec["imagePullSecrets"]) == ("puller", [{"name": "mirror"}])
    assert spec["nodeSelector"] == {"pool": "l4"}
    assert [t["key"] for t in spec["tolerations"]] == ["nvidia.com/gpu"]
    assert spec["securityContext"] == {"seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": 1000, "fsGroup": 2000}


def test_the_stacks_network_policy_lets_its_pods_out():
    labels = made().job["spec"]["template"]["metadata"]["labels"]
    assert LOAD_PODS.items() <= labels.items()


def test_it_takes_no_gpu_no_volume_and_no_secret():
    found = made()
    spec = spec_of(found)
    (container,) = spec["containers"]
    assert "resourceClaims" not in spec
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert {v["name"] for v in spec["volumes"]} == {"scripts", "work"}
    assert "secret" not in json.dumps([found.job, found.scripts["metadata"]])
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]


def test_it_is_what_a_restricted_namespace_admits():
    (container,) = spec_of(made())["containers"]
    told = container["securityContext"]
    assert told == {"runAsNonRoot": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert spec_of(made())["automountServiceAccountToken"] is False


def test_the_name_stands_for_all_that_cannot_be_changed():
    other = copy.deepcopy(POD)
    other["spec"]["containers"][1]["image"] = "vllm/vllm-openai:v0.33.0"
    names = {made().name, made(other).name, made(scope="bench-a1b2c3").name, made(service="demo" * 15).name}
    assert len(names) == 4
    assert made().name == made(copy.deepcopy(POD)).name
    assert all(len(name) <= 63 for name in names)  # it becomes a label of the pod


@pytest.mark.parametrize("service", ["a" * 63, "a" * 35 + "-" + "b" * 20])
def test_a_long_name_is_a_name(service):
    assert len(made(service=service, scope="bench-a1b2c3").name) <= 63
    assert "--" not in made(service=service).name


def test_the_python_of_the_engines_command_is_taken():
    other = copy.deepcopy(POD)
    other["spec"]["containers"][1]["command"] = ["/opt/venv/bin/python3", "-m", "vllm.entrypoints.openai.api_server"]
    assert spec_of(made(other))["containers"][0]["command"][0] == "/opt/venv/bin/python3"
    other["spec"]["containers"][1]["command"] = ["vllm", "serve"]
    assert spec_of(made(other))["containers"][0]["command"][0] == "python3"


def test_the_scripts_go_with_the_job():
    job = {"metadata": {"name": "load", "uid": "u-1", "labels": {}}}
    found = owned_by(made().scripts, job)["metadata"]
    assert found["ownerReferences"] == [{"apiVersion": "batch/v1", "kind": "Job", "name": "load", "uid": "u-1"}]
    assert set(made().scripts["data"]) == {"agent.py", "bench.py", "distribution.py", "paced.py"}


@pytest.mark.parametrize(
    ("job", "ended"),
    [
        ({"metadata": {}}, False),
        ({"metadata": {}, "status": {"conditions": [{"type": "Complete", "status": "True"}]}}, True),
        ({"metadata": {}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}, True),
        ({"metadata": {}, "status": {"conditions": [{"type": "Failed", "status": "False"}]}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
    ],
)
def test_when_it_is_over(job, ended):
    assert is_finished(job) is ended


def pod(phase, *, ready=None, **state):
    status = {"phase": phase, "containerStatuses": [{"name": "load", "state": state}]} if state else {"phase": phase}
    return {"metadata": {"name": "load-x", "uid": "u"}, "spec": {}, "status": status}


REFUSED = 'pods "load-x" is forbidden: exceeded quota: small, requested: requests.memory=2Gi, limited: 1Gi'
UNBOUND = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available: 2 Insufficient cpu.",
}


@pytest.mark.parametrize(
    ("found", "events", "message", "final"),
    [
        (None, [{"reason": "FailedCreate", "message": REFUSED}], f"its pod is refused: {REFUSED}", False),
        (
            pod("Running", terminated={"reason": "OOMKilled", "exitCode": 137}),
            [],
            "pod load-x: OOMKilled with code 137; its memory limit is 4Gi",
            True,
        ),
        (pod("Failed", terminated={"reason": "Error", "exitCode": 1}), [], "pod load-x: Error with code 1", True),
        (pod("Succeeded", terminated={"reason": "Completed", "exitCode": 0}), [], "Completed with code 0", True),
        (
            pod("Pending", waiting={"reason": "ImagePullBackOff", "message": "failed to pull image: not found"}),
            [],
            "ImagePullBackOff: failed to pull image: not found",
            True,
        ),
        (
            {**pod("Pending"), "status": {"phase": "Pending", "conditions": [UNBOUND]}},
            [],
            "pod load-x cannot be scheduled: 0/2 nodes are available: 2 Insufficient cpu.",
            False,
        ),
        (
            {**pod("Pending"), "status": {"phase": "Pending", "conditions": [{**UNBOUND, "status": "True"}]}},
            [{"reason": "FailedMount", "message": 'configmap "load" not found'}],
            'pod load-x waits: configmap "load" not found',
            False,
        ),
    ],
)
def test_its_troubles_in_the_clusters_own_words(found, events, message, final):
    told = pod_problem(found, events)
    assert message in told.message
    assert told.final is final


def test_no_trouble():
    assert pod_problem(None, []) is None
    assert pod_problem(pod("Running", running={"startedAt": "now"}), []) is None
