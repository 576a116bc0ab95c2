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
    ("image", "severity", "word"),
    [
        ("kserve/kserve-controller:v0.20.0", "ok", "0.20"),
        ("kserve/kserve-controller:v0.15.2", "warn", "older than 0.16"),
        ("mirror/kserve@sha256:0123", "note", "version is unknown"),
    ],
)
def test_kserves_version_is_that_of_its_controllers_image(image, severity, word):
    objects = healthy()
    controller = the(objects, "kserve-deployments")
    containers = controller["spec"]["template"]["spec"]["containers"]
    containers[0] |= {"name": "manager", "image": image}
    containers.insert(0, {"name": "kube-rbac-proxy", "image": "brancz/kube-rbac-proxy:v0.13.1"})
    finding = next(f for f in diagnose(facts(objects)) if f.id == "kserve-version")
    assert finding.severity == severity
    assert word in finding.cause
