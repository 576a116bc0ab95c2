"""LLMInferenceServices on a cluster: KServe's merge is followed; what KServe cannot do is refused with a reason."""

from __future__ import annotations

import copy

import pytest

from mpctl.errors import Refused
from mpctl.manifest import speculation_of
from mpctl.manifest.engine.engine_port import port_of
from mpctl.platform.kubernetes.api.kinds import LLM_INFERENCE_SERVICE
from mpctl.platform.kubernetes.autoscaler import KServePin, autoscaler_record
from mpctl.platform.kubernetes.service.conditions import assess_health
from mpctl.platform.kubernetes.service.container import argv_of, engine_container
from mpctl.platform.kubernetes.service.kserve import LLM
from mpctl.platform.kubernetes.service.manifest_text import (
    candidate_of,
    object_of,
    text_of,
    transition_text,
)
from mpctl.platform.kubernetes.service.preconditions import require_http
from mpctl.platform.kubernetes.service.reader import ServiceReader
from mpctl.platform.kubernetes.service.running_engine import edited, read_service
from mpctl.rollout.ports import Phase

NGRAM = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
VARIABLE = "VLLM_ADDITIONAL_ARGS"
API = "serving.kserve.io/v1alpha2"
START = 'eval "exec vllm serve /mnt/models --served-model-name {{ .Spec.Model.Name }} ${VLLM_ADDITIONAL_ARGS} $@"'
REFS = [
    {"name": "kserve-config-llm-template", "namespace": "kserve", "source": "Preset"},
    {"name": "kserve-config-llm-router-route", "namespace": "kserve", "source": "Preset"},
    {"name": "ours", "namespace": "chat", "source": "UserRef"},
]
LIVE = {
    "apiVersion": API,
    "kind": "LLMInferenceService",
    "metadata": {
        "name": "qwen",
        "namespace": "chat",
        "uid": "u",
        "resourceVersion": "7",
        "labels": {"team": "chat"},
    },
    "spec": {
        "model": {"uri": "hf://org/qwen", "name": "qwen"},
        "baseRefs": [{"name": "ours"}],
        "replicas": 2,
        "router": {"route": {}, "gateway": {}},
        "template": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]},
    },
    "status": {"appliedConfigs": REFS, "url": "http://gateway/chat/qwen"},
}


def config(name, namespace, container, generation=1):
    metadata = {"name": name, "namespace": namespace, "generation": generation}
    spec = {"template": {"containers": [{"name": "main", **container}]}}
    return {
        "apiVersion": API,
        "kind": "LLMInferenceServiceConfig",
        "metadata": metadata,
        "spec": spec,
    }


PRESET = config(
    "kserve-config-llm-template",
    "kserve",
    {"command": ["/bin/bash", "-c", START, "--"], "image": "ghcr.io/llm-d/llm-d-cuda:v0.8.0"},
)
OURS = config("ours", "chat", {"env": [{"name": "HF_HOME", "value": "/models"}]}, generation=4)
CONFIGS = {"kind": "List", "items": [PRESET, OURS]}


class Reads:
    """A client that knows the two configs."""

    def get(self, kind, name, namespace):
        fields = {("kserve", PRESET["metadata"]["name"]): PRESET, ("chat", "ours"): OURS}
        return fields[namespace, name]


def with_setting(value):
    changed = copy.deepcopy(LIVE)
    changed["spec"]["template"]["containers"][0]["env"] = [{"name": VARIABLE, "value": value}]
    return changed


def deployed(env=(), args=()):
    """What KServe makes: the preset's start with the service's variables and arguments."""
    container = {"name": "main", "command": ["/bin/bash", "-c", START, "--"], "args": list(args)}
    container["env"] = [
        {"name": "HF_HOME", "value": "/models"},
        *({"name": n, "value": v} for n, v in env),
    ]
    container["ports"] = [{"containerPort": 8000}]
    status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    spec = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {"metadata": {"generation": 1}, "spec": spec, "status": status}


def pod(deployment):
    return {
        "metadata": {"name": "p"},
        "spec": deployment["spec"]["template"]["spec"],
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def phase(record, deployment, configs=CONFIGS):
    return assess_health(record, deployment, [pod(deployment)], runtime=configs).phase


def test_the_configs_that_shape_the_pods_are_read_and_named_with_their_generations():
    assert LLM.read_layers(Reads(), LIVE, "chat") == CONFIGS
    assert LLM.read_layers(Reads(), {**LIVE, "status": {}}, "chat") is None
    assert LLM.config_texts(LIVE, CONFIGS) == (
        "Preset kserve/kserve-config-llm-template, generation 1",
        "Preset kserve/kserve-config-llm-router-route",
        "UserRef chat/ours, generation 4",
    )


def test_a_setting_goes_into_the_services_variable_and_out_again_exactly():
    text = edited(LIVE, CONFIGS, NGRAM)
    (container,) = object_of(text)["spec"]["template"]["containers"]
    (variable,) = container["env"]
    assert variable["name"] == VARIABLE
    assert "{" not in variable["value"]
    assert read_service(object_of(text), CONFIGS).speculation() == NGRAM
    assert edited(object_of(text), CONFIGS, None) == text_of(LIVE)


def test_a_deployment_of_the_arm_before_is_no_ready_arm():
    changed = with_setting("--speculative-config.method=ngram")
    plain, speculating = deployed(), deployed([(VARIABLE, "--speculative-config.method=ngram")])
    assert phase(LIVE, plain) is Phase.READY
    assert phase(changed, speculating) is Phase.READY
    assert phase(changed, plain) is Phase.STARTING
    assert phase(LIVE, speculating) is Phase.STARTING


def test_a_variable_that_only_a_config_sets_is_expected_and_unknown_without_the_config():
    base = config("ours", "chat", {"env": [{"name": VARIABLE, "value": "--max-model-len 2048"}]})
    configs = {"kind": "List", "items": [PRESET, base]}
    served = deployed([(VARIABLE, "--max-model-len 2048")])
    assert phase(LIVE, served, configs) is Phase.READY
    assert phase(LIVE, deployed(), configs) is Phase.STARTING
    assert phase(LIVE, served, None) is Phase.READY


def test_what_kserve_appends_for_tracing_is_no_difference():
    record = copy.deepcopy(LIVE)
    record["spec"]["template"]["containers"][0]["args"] = ["--max-model-len=2048"]
    traced = deployed(
        args=[
            "--max-model-len=2048",
            "--otlp-traces-endpoint",
            "http://t",
            "--collect-detailed-traces",
        ]
    )
    assert phase(record, traced) is Phase.READY
    assert phase(record, deployed(args=["--max-model-len=4096"])) is Phase.STARTING


def test_the_engines_own_arguments_are_read_through_the_presets_shell():
    served = pod(deployed([(VARIABLE, "--speculative-config.method=ngram")], args=["--seed '1 2'"]))
    (container,) = served["spec"]["containers"]
    assert argv_of(container) == (
        "vllm",
        "serve",
        "--speculative-config.method=ngram",
        "--seed",
        "1 2",
    )
    assert speculation_of(argv_of(container)) == {"method": "ngram"}


def test_speculation_of_a_config_is_known():
    base = config("ours", "chat", {"args": ["--speculative-config.method=ngram"]})
    assert LLM.expected(LIVE, {"kind": "List", "items": [PRESET, base]}).speculates
    assert not LLM.expected(LIVE, CONFIGS).speculates


def test_names_are_those_that_kserve_gives():
    assert LLM.workload_name(LIVE) == "qwen-kserve"
    assert (
        LLM.pod_selector(LIVE)
        == "app.kubernetes.io/name=qwen,app.kubernetes.io/component=llminferenceservice-workload"
    )
    (container,) = deployed()["spec"]["template"]["spec"]["containers"]
    assert engine_container([{"name": "log"}, container])["name"] == "main"
    assert port_of(container) == 8000


def test_a_candidate_has_the_same_model_name_one_replica_and_no_route():
    scaled = copy.deepcopy(LIVE)
    del scaled["spec"]["replicas"], scaled["spec"]["model"]["name"]
    scaled["spec"]["scaling"] = {"minReplicas": 1, "maxReplicas": 3}
    candidate = candidate_of(text_of(scaled), "arm-1", namespace="chat")
    assert (candidate["kind"], candidate["metadata"]["name"]) == (
        "LLMInferenceService",
        "qwen-candidate",
    )
    assert candidate["spec"]["model"]["name"] == "qwen"
    assert candidate["spec"]["replicas"] == 1
    assert candidate["spec"].keys() & {"router", "scaling"} == set()
    assert candidate["spec"]["baseRefs"] == [{"name": "ours"}]
    assert transition_text(text_of(LIVE), 2, downtime=True) == text_of(LIVE)


@pytest.mark.parametrize(
    ("more", "asked", "reason"),
    [
        (
            {"prefill": {"replicas": 1}},
            {"side_by_side": True, "downtime": False},
            "prefill pods of its own",
        ),
        ({}, {"side_by_side": False, "downtime": True}, "no update strategy"),
    ],
)
def test_what_kserve_cannot_do_is_refused_with_the_reason(more, asked, reason):
    with pytest.raises(Refused, match=reason):
        LLM.require_changeable(
            {**LIVE, "spec": {**LIVE["spec"], **more}}, "service chat/qwen", pods=1, **asked
        )


def test_a_candidate_of_a_routing_groups_member_is_no_member():
    member = copy.deepcopy(LIVE)
    member["metadata"]["labels"]["serving.kserve.io/routing-group"] = "chat"
    member["spec"]["router"]["route"] = {"group": "chat", "weight": 9}
    candidate = candidate_of(text_of(member), "arm-1", namespace="chat")
    assert "serving.kserve.io/routing-group" not in candidate["metadata"]["labels"]
    assert candidate["metadata"]["labels"]["team"] == "chat"
    assert "router" not in candidate["spec"]


def test_a_load_job_does_not_measure_an_engine_behind_tls():
    served = deployed()
    (container,) = served["spec"]["template"]["spec"]["containers"]
    require_http(served, "service chat/qwen")
    container["readinessProbe"] = {"httpGet": {"path": "/health", "port": 8000, "scheme": "HTTPS"}}
    with pytest.raises(Refused, match="answers over HTTPS"):
        require_http(served, "service chat/qwen")


def test_the_decode_pods_of_a_service_with_prefill_change_in_place():
    split = {**LIVE, "spec": {**LIVE["spec"], "prefill": {"replicas": 1}}}
    LLM.require_changeable(split, "service chat/qwen", side_by_side=False, downtime=False, pods=1)


EAGLE3 = {"method": "eagle3", "model": "/mnt/d", "num_speculative_tokens": 3}
SPLIT = {**LIVE, "spec": {**LIVE["spec"], "prefill": {"replicas": 1}}}


class Cluster:
    """A client of the Deployments and pods of a service's two parts."""

    def __init__(self, decode, prefill):
        self.reads = 0
        self.deployments = {"qwen-kserve": decode, "qwen-kserve-prefill": prefill}
        self.pods = {
            "workload": [pod(decode)],
            "workload-prefill": [] if prefill is None else [pod(prefill)],
        }

    def get(self, kind, name, namespace):
        return (
            CONFIGS["items"][0]
            if kind.name == "LLMInferenceServiceConfig"
            else self.deployments[name]
        )

    def list(self, kind, namespace, *, labels=None, fields=None):
        return self.pods.get((labels or "").rpartition("llminferenceservice-")[2], [])


def health_of(decode, prefill, record):
    reader = ServiceReader(Cluster(decode, prefill), "chat", LLM_INFERENCE_SERVICE)
    return reader.health(lambda: reader.workload(record))[1]


def test_a_change_of_both_ends_is_in_the_record_and_is_undone_exactly():
    text = edited(SPLIT, CONFIGS, EAGLE3)
    spec = object_of(text)["spec"]
    for part in (spec, spec["prefill"]):
        (container,) = part["template"]["containers"]
        assert "--speculative-config.method=eagle3" in container["env"][0]["value"]
    assert edited(object_of(text), CONFIGS, None) == text_of(SPLIT)


def test_a_service_is_ready_when_its_prefill_pods_run_the_setting_too():
    record = object_of(edited(SPLIT, CONFIGS, EAGLE3)) | {"status": LIVE["status"]}
    value = record["spec"]["template"]["containers"][0]["env"][0]["value"]
    new, old = deployed([(VARIABLE, value)]), deployed()
    assert health_of(new, new, record).phase is Phase.READY
    for prefill, message in ((old, "has not updated"), (None, "has not made the Deployment")):
        health = health_of(new, prefill, record)
        assert (health.phase, health.message[:9]) == (Phase.STARTING, "prefill: ")
        assert message in health.message
    off = {**old, "spec": {**old["spec"], "replicas": 0}}
    assert health_of(new, off, record).phase is Phase.READY


def test_prefill_pods_that_crash_fail_the_change():
    record = object_of(edited(SPLIT, CONFIGS, EAGLE3)) | {"status": LIVE["status"]}
    new = deployed([(VARIABLE, record["spec"]["template"]["containers"][0]["env"][0]["value"])])
    cluster = Cluster(new, new)
    crash = pod(new)
    waiting = {
        "name": "main",
        "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }
    crash["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [waiting],
    }
    cluster.pods["workload-prefill"] = [crash]
    reader = ServiceReader(cluster, "chat", LLM_INFERENCE_SERVICE)
    health = reader.health(lambda: reader.workload(record))[1]
    assert health.phase is Phase.FAILED
    assert "prefill: pod p: CrashLoopBackOff" in health.message


def test_groups_that_fill_prompts_are_found_by_their_leaders():
    shape = LLM.prefill_of({**SPLIT, "spec": {**SPLIT["spec"], "prefill": {"worker": {}}}})
    assert shape.workload_name(SPLIT) == "qwen-kserve-mn-prefill"
    assert shape.pod_selector(SPLIT).endswith("llminferenceservice-workload-leader-prefill")


def test_kserves_autoscaler_is_pinned_through_spec_scaling():
    live = copy.deepcopy(LIVE)
    live["spec"]["scaling"] = {"minReplicas": 1, "maxReplicas": 3, "wva": {"hpa": {}}}
    owner = {"apiVersion": API, "kind": "LLMInferenceService", "uid": "u"}
    hpa = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "qwen-kserve-hpa", "uid": "h", "ownerReferences": [owner]},
        "spec": {"minReplicas": 1, "maxReplicas": 3},
    }
    record = autoscaler_record([hpa], 2, live)
    (item,) = record["items"]
    assert (item["kind"], item["name"], item["limits"]) == (
        "LLMInferenceService",
        "qwen",
        {"minReplicas": 1, "maxReplicas": 3},
    )
    pin = KServePin(lambda: record)
    pinned = pin.with_pin(live)
    assert pinned["spec"]["scaling"] == {"minReplicas": 2, "maxReplicas": 2, "wva": {"hpa": {}}}
    assert pin.without_pin(pinned) == live
