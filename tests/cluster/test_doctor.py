"""``mpctl doctor`` on a real cluster: findings from the objects that KServe, scheduler and HPA write."""

from datetime import UTC, datetime, timedelta

import pytest

from mpctl.doctor import diagnose
from mpctl.platform.kubernetes.api.api_client import Client
from mpctl.platform.kubernetes.api.connection import connect
from mpctl.platform.kubernetes.doctor_reader import read_cluster

from .listed import KNOWN
from .objects import CLAIM, CONTAINERS, MODEL, hpa
from .rig.nodes import L4


def findings(mpctl, *arguments, code=0):
    """id -> severities, and the items."""
    record = mpctl.json("doctor", *arguments, code=code)
    assert record["kind"] == "Diagnosis"
    by_id = {}
    for item in record["items"]:
        by_id.setdefault(item["id"], []).append(item)
    return by_id


def worst(diagnosis, name):
    return diagnosis[name][0]["severity"], diagnosis[name][0]["cause"]


@pytest.fixture
def at(cluster, namespace):
    """The doctor's findings at another time of day."""

    def look(later):
        client = Client(connect(str(cluster.kubeconfig)))
        diagnosis = diagnose(read_cluster(client, namespace.name, datetime.now(UTC) + later))
        client.close()
        return diagnosis

    return look


def test_doctor_reports_nothing_on_a_healthy_service(cluster, namespace, mpctl):
    namespace.deploy(MODEL)
    namespace.client.apply(hpa(most=4))
    cluster.proxy.clear()
    diagnosis = findings(mpctl)
    assert "fail" not in {item["severity"] for items in diagnosis.values() for item in items}
    for name in (
        "dra-api",
        "kserve-webhook",
        "dra-driver",
        "dra-slices",
        "rights",
    ):
        assert worst(diagnosis, name)[0] == "ok", name
    # KServe's controller runs outside of this cluster, so no Deployment names its version.
    assert worst(diagnosis, "kserve-version")[0] == "note"
    # Every request is one that `mpctl rbac` grants, and only reviews are created.
    assert cluster.proxy.rules() <= KNOWN
    assert {c.resource for c in cluster.proxy.calls if c.write} <= {
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
    }
    reviews = [c for c in cluster.proxy.calls if "review" in c.resource]
    assert len(cluster.proxy.calls) - len(reviews) <= 32
    text = mpctl("doctor").stdout
    assert "[ok]" not in text
    assert "ok    [dra-slices]" in mpctl("doctor", "-o", "wide").stdout
    assert mpctl("doctor", "-o", "name").stdout.split() == [
        line.split("[")[1].split("]")[0]
        for line in text.splitlines()
        if "[" in line.split(" ")[0] + line[:8]
    ]


def test_doctor_reports_an_unschedulable_surge_pod_of_a_ready_service(cluster, namespace, mpctl):
    namespace.deploy(CONTAINERS)
    namespace.client.apply(
        CONTAINERS.replace("name: demo", "name: other").replace("=demo", "=other")
    )
    namespace.ready("other")
    assert worst(findings(mpctl), "surge-deadlock")[0] == "warn"
    namespace.client.apply(CONTAINERS.replace("2048", "1024"))

    def stuck():
        pods = [p for p in namespace.pods() if p["status"].get("phase") == "Pending"]
        return [
            p
            for p in pods
            if any(c.get("reason") == "Unschedulable" for c in p["status"].get("conditions", ()))
        ]

    (waiting,) = namespace.client.wait("the surge pod waits", stuck)
    ready = namespace.client.get("isvc", "demo")["status"]["conditions"]
    assert next(c["status"] for c in ready if c["type"] == "Ready") == "True"
    diagnosis = findings(mpctl, code=9)
    severity, cause = worst(diagnosis, "ready-but-stuck")
    assert severity == "fail"
    assert waiting["metadata"]["name"] in cause
    assert "cannot allocate all claims" in cause
    assert "one-l4" in cause


def test_doctor_names_a_missing_claim_template(namespace, mpctl, at):
    namespace.client.apply(CONTAINERS)
    namespace.client.wait("its pod is there", namespace.pods)
    (finding,) = [f for f in at(timedelta(minutes=5)) if f.id in ("not-ready", "ready-but-stuck")]
    assert finding.severity == "fail"
    assert "ResourceClaimTemplate one-l4 not found" in finding.cause
    namespace.client.apply(CLAIM)


def test_doctor_reports_a_cpu_image_under_a_gpu_claim(namespace, mpctl):
    namespace.client.apply(CLAIM)
    namespace.client.apply(MODEL.replace("      runtimeVersion: v0.11.0\n", ""))
    namespace.client.wait(
        "the Deployment is made", lambda: namespace.client.get("deployments", "demo-predictor")
    )
    severity, cause = worst(findings(mpctl, code=9), "cpu-image")
    assert severity == "fail"
    assert "vllm-openai-cpu" in cause


def test_doctor_reports_a_container_without_a_readiness_probe(namespace, mpctl):
    without = CONTAINERS.replace(
        "        readinessProbe:\n          httpGet: {path: /health, port: 8080}\n", ""
    )
    namespace.client.apply(CLAIM)
    namespace.client.apply(without)
    namespace.client.wait(
        "the Deployment is made", lambda: namespace.client.get("deployments", "demo-predictor")
    )
    assert worst(findings(mpctl, code=None), "probe-tcp")[0] == "warn"


def test_doctor_names_a_node_that_publishes_no_gpu(cluster, namespace, at):
    name = cluster.run(cluster.nodes.add(L4))
    try:
        cluster.client.patch(
            "nodes", name, {"metadata": {"labels": {"nvidia.com/gpu.present": "true"}}}
        )
        cluster.client.delete("resourceslices", f"{name}-gpu.nvidia.com")
        young = {f.subject: f for f in at(timedelta()) if f.id == "dra-slices"}[f"node {name}"]
        assert (young.severity, young.source) == ("note", "kubernetes/autoscaler#7530")
        old = {f.subject: f for f in at(timedelta(hours=1)) if f.id == "dra-slices"}[f"node {name}"]
        assert old.severity == "fail"
        assert "ResourceSlice" in old.cause
    finally:
        cluster.run(cluster.nodes.remove(name))


def test_doctor_names_a_lease_that_is_not_renewed(namespace, mpctl, at):
    namespace.client.create(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "mpctl-demo",
                "labels": {"app.kubernetes.io/managed-by": "mpctl", "mpctl.dev/service": "demo"},
                "annotations": {"mpctl.dev/who": "ann@laptop"},
            },
            "spec": {
                "holderIdentity": "ann@laptop/0123",
                "leaseDurationSeconds": 20,
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
    )
    assert [f.severity for f in at(timedelta(seconds=-1)) if f.id == "lease"] == ["note"]
    (stale,) = [f for f in at(timedelta(minutes=10)) if f.id == "lease-stale"]
    assert stale.cause.startswith("ann@laptop locked service demo")


def test_doctor_without_rights_reports_only_what_it_may_not_read(cluster, namespace, mpctl):
    diagnosis = findings(mpctl.as_user(cluster.user("nobody")))
    assert "inferenceservices" in diagnosis["unread"][0]["subject"]
    assert {item["subject"] for item in diagnosis["rights"]} >= {
        "mpctl status",
        "mpctl rollout",
        "mpctl rollback",
    }
    assert {item["severity"] for items in diagnosis.values() for item in items} <= {
        "ok",
        "note",
        "warn",
    }


def test_doctor_without_a_cluster_fails(mpctl, tmp_path):
    done = mpctl("doctor", "--context", "nowhere", code=2)
    assert "context nowhere not found" in done.stderr
