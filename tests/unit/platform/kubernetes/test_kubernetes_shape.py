"""Plain Deployments as services: recorded without what others write, and a candidate that no Service finds."""

from __future__ import annotations

import copy

import pytest
import yaml

from mpctl.errors import Refused
from mpctl.manifest.engine.engine_port import port_of
from mpctl.platform.kubernetes.service.conditions import assess_health
from mpctl.platform.kubernetes.service.container import engine_container
from mpctl.platform.kubernetes.service.manifest_text import (
    candidate_of,
    object_of,
    object_to_write,
    text_of,
    transition_text,
    without_transition_strategy,
)
from mpctl.platform.kubernetes.service.running_engine import (
    candidate_manifest,
    edited,
    read_service,
)
from mpctl.platform.kubernetes.service.shapes import SHAPES
from mpctl.rollout.ports import Phase

CONTAINERS = [
    {"name": "proxy", "image": "envoy", "args": ["--upstream", "vllm:8000"]},
    {"name": "engine", "image": "vllm/vllm-openai:v0.33.0", "args": ["m", "--max-model-len=2048"]},
]
DEPLOYMENT = SHAPES["Deployment"]
LIVE = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "qwen",
        "namespace": "chat",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 1,
        "labels": {"team": "chat", "app.kubernetes.io/instance": "argo"},
        "annotations": {"deployment.kubernetes.io/revision": "3", "owner": "us"},
    },
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": {"app": "qwen"}},
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        },
        "template": {
            "metadata": {
                "labels": {
                    "app": "qwen",
                    "llm-d.ai/model": "q",
                    "kueue.x-k8s.io/queue-name": "gpus",
                },
                "annotations": {"note": "kept"},
            },
            "spec": {"containers": CONTAINERS},
        },
    },
    "status": {
        "observedGeneration": 1,
        "replicas": 3,
        "updatedReplicas": 3,
        "availableReplicas": 3,
    },
}


def test_replicas_and_the_controllers_revision_are_no_part_of_a_recorded_manifest():
    scaled = copy.deepcopy(LIVE)
    scaled["spec"]["replicas"] = 9
    scaled["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = "8"
    assert text_of(scaled) == text_of(LIVE)
    written = object_to_write(text_of(LIVE), scaled)
    assert written["spec"]["replicas"] == 9
    assert written["metadata"]["annotations"] == {
        "deployment.kubernetes.io/revision": "8",
        "owner": "us",
    }
    assert written["metadata"]["resourceVersion"] == "7"
    bare = copy.deepcopy(LIVE)
    bare["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": "1"}
    assert "annotations" not in object_of(text_of(bare))["metadata"]


def test_no_service_finds_a_candidates_pods():
    candidate = candidate_of(text_of(LIVE), "arm-1", namespace="chat", pods=1)
    assert (candidate["kind"], candidate["metadata"]["name"], candidate["spec"]["replicas"]) == (
        "Deployment",
        "qwen-candidate",
        1,
    )
    labels = candidate["spec"]["template"]["metadata"]["labels"]
    assert labels == {"mpctl.dev/candidate-of": "qwen", "kueue.x-k8s.io/queue-name": "gpus"}
    assert candidate["spec"]["selector"] == {"matchLabels": {"mpctl.dev/candidate-of": "qwen"}}
    assert candidate["spec"]["template"]["spec"] == LIVE["spec"]["template"]["spec"]
    assert "app.kubernetes.io/instance" not in candidate["metadata"]["labels"]
    assert (DEPLOYMENT.pod_selector(LIVE), DEPLOYMENT.pod_selector(candidate)) == (
        "app=qwen",
        "mpctl.dev/candidate-of=qwen",
    )


def test_a_claim_by_name_would_be_shared():
    shared = copy.deepcopy(LIVE)
    shared["spec"]["template"]["spec"]["resourceClaims"] = [
        {"name": "gpu", "resourceClaimName": "mine"}
    ]
    with pytest.raises(Refused, match="would share its GPU"):
        candidate_of(text_of(shared), "arm-1", namespace="chat")


def test_selectors_with_expressions():
    expressions = [
        {"key": "a", "operator": "In", "values": ["x", "y"]},
        {"key": "b", "operator": "Exists"},
        {"key": "c", "operator": "DoesNotExist"},
    ]
    deployment = {"kind": "Deployment", "spec": {"selector": {"matchExpressions": expressions}}}
    assert DEPLOYMENT.pod_selector(deployment) == "a in (x,y),b,!c"


def test_the_strategy_of_a_change_is_set_and_taken_back():
    text = text_of(LIVE)
    changed = transition_text(text, 3, downtime=True)
    assert object_of(changed)["spec"]["strategy"]["rollingUpdate"] == {
        "maxSurge": 0,
        "maxUnavailable": 1,
    }
    assert transition_text(text, 3, downtime=False) == text
    assert without_transition_strategy(changed, [text]) == text


def test_the_engine_is_found_beside_other_containers():
    assert engine_container(CONTAINERS)["name"] == "engine"
    assert DEPLOYMENT.expected(LIVE, None).args == ("m", "--max-model-len=2048")
    assert port_of(CONTAINERS[1]) == 8000
    assert port_of({"name": "kserve-container"}) == 8080
    assert DEPLOYMENT.workload_name(LIVE) == "qwen"
    service = read_service(LIVE)
    assert (service.kind, service.container, service.file) == (
        "Deployment",
        "engine",
        "Deployment chat/qwen",
    )
    changed = edited(LIVE, None, {"method": "ngram", "num_speculative_tokens": 3})
    assert edited(object_of(changed), None, None) == text_of(LIVE)


@pytest.mark.parametrize("owned", [False, True])
def test_what_a_controller_made_is_no_service_of_its_own(owned):
    owners = (
        {"ownerReferences": [{"kind": "InferenceService", "controller": True}]} if owned else {}
    )
    deployment = {**LIVE, "metadata": {**LIVE["metadata"], **owners}}
    assert DEPLOYMENT.is_service(deployment) is not owned
    other = copy.deepcopy(deployment)
    other["spec"]["template"]["spec"]["containers"].pop()
    assert not DEPLOYMENT.is_service(other)


def test_a_deployment_is_its_own_workload():
    pod = {
        "metadata": {"name": "p", "labels": {"app": "qwen"}},
        "spec": {"containers": CONTAINERS},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    pods = [{**pod, "metadata": {"name": f"p{i}"}} for i in range(3)]
    assert assess_health(LIVE, LIVE, pods).phase is Phase.READY
    assert assess_health(LIVE, LIVE, pods[:2]).phase is Phase.STARTING


def test_a_rendered_candidate_comes_with_a_service_of_its_own():
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "qwen-http"},
        "spec": {
            "selector": {"app": "qwen"},
            "ports": [{"port": 80, "targetPort": 8000, "nodePort": 30000}],
        },
    }
    other = {**service, "spec": {"selector": {"app": "web"}}}
    text = "---\n".join(yaml.safe_dump(one) for one in (LIVE, service, other))
    deployment, made = yaml.safe_load_all(candidate_manifest(text, "qwen"))
    assert deployment["metadata"]["name"] == "qwen-candidate"
    assert "mpctl.dev/arm" not in deployment["metadata"]["annotations"]
    assert made["metadata"] == {"name": "qwen-http-candidate", "namespace": "chat"}
    assert made["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"]
    assert made["spec"]["ports"] == [{"port": 80, "targetPort": 8000}]
