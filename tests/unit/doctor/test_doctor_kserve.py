"""KServe's controller, webhooks, configuration and runtime, as the doctor sees them."""

import pytest
from doctor_cluster import check, facts, faults, healthy, the, webhook

from mpctl.doctor import diagnose

FAULTS = {}
fault = faults(FAULTS)


@fault(("kserve-controller", "fail"))
def controller_down(o):
    the(o, "kserve-deployments")["status"] = {}


@fault(("kserve-version", "warn"))
def old_kserve(o):
    the(o, "kserve-deployments")["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "kserve/kserve-controller:v0.15.2"
    )


@fault(("kserve-config", "fail"))
def broken_config(o):
    the(o, "kserve-configmaps")["data"]["deploy"] = '{"defaultDeploymentMode": }'


@fault(("kserve-webhook", "fail"))
def webhook_without_bundle(o):
    o["validatingwebhookconfigurations"] = [webhook("v", bundle="")]


@fault(("kserve-webhook", "fail"))
def webhook_without_endpoint(o):
    the(o, "kserve-endpointslices")["endpoints"] = [{"conditions": {"ready": False}}]


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_found_and_nothing_else(name):
    check(*FAULTS[name])


@pytest.mark.parametrize(
    ("fields", "severity", "word"),
    [
        (frozenset({"predictor.storageUris", "canary"}), "ok", "0.20"),
        (frozenset({"predictor.storageUris"}), "ok", "0.16"),
        (frozenset(), "warn", "older than 0.16"),
        (None, "note", "version is unknown"),
    ],
)
def test_kserve_version_from_the_schema_where_no_image_tells(fields, severity, word):
    objects = healthy()
    the(objects, "kserve-deployments")["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "mirror/kserve@sha256:0123"
    )
    finding = next(
        f for f in diagnose(facts(objects, kserve_fields=fields)) if f.id == "kserve-version"
    )
    assert finding.severity == severity
    assert word in finding.cause
