"""Autoscalers and the metric they scale on, as the doctor sees them."""

import pytest
from doctor_cluster import check, facts, faults, healthy, hpa, lease, said, the

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


def pin(o):
    the(o, "horizontalpodautoscalers")["spec"]["maxReplicas"] = 1


@fault(("autoscaler-minimum", "warn"))
def down_to_zero(o):
    the(o, "horizontalpodautoscalers")["spec"]["minReplicas"] = 0


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_nothing_else(name):
    check(*FAULTS[name])


def test_what_is_pinned_by_a_rollout_is_a_fault_once_nobody_carries_it_on():
    objects = healthy()
    pin(objects)
    opened = {("chat", "qwen"): "op-1 (ngram)"}
    found = said(diagnose(facts(objects, unfinished=opened)))
    assert found == {("autoscaler-pinned", "fail"), ("unfinished", "warn")}
    objects["leases"] = [lease(5)]
    assert said(diagnose(facts(objects, unfinished=opened))) == {("lease", "note")}
