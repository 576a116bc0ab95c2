"""Behaviour of KServe 0.20 that a rollout tool must allow for, each shown with the real controller.

When one of these fails after a newer KServe was pinned, the trap is gone or changed, and mpctl's answer to it is due
for another look.
"""

import copy
import time

import pytest
import yaml

from tests.cluster.objects import CLAIM, CONTAINERS, CPU, MODEL, conditions, hpa, is_true
from tests.cluster.rig.api import ApiError

ONE_AT_A_TIME = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}


def changed(text, *, args=None, annotations=None, labels=None, predictor=None):
    """A manifest with another argument, annotations, labels, or fields of the predictor."""
    document = yaml.safe_load(text)
    spec = document["spec"]["predictor"]
    if args:
        holder = spec["model"] if "model" in spec else spec["containers"][0]
        holder["args"] = [*holder.get("args", []), *args]
    document["metadata"].setdefault("annotations", {}).update(annotations or {})
    document["metadata"].setdefault("labels", {}).update(labels or {})
    spec.update(predictor or {})
    return document


def uids(namespace):
    return {p["metadata"]["uid"] for p in namespace.pods()}


def deployment(namespace, name="demo-predictor"):
    return namespace.client.get("deployments", name)


def template(namespace):
    return deployment(namespace)["spec"]["template"]


@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_an_annotation_or_label_on_the_service_restarts_its_pods(namespace, field):
    namespace.deploy(MODEL)
    before = uids(namespace)
    namespace.client.patch("isvc", "demo", {"metadata": {field: {"mpctl.dev/note": "x"}}})
    namespace.client.wait(
        "the template has it", lambda: template(namespace)["metadata"][field].get("mpctl.dev/note")
    )
    namespace.client.wait(
        "new pods", lambda: namespace.settled("demo-predictor") and uids(namespace) - before
    )
    assert not uids(namespace) & before


def test_an_autoscaler_named_like_the_predictor_is_deleted_and_any_other_survives(namespace):
    namespace.deploy(MODEL)
    for name in ("demo-predictor", "demo-scaling"):
        namespace.client.apply(hpa(name, most=1, metric=CPU))

    def reconciled_away():
        # Adopted at one reconcile, deleted at the next: let there be some.
        namespace.client.patch(
            "isvc", "demo", {"metadata": {"annotations": {"touched": str(time.monotonic_ns())}}}
        )
        time.sleep(0.5)
        return namespace.client.find("hpa", "demo-predictor") is None

    namespace.client.wait("the autoscaler is deleted", reconciled_away)
    assert namespace.client.get("hpa", "demo-scaling")["metadata"].get("ownerReferences") is None


def test_observed_generation_is_the_deployments(namespace):
    namespace.deploy(CONTAINERS)
    # Scaling raises the Deployment's generation, and the service's stays.
    for replicas in (2, 1, 2, 1):
        namespace.client.patch("deployments", "demo-predictor", {"spec": {"replicas": replicas}})
    namespace.client.wait(
        "the service reports the Deployment's generation",
        lambda: (
            namespace.client.get("isvc", "demo")["status"]["observedGeneration"]
            == deployment(namespace)["metadata"]["generation"]
        ),
    )
    value = namespace.client.get("isvc", "demo")
    assert value["status"]["observedGeneration"] > value["metadata"]["generation"]


def test_a_claim_alone_makes_the_runtime_take_the_cpu_image(namespace):
    plain = yaml.safe_load(MODEL)
    del plain["spec"]["predictor"]["model"]["runtimeVersion"]
    namespace.deploy(plain)
    assert template(namespace)["spec"]["containers"][0]["image"] == "vllm/vllm-openai-cpu:v0.11.0"
    namespace.client.apply(MODEL)
    namespace.client.wait(
        "the runtime takes the image of that version",
        lambda: template(namespace)["spec"]["containers"][0]["image"] == "vllm/vllm-openai:v0.11.0",
    )


def test_a_surge_pod_that_can_never_schedule_leaves_the_service_ready(cluster, namespace):
    namespace.deploy(CONTAINERS)
    every = len(cluster.nodes.numbers)
    namespace.client.patch("deployments", "demo-predictor", {"spec": {"replicas": every}})
    namespace.client.wait(
        "no GPU is left",
        lambda: namespace.settled("demo-predictor") and len(namespace.pods()) == every,
    )
    # With the rolling update's default of 25 % the new pod comes first, and there is no GPU for it.
    namespace.client.apply(changed(CONTAINERS, args=["--seed=1"]))

    def stuck():
        for pod in namespace.pods():
            value = conditions(pod).get("PodScheduled", {})
            if "cannot allocate all claims" in value.get("message", ""):
                return pod
        return None

    namespace.client.wait("the surge pod is unschedulable", stuck)
    service = namespace.client.get("isvc", "demo")
    assert is_true(service, "Ready") and is_true(service, "PredictorReady")
    # Taken from either condition of the Deployment, whichever KServe saw last.
    reasons = ("MinimumReplicasAvailable", "NewReplicaSetAvailable")
    assert conditions(service)["PredictorReady"]["reason"] in reasons
    assert not namespace.settled("demo-predictor")


def test_a_crash_looping_new_pod_leaves_the_service_ready(cluster, namespace):
    namespace.deploy(changed(CONTAINERS, predictor={"deploymentStrategy": ONE_AT_A_TIME}))
    cluster.pods.rule(lambda pod: {"crash": 1})
    namespace.client.apply(
        changed(CONTAINERS, args=["--seed=1"], predictor={"deploymentStrategy": ONE_AT_A_TIME})
    )

    def crashed():
        states = [
            s for p in namespace.pods() for s in p.get("status", {}).get("containerStatuses", ())
        ]
        return len(states) == 1 and states[0]["restartCount"] >= 2

    namespace.client.wait("the new pod crash-loops", crashed)
    service = namespace.client.get("isvc", "demo")
    assert not deployment(namespace)["status"].get("availableReplicas")  # nothing serves
    assert is_true(service, "Ready") and is_true(service, "PredictorReady")
    assert service["status"]["modelStatus"]["transitionStatus"] == "UpToDate"


def test_only_an_event_reports_a_missing_claim_template(namespace):
    namespace.client.apply(MODEL)
    failed = namespace.client.wait(
        "the event",
        lambda: [
            e
            for e in namespace.client.list("events")
            if e["reason"] == "FailedResourceClaimCreation"
        ],
    )
    assert "one-l4" in failed[0]["message"]
    (pod,) = namespace.pods()
    assert pod["status"]["phase"] == "Pending"
    assert "PodScheduled" not in conditions(pod)


def test_class_none_resets_replicas_and_class_external_leaves_them(namespace):
    namespace.deploy(MODEL)
    namespace.client.patch("deployments", "demo-predictor", {"spec": {"replicas": 2}})
    namespace.client.wait(
        "two pods", lambda: deployment(namespace)["status"].get("availableReplicas") == 2
    )
    namespace.client.patch("isvc", "demo", {"metadata": {"annotations": {"touched": "1"}}})
    namespace.client.wait(
        "reconciled", lambda: template(namespace)["metadata"]["annotations"].get("touched")
    )
    assert deployment(namespace)["spec"]["replicas"] == 2
    namespace.client.patch(
        "isvc", "demo", {"metadata": {"annotations": {"serving.kserve.io/autoscalerClass": "none"}}}
    )
    namespace.client.wait(
        "back to minReplicas", lambda: deployment(namespace)["spec"]["replicas"] == 1
    )


def test_the_stop_annotation_deletes_everything_and_frees_the_gpu(namespace):
    namespace.deploy(MODEL)
    stop = "serving.kserve.io/stop"
    namespace.client.patch("isvc", "demo", {"metadata": {"annotations": {stop: "true"}}})
    namespace.client.wait(
        "all is gone",
        lambda: (
            not namespace.client.find("deployments", "demo-predictor")
            and not namespace.client.find("services", "demo-predictor")
            and not namespace.client.list("resourceclaims")
        ),
    )
    actual_conditions = conditions(namespace.client.get("isvc", "demo"))
    assert actual_conditions["Ready"]["status"] == "False"
    assert actual_conditions["PredictorReady"]["reason"] == "Stopped"
    namespace.client.patch("isvc", "demo", {"metadata": {"annotations": {stop: None}}})
    namespace.ready()


def test_a_rollout_undo_of_the_deployment_is_reverted(namespace):
    namespace.deploy(CONTAINERS)
    namespace.client.apply(changed(CONTAINERS, args=["--seed=1"]))
    namespace.client.wait(
        "the second revision is there",
        lambda: (
            deployment(namespace)["metadata"]
            .get("annotations", {})
            .get("deployment.kubernetes.io/revision")
            == "2"
        ),
    )
    written = deployment(namespace)["metadata"]["generation"]
    namespace.kubectl("rollout", "undo", "deployment/demo-predictor")
    # One write undoes, another writes it again; the revision may not move when they come that close.
    namespace.client.wait(
        "KServe writes its own again",
        lambda: (
            deployment(namespace)["metadata"]["generation"] >= written + 2
            and "--seed=1" in template(namespace)["spec"]["containers"][0]["args"]
        ),
    )


def test_the_webhook_adds_fields_to_what_was_sent(namespace):
    stored = namespace.client.create(MODEL)
    sent = yaml.safe_load(MODEL)
    model = stored["spec"]["predictor"]["model"]
    added = {k: v for k, v in model.items() if k not in sent["spec"]["predictor"]["model"]}
    assert added == {"name": "", "protocolVersion": "v2"}
    assert stored["metadata"]["annotations"]["modelFormat"] == "vLLM"


def test_the_native_canary_gets_no_storage_and_no_traffic(namespace):
    base = yaml.safe_load(MODEL)
    del base["spec"]["predictor"]["model"]["storageUri"]
    base["spec"]["predictor"]["storageUris"] = [
        {"uri": "hf://org/target", "mountPath": "/mnt/models/target"},
        {"uri": "hf://org/draft", "mountPath": "/mnt/models/draft"},
    ]
    namespace.deploy(base)
    assert template(namespace)["spec"]["initContainers"][0]["name"] == "storage-initializer"
    canary = {
        "trafficPercent": 10,
        "predictor": {"name": "spec", "model": copy.deepcopy(base["spec"]["predictor"]["model"])},
    }
    namespace.client.apply(base | {"spec": base["spec"] | {"canary": [canary]}})
    made = namespace.client.wait(
        "the canary", lambda: namespace.client.find("deployments", "demo-spec-predictor")
    )
    assert "initContainers" not in made["spec"]["template"]["spec"]
    backends = [
        p["backend"]["service"]["name"]
        for r in namespace.client.get("ingress", "demo")["spec"]["rules"]
        for p in r["http"]["paths"]
    ]
    assert set(backends) == {"demo-predictor"}


def test_unknown_fields_are_dropped_unless_validation_is_strict(namespace):
    wrong = changed(MODEL, predictor={"storageURIs": []})
    path = f"/apis/serving.kserve.io/v1beta1/namespaces/{namespace.name}/inferenceservices"
    with pytest.raises(ApiError, match="unknown field") as refused:
        namespace.client.request("POST", path, wrong, fieldValidation="Strict")
    assert refused.value.status == 400
    stored = namespace.client.request("POST", path, wrong, fieldValidation="Ignore")
    assert "storageURIs" not in stored["spec"]["predictor"]


def test_a_claim_that_no_pod_claim_backs_is_accepted_and_never_runs(namespace):
    wrong = yaml.safe_load(MODEL)
    wrong["spec"]["predictor"]["model"]["resources"]["claims"] = [{"name": "nosuch"}]
    namespace.client.apply(CLAIM)
    namespace.client.apply(wrong)

    def told():
        ready = conditions(namespace.client.get("isvc", "demo")).get("Ready", {})
        return ready if ready.get("status") == "False" else None

    refused = namespace.client.wait("the Deployment is refused", told)
    assert refused["reason"] == "ReconcileFailed"
    assert "must be one of the names in pod.spec.resourceClaims" in refused["message"]


def test_two_claims_of_one_pod_take_two_gpus(namespace):
    both = yaml.safe_load(CONTAINERS)
    both["spec"]["predictor"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
    namespace.client.apply(CLAIM)
    namespace.client.apply(both)
    # A node has one GPU; the extended resource is served from the same slice and wants another.
    namespace.client.wait(
        "the pod cannot be scheduled",
        lambda: [
            p
            for p in namespace.pods()
            if conditions(p).get("PodScheduled", {}).get("status") == "False"
        ],
    )


def test_a_claim_template_cannot_be_changed(namespace):
    namespace.client.apply(CLAIM)
    with pytest.raises(ApiError, match="immutable") as refused:
        namespace.client.apply(CLAIM.replace("count: 1", "count: 2"))
    assert refused.value.status == 422
