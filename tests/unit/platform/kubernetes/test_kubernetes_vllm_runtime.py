"""VLLMRuntimes as services: whose pods they are, how a change reaches them, and what is refused."""

from __future__ import annotations

import copy

import pytest

from mpctl.errors import Refused
from mpctl.platform.kubernetes.service.conditions import assess_health
from mpctl.platform.kubernetes.service.manifest_text import candidate_of, object_to_write, text_of
from mpctl.platform.kubernetes.service.running_engine import edited, speculation_of
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.rollout.ports import Phase

NGRAM = {"method": "ngram", "num_speculative_tokens": 5}
LIVE = {
    "apiVersion": "production-stack.vllm.ai/v1alpha1",
    "kind": "VLLMRuntime",
    "metadata": {
        "name": "chat",
        "namespace": "ml",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"model": "qwen"},
    },
    "spec": {
        "model": {"modelURL": "Qwen/Qwen3-8B"},
        "vllmConfig": {"extraArgs": ["--max-num-seqs=8"], "port": 8000},
        "deploymentConfig": {
            "replicas": 1,
            "image": {"registry": "docker.io", "name": "vllm/vllm-openai:v0.32.0"},
        },
    },
}
MADE = ["Qwen/Qwen3-8B", "--port", "8000", "--max-num-seqs=8"]


def deployment(args, replicas=1):
    counted = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    template = {"spec": {"containers": [{"name": "vllm", "args": args}]}}
    return {
        "metadata": {"generation": 1},
        "spec": {"replicas": replicas, "template": template},
        "status": counted,
    }


def pod(args):
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"args": args}]},
        "status": {"conditions": ready},
    }


def changed(**part):
    record = copy.deepcopy(LIVE)
    for key, values in part.items():
        record["spec"].setdefault(key, {}).update(values)
    return record


class Cluster:
    """Keeps the Deployment that the operator made."""

    def __init__(self, args, replicas=1):
        self.deployment, self.written = deployment(args, replicas), []

    def get(self, kind, name, namespace):
        assert (kind.name, name, namespace) == ("Deployment", "chat", "ml")
        return self.deployment

    def replace(self, kind, record):
        self.written.append(record["spec"]["replicas"])


def test_its_pods_carry_its_labels_and_its_candidate_has_none_of_them():
    assert shape_of(LIVE).pod_selector(LIVE) == "app=chat,model=qwen"
    candidate = candidate_of(text_of(LIVE), "arm-1", namespace="ml")
    assert candidate["metadata"]["labels"] == {"mpctl.dev/service": "chat"}
    assert candidate["spec"]["deploymentConfig"]["replicas"] == 1


def test_a_setting_goes_in_and_out_exactly_and_who_scales_it_keeps_its_number():
    text = edited(LIVE, None, NGRAM)
    written = object_to_write(text, changed(deploymentConfig={"replicas": 3}))
    assert speculation_of(written, None) == NGRAM
    assert written["spec"]["deploymentConfig"]["replicas"] == 3
    assert edited(written, None, None) == text_of(LIVE)


@pytest.mark.parametrize(
    ("args", "phase"),
    [
        (MADE, Phase.READY),
        ([*MADE, "--chat-template", "/etc/chat-template.json"], Phase.READY),
        ([*MADE, "--kv-transfer-config", "{}"], Phase.READY),
        (
            ["Qwen/Qwen3-8B", '--speculative-config={"method": "ngram"}', "--max-num-seqs=8"],
            Phase.STARTING,
        ),
        (MADE[:-1], Phase.STARTING),
    ],
)
def test_it_is_ready_when_the_deployment_has_its_arguments(args, phase):
    assert assess_health(LIVE, deployment(args), [pod(args)]).phase is phase


@pytest.mark.parametrize(
    ("record", "args", "replicas", "written"),
    [
        (LIVE, MADE, 1, []),
        (LIVE, MADE[:-1], 1, [2]),
        (LIVE, MADE[:-1], 2, []),  # the operator has not seen it yet
        (changed(deploymentConfig={"podAnnotations": {"restarted": "now"}}), MADE, 1, [2]),
    ],
)
def test_a_change_that_the_operator_does_not_see_asks_it_for_a_pod_more(
    record, args, replicas, written
):
    cluster = Cluster(args, replicas)
    shape_of(record).deliver(cluster, record, "ml")
    assert cluster.written == written


@pytest.mark.parametrize(
    ("part", "downtime", "reason"),
    [
        ({"autoscalingConfig": {"enabled": True}}, False, "ScaledObject anew"),
        ({"deploymentConfig": {"deploymentStrategy": "Recreate"}}, False, "stops every pod"),
        (
            {"deploymentConfig": {"deploymentStrategy": "RollingUpdate"}},
            True,
            "starts a new pod before",
        ),
    ],
)
def test_a_change_that_cannot_go_well_is_refused(part, downtime, reason):
    record = changed(**part)
    with pytest.raises(Refused, match=reason):
        shape_of(record).require_changeable(
            record, "service ml/chat", side_by_side=False, downtime=downtime, pods=1
        )
