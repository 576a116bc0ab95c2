"""A service that KServe scales is pinned and restored; one that admission changes is restored exactly."""

import json
import signal

import pytest
import yaml

from mpctl.platform.kubernetes.service.manifest_text import text_of

from .objects import CONTAINERS
from .unmeasured import Unmeasured

ROLLOUT = ("rollout", "--spec", "ngram")
# A field that a newer KServe would default on every write; it is no part of the pod template.
POLICY = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: @NAME@}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: @NAME@}}
    resourceRules:
      - apiGroups: [serving.kserve.io]
        apiVersions: [v1beta1]
        operations: [CREATE, UPDATE]
        resources: [inferenceservices]
  matchConditions:
    - {name: unset, expression: "!has(object.spec.predictor.timeout)"}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: '[JSONPatch{op: "add", path: "/spec/predictor/timeout", value: 60}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: @NAME@}
spec: {policyName: @NAME@}
"""


def live(namespace):
    return text_of(namespace.client.get("isvc", "demo"))


def limits(namespace):
    spec = namespace.client.get("hpa", "demo-predictor")["spec"]
    return spec["minReplicas"], spec["maxReplicas"]


def scaled_by_kserve():
    """The manifest with KServe's own autoscaler."""
    document = yaml.safe_load(CONTAINERS)
    document["metadata"]["annotations"] = {"serving.kserve.io/autoscalerClass": "hpa"}
    document["spec"]["predictor"] |= {"minReplicas": 1, "maxReplicas": 3}
    return document


def test_an_autoscaler_of_kserve_is_pinned_through_the_service_and_restored(
    cluster, namespace, mpctl
):
    namespace.deploy(scaled_by_kserve())
    namespace.client.wait(
        "KServe makes its autoscaler", lambda: namespace.client.find("hpa", "demo-predictor")
    )
    before, pods = live(namespace), {p["metadata"]["uid"] for p in namespace.pods()}
    assert limits(namespace) == (1, 3)
    # What KServe does with a pin on the autoscaler itself, at its next look at the service.
    namespace.client.patch("hpa", "demo-predictor", {"spec": {"maxReplicas": 1}})
    namespace.client.patch(
        "deployments", "demo-predictor", {"metadata": {"annotations": {"touched": "1"}}}
    )
    namespace.client.wait("KServe writes its limits back", lambda: limits(namespace) == (1, 3))

    run = Unmeasured(mpctl)
    run(*ROLLOUT, kill_after=4, code=-signal.SIGKILL)
    namespace.client.wait("it is held", lambda: limits(namespace) == (1, 1))
    assert {p["metadata"]["uid"] for p in namespace.pods()} == pods
    candidate = namespace.client.get("isvc", "demo-candidate")
    assert candidate["metadata"]["annotations"]["serving.kserve.io/autoscalerClass"] == "none"
    assert namespace.client.find("hpa", "demo-candidate-predictor") is None

    run(*ROLLOUT)  # the same command goes on: it reads the service without the pin
    namespace.client.wait("it may scale again", lambda: limits(namespace) == (1, 3))
    assert [op["ending"] for op in run.json("history")["operations"]] == ["promoted"]
    run("rollback", kill_after=3, code=-signal.SIGKILL)
    run("rollback")
    assert live(namespace) == before
    namespace.client.wait("it may scale again", lambda: limits(namespace) == (1, 3))


@pytest.fixture
def defaulting(cluster, namespace):
    """Call it, and from then on admission sets a field in every InferenceService that is written."""
    documents = POLICY.replace("@NAME@", namespace.name)

    def begin():
        cluster.client.apply(documents)
        namespace.client.wait(
            "it is in force", lambda: "timeout" in dry_run(namespace)["spec"]["predictor"]
        )

    yield begin
    for kind in ("MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"):
        cluster.client.delete(kind, namespace.name)


def dry_run(namespace):
    change = json.dumps({"spec": {"predictor": {"minReplicas": 1}}})
    words = (
        "patch",
        "isvc",
        "demo",
        "--type=merge",
        "-p",
        change,
        "--dry-run=server",
        "-o",
        "json",
    )
    return json.loads(namespace.kubectl(*words))


def test_a_field_added_by_admission_is_named_and_rollback_restores_the_rest_exactly(
    namespace, mpctl, defaulting
):
    namespace.deploy(CONTAINERS)
    run = Unmeasured(mpctl)
    run(*ROLLOUT)
    before = run("history", "--revision", "1", "-o", "yaml").stdout
    defaulting()
    done = run("rollback")
    assert "added by admission: spec.predictor.timeout" in done.stderr
    expected = yaml.safe_load(before)
    expected["spec"]["predictor"]["timeout"] = 60
    assert yaml.safe_load(live(namespace)) == expected
    assert "already was rolled back" in run("rollback").stderr
    assert run("history", "--revision", "3", "-o", "yaml").stdout == live(namespace)
