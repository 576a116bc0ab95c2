"""Who works on a service and what a rollout left, as the doctor sees them."""

import pytest
from doctor_cluster import check, facts, faults, healthy, lease, said, service

from mpctl.doctor import access, diagnose
from mpctl.platform.kubernetes.api import names
from mpctl.platform.kubernetes.service import manifest_text as text

FAULTS = {}
fault = faults(FAULTS)


@fault(("lease-stale", "warn"))
def stale_lease(o):
    o["leases"] = [lease(31)]


@fault(("lease", "note"))
def held_lease(o):
    o["leases"] = [lease(29)]


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_nothing_else(name):
    check(*FAULTS[name])


def test_candidates_that_are_still_there():
    objects = healthy()
    actual_service = service("qwen-candidate")
    actual_service["metadata"]["labels"]["mpctl.dev/service"] = "qwen"
    actual_service["metadata"]["annotations"]["mpctl.dev/arm"] = "arm-0123456789"
    objects["inferenceservices"].append(actual_service)
    assert said(diagnose(facts(objects))) == {("candidate-left", "note")}
    opened = {("chat", "qwen"): "op-1 (ngram)"}
    assert said(diagnose(facts(objects, unfinished=opened))) == {("unfinished", "warn")}
    objects["inferenceservices"] = [actual_service]
    assert ("candidate-orphan", "warn") in said(diagnose(facts(objects)))


def test_names_are_those_that_the_platform_writes():
    assert access.SERVICE == names.SERVICE_LABEL
    assert access.ARM == text.ARM_ANNOTATION
    assert access.WHO == "mpctl.dev/who"
