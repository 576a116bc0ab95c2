"""Autoscalers and the metric they scale on, as the doctor sees them."""

import pytest
from doctor_cluster import check, facts, faults, healthy, hpa, lease, meta, pod, said, the

from mpctl.doctor import diagnose

FAULTS = {}
fault = faults(FAULTS)


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


@fault(("hpa-inactive", "note"), ("autoscaler-pinned", "note"))
def hpa_that_kserve_makes_for_every_service(o):
    scaler = the(o, "horizontalpodautoscalers")
    scaler["metadata"]["ownerReferences"] = [{"kind": "InferenceService", "name": "qwen"}]
    scaler["spec"] |= {"minReplicas": 1, "maxReplicas": 1}
    scaler["status"]["conditions"] = [
        {"type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": "no metrics"}
    ]


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


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_nothing_else(name):
    check(*FAULTS[name])


def test_what_is_pinned_by_a_rollout_is_a_fault_once_nobody_carries_it_on():
    objects = healthy()
    pinned_by_hand(objects)
    opened = {("chat", "qwen"): "op-1 (ngram)"}
    found = said(diagnose(facts(objects, unfinished=opened)))
    assert found == {("autoscaler-pinned", "fail"), ("unfinished", "warn")}
    objects["leases"] = [lease(5)]
    assert said(diagnose(facts(objects, unfinished=opened))) == {("lease", "note")}


def test_a_metric_that_some_pods_lack():
    objects = healthy()
    objects["pods"].append(pod("qwen-predictor-2"))
    assert said(diagnose(facts(objects))) == {("queue-wait-partial", "warn")}
