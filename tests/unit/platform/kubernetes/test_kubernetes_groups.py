"""LeaderWorkerSets as services: their leaders are the pods, a group is ready as a whole, nothing runs beside one."""

from __future__ import annotations

import copy

import pytest

from mpctl.errors import Refused
from mpctl.platform.kubernetes.autoscaler import find_scalers
from mpctl.platform.kubernetes.service.conditions import assess_health
from mpctl.platform.kubernetes.service.manifest_text import (
    candidate_of,
    object_to_write,
    text_of,
    transition_text,
)
from mpctl.platform.kubernetes.service.running_engine import edited, read_service
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.rollout.ports import Phase

ENGINE = {
    "name": "engine",
    "image": "vllm/vllm-openai:v0.33.0",
    "args": ["m", "--max-model-len=2048"],
}
WORKER = {"name": "worker", "image": "ray", "command": ["ray", "start"]}
NGRAM = {"method": "ngram", "num_speculative_tokens": 5}
LIVE = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {
        "name": "large",
        "namespace": "chat",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 1,
    },
    "spec": {
        "replicas": 2,
        "leaderWorkerTemplate": {
            "size": 2,
            "leaderTemplate": {"spec": {"containers": [ENGINE]}},
            "workerTemplate": {"spec": {"containers": [WORKER]}},
        },
    },
    "status": {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2},
}


def require_changeable(record, title, *, side_by_side, downtime):
    shape_of(record).require_changeable(
        record, title, side_by_side=side_by_side, downtime=downtime, pods=1
    )


def named(record):
    """Name and kind of the workload."""
    return shape_of(record).workload_name(record), shape_of(record).workload.plural


def changed(**status):
    return {**LIVE, "status": {**LIVE["status"], **status}}


def leaders():
    counted = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    template = {"spec": {"containers": [ENGINE]}}
    return {
        "metadata": {"generation": 1},
        "spec": {"replicas": 2, "template": template},
        "status": counted,
    }


def pod(number):
    ready = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": f"large-{number}"},
        "spec": {"containers": [ENGINE]},
        "status": {"conditions": ready},
    }


def test_its_pods_are_the_leaders_and_its_workload_is_their_stateful_set():
    assert (
        shape_of(LIVE).pod_selector(LIVE)
        == "leaderworkerset.sigs.k8s.io/name=large,leaderworkerset.sigs.k8s.io/worker-index=0"
    )
    assert named(LIVE) == ("large", "statefulsets")


def test_without_a_leader_template_the_workers_serve():
    alike = copy.deepcopy(LIVE)
    alike["spec"]["leaderWorkerTemplate"] = {
        "size": 2,
        "workerTemplate": {"spec": {"containers": [ENGINE]}},
    }
    assert read_service(alike).speculation() is None
    assert shape_of(alike).is_service(alike)
    owned = {**alike, "metadata": {**alike["metadata"], "ownerReferences": [{"controller": True}]}}
    assert not shape_of(owned).is_service(owned)


def test_a_setting_is_written_into_the_leader_alone_and_taken_back_exactly():
    text = edited(LIVE, None, NGRAM)
    written = object_to_write(text, {**LIVE, "spec": {**LIVE["spec"], "replicas": 5}})
    template = written["spec"]["leaderWorkerTemplate"]
    assert "--speculative-config" in str(template["leaderTemplate"])
    assert template["workerTemplate"] == LIVE["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    assert written["spec"]["replicas"] == 5  # of whoever scales it
    assert edited(written, None, None) == text_of(LIVE)


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ({}, Phase.READY),
        ({"readyReplicas": 1}, Phase.STARTING),
        ({"updatedReplicas": 1}, Phase.STARTING),
    ],
)
def test_it_is_ready_when_every_group_is_complete(status, phase):
    assert assess_health(changed(**status), leaders(), [pod(0), pod(1)]).phase is phase


def test_nothing_runs_beside_it_and_its_strategy_is_its_own():
    for act in (
        lambda: candidate_of(text_of(LIVE), "arm-1", namespace="chat"),
        lambda: require_changeable(LIVE, "service chat/large", side_by_side=True, downtime=True),
    ):
        with pytest.raises(
            Refused, match=r"service chat/large runs in groups of pods.* second group of nodes"
        ):
            act()
    assert transition_text(text_of(LIVE), 1, downtime=True) == text_of(LIVE)


def test_one_group_is_down_while_it_changes_and_several_are_not():
    require_changeable(LIVE, "service chat/large", side_by_side=False, downtime=False)
    single = {**LIVE, "spec": {**LIVE["spec"], "replicas": 1}}
    require_changeable(single, "service chat/large", side_by_side=False, downtime=True)
    with pytest.raises(Refused, match="one group of pods") as refused:
        require_changeable(single, "service chat/large", side_by_side=False, downtime=False)
    assert "--accept-downtime" in refused.value.hint


def test_an_llm_inference_service_on_several_nodes_is_the_leader_worker_set_that_kserve_makes():
    spec = {"replicas": 1, "template": {"containers": []}, "worker": {"containers": []}}
    metadata = {"name": "chat", "namespace": "ml"}
    served = {"apiVersion": "serving.kserve.io/v1alpha2", "kind": "LLMInferenceService"}
    served |= {"metadata": metadata, "spec": spec}
    assert named(served) == ("chat-kserve-mn", "statefulsets")
    assert (
        shape_of(served)
        .pod_selector(served)
        .endswith("component=llminferenceservice-workload-leader")
    )
    with pytest.raises(Refused, match="second group of nodes"):
        candidate_of(text_of(served), "arm-1", namespace="ml")
    on_one_node = {**served, "spec": {key: value for key, value in spec.items() if key != "worker"}}
    assert named(on_one_node) == ("chat-kserve", "deployments")


class Autoscaled:
    def list(self, kind, namespace):
        names = ("LeaderWorkerSet", "Deployment") if kind.plural.startswith("horizontal") else ()
        return [
            {
                "metadata": {"name": n},
                "spec": {"scaleTargetRef": {"kind": n, "name": "large"}},
                "kind": kind.name,
            }
            for n in names
        ]


def test_only_an_autoscaler_of_its_own_kind_is_its_autoscaler():
    (scaler,) = find_scalers(Autoscaled(), "chat", "large", "LeaderWorkerSet")
    assert scaler["metadata"]["name"] == "LeaderWorkerSet"


def test_a_restart_is_asked_for_on_the_pods_that_serve():
    alike = copy.deepcopy(LIVE)
    alike["spec"]["leaderWorkerTemplate"] = {
        "size": 2,
        "workerTemplate": {"spec": {"containers": [ENGINE]}},
    }
    for record, serving in ((copy.deepcopy(LIVE), "leaderTemplate"), (alike, "workerTemplate")):
        shape_of(record).annotate_pods(record, "restarted", "now")
        templates = record["spec"]["leaderWorkerTemplate"]
        assert templates[serving]["metadata"]["annotations"] == {"restarted": "now"}
        assert [name for name in templates if name != "size" and "metadata" in templates[name]] == [
            serving
        ]
