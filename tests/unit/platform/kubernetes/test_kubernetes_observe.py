"""What a Deployment and its pods say of an arm, against objects that the real controllers wrote."""

import base64
import copy
from datetime import UTC, datetime, timedelta

import pytest

from mpctl.errors import InputError
from mpctl.manifest import speculation_of
from mpctl.manifest.engine.engine_port import port_of
from mpctl.platform.kubernetes.service.conditions import (
    assess_health,
    cold_start_s,
    is_draining,
    schedulable_replicas,
)
from mpctl.platform.kubernetes.service.container import (
    answers_tls,
    argv_of,
    key_of,
    matches_expected,
)
from mpctl.platform.kubernetes.service.engine_reader import EngineReader
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.rollout.ports import Phase

ARGS = ["--model=m", "--speculative-config={}"]


def container(args=ARGS, **more):
    return {
        "name": "kserve-container",
        "image": "vllm/vllm-openai:v0.32.0",
        "args": list(args),
        **more,
    }


def expected_container(record):
    return shape_of(record).expected(record, None)


def isvc(args=ARGS, **status):
    return {
        "metadata": {"name": "demo"},
        "spec": {"predictor": {"containers": [container(args)]}},
        "status": status,
    }


def deployment(args=ARGS, *, replicas=1, seen=2, **status):
    defaults = {
        "observedGeneration": seen,
        "updatedReplicas": replicas,
        "availableReplicas": replicas,
        "replicas": replicas,
    }
    return {
        "metadata": {"generation": 2},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container(args)]}}},
        "status": defaults | status,
    }


def pod(args=ARGS, *, name="p", ready=True, **status):
    return {
        "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-11-21T00:00:00Z"},
        "spec": {"containers": [container(args)]},
        "status": {
            "conditions": [
                {
                    "type": "Ready",
                    "status": str(ready),
                    "lastTransitionTime": "2026-11-21T00:00:42Z",
                },
                {"type": "PodScheduled", "status": "True"},
            ],
            **status,
        },
    }


def test_ready_means_every_pod_has_the_arguments_and_is_ready():
    health = assess_health(isvc(), deployment(replicas=2), [pod(name="a"), pod(name="b")])
    assert (health.phase, health.pods, health.matches) == (Phase.READY, ("a", "b"), True)
    assert health.argv == tuple(ARGS)


@pytest.mark.parametrize(
    ("made", "pods", "said"),
    [
        (None, [], "has not made the Deployment"),
        (deployment(["--model=m"]), [pod(["--model=m"])], "has not updated the Deployment"),
        (deployment(seen=1), [pod(["--model=m"])], "has not observed the update"),
        (deployment(updatedReplicas=0), [pod(["--model=m"])], "0 of 1 new pods ready, 1 old"),
        (
            deployment(replicas=2, availableReplicas=1),
            [pod(name="a"), pod(name="b", ready=False)],
            "1 of 2 new pods",
        ),
        (deployment(), [pod(ready=False)], "0 of 1"),
        (deployment(replicas=0), [], "scaled to zero pods"),
    ],
)
def test_what_is_missing_is_said(made, pods, said):
    health = assess_health(isvc(), made, pods)
    assert health.phase is Phase.STARTING
    assert said in health.message


def test_kserves_ready_condition_counts_for_nothing():
    healthy = isvc(conditions=[{"type": "Ready", "status": "True"}])
    waiting = pod(ready=False, name="new")
    waiting["status"]["conditions"][1] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 cannot allocate all claims.",
    }
    waiting["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one-l4"}]
    waiting["status"]["resourceClaimStatuses"] = [
        {"name": "gpu", "resourceClaimName": "new-gpu-x7"}
    ]
    actual_deployment = deployment(updatedReplicas=1, availableReplicas=1)
    actual_deployment["status"]["replicas"] = 2
    health = assess_health(healthy, actual_deployment, [pod(["--model=m"], name="old"), waiting])
    assert health.phase is Phase.STARTING
    assert health.stuck
    assert "cannot allocate all claims" in health.message
    assert "claim new-gpu-x7 (of one-l4)" in health.message


def test_a_pod_that_waits_for_the_gpu_of_one_that_finishes_its_requests_is_not_stuck():
    """A pod may take its grace period, half an hour of streams, and the scheduler calls the new one unschedulable."""
    waiting = pod(ready=False, name="new")
    waiting["status"]["conditions"][1] = {
        "type": "PodScheduled",
        "status": "False",
        "message": "no GPU is free",
    }
    leaving = pod(["--model=m"], name="old")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:30:00Z"
    health = assess_health(isvc(), deployment(availableReplicas=0), [leaving, waiting])
    assert (health.phase, health.stuck) == (Phase.STARTING, "")
    assert (
        health.message
        == "pod new cannot be scheduled: no GPU is free; an old pod finishes its requests"
    )


@pytest.mark.parametrize(("seconds", "drains"), [(60, True), (-60, False), (None, False)])
def test_a_pod_drains_until_its_grace_period_is_over(seconds, drains):
    """A node that is gone never finishes the deletion, and must not be waited for."""
    leaving = pod()
    if seconds is not None:
        ends = datetime.now(UTC) + timedelta(seconds=seconds)
        leaving["metadata"]["deletionTimestamp"] = ends.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert is_draining(leaving) is drains


def test_a_new_node_on_its_way_is_waited_for():
    waiting = pod(ready=False)
    waiting["status"]["conditions"][1] = {
        "type": "PodScheduled",
        "status": "False",
        "message": "no",
    }
    events = [
        {
            "involvedObject": {"uid": "p"},
            "reason": "TriggeredScaleUp",
            "message": "pod triggered scale-up",
        }
    ]
    health = assess_health(isvc(), deployment(availableReplicas=0), [waiting], events)
    assert (health.phase, health.stuck) == (Phase.STARTING, "")
    assert "triggered scale-up" in health.message


@pytest.mark.parametrize(
    ("told", "waits"),
    [
        ([("Nominated", "1")], True),
        ([("TriggeredScaleUp", "1"), ("NotTriggerScaleUp", "2")], False),
        ([("TriggeredScaleUp", "2"), ("NotTriggerScaleUp", "1")], True),
        ([("FailedScheduling", "1")], False),
    ],
)
def test_the_last_word_of_a_node_autoscaler_counts(told, waits):
    waiting = pod(ready=False)
    waiting["status"]["conditions"][1] = {
        "type": "PodScheduled",
        "status": "False",
        "message": "no",
    }
    events = [
        {"involvedObject": {"uid": "p"}, "reason": reason, "lastTimestamp": at}
        for reason, at in told
    ]
    health = assess_health(isvc(), deployment(availableReplicas=0), [waiting], events)
    assert (not health.stuck) is waits


def test_what_has_no_pod_and_gets_none_is_stuck():
    assert assess_health(isvc(), deployment(replicas=0), []).stuck
    stopped = isvc()
    stopped["metadata"]["annotations"] = {"serving.kserve.io/stop": "true"}
    health = assess_health(stopped, None, [])
    assert (health.phase, "stopped" in health.message, bool(health.stuck)) == (
        Phase.STARTING,
        True,
        True,
    )


def test_what_admission_adds_to_every_pod_makes_no_other_pod_of_it():
    changed = pod()
    changed["spec"]["containers"] = [
        container(image="mirror/vllm@sha256:0", env=[{"name": "AWS_ROLE_ARN", "value": "arn"}])
    ]
    assert assess_health(isvc(), deployment(), [changed]).phase is Phase.READY
    actual_deployment = deployment()
    actual_deployment["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "A", "value": "1"}
    ]
    assert assess_health(isvc(), actual_deployment, [changed]).phase is Phase.STARTING


def test_a_service_without_arguments_is_not_served_by_the_deployment_of_the_arm_before():
    bare = {"metadata": {"name": "demo"}, "spec": {"predictor": {"model": {"runtime": "r"}}}}
    runtime = {"spec": {"containers": [{"name": "kserve-container", "args": ["--port=8080"]}]}}
    before = ["--port=8080", "--speculative-config={}"]
    health = assess_health(bare, deployment(before), [pod(before)], runtime=runtime)
    assert (health.phase, "has not updated" in health.message) == (Phase.STARTING, True)
    assert (
        assess_health(
            bare, deployment(["--port=8080"]), [pod(["--port=8080"])], runtime=runtime
        ).phase
        is Phase.READY
    )
    runtime["spec"]["containers"][0]["args"] = before  # the runtime's own setting is no stale one
    assert (
        assess_health(bare, deployment(before), [pod(before)], runtime=runtime).phase is Phase.READY
    )


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({}, (None, None)),
        ({"args": ["--api-key=abc"]}, (None, "abc")),
        ({"args": ["--api-key", "$(KEY)"]}, ("KEY", None)),
        ({"args": ["--api-key=$(KEY)"]}, ("KEY", None)),
        ({"env": [{"name": "VLLM_API_KEY", "value": "x"}]}, ("VLLM_API_KEY", None)),
    ],
)
def test_where_the_engines_key_comes_from(more, found):
    assert key_of({"args": [], **more}) == found


class Secrets:
    """A cluster in which the engine's key is in a Secret."""

    def __init__(self, key):
        self.key = key

    def require(self, kind, name, namespace):
        return {"data": {"key": base64.b64encode(self.key).decode()}}


def test_a_key_is_read_from_its_secret_and_one_that_no_header_carries_is_not_printed():
    reference = {"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}}
    assert EngineReader(Secrets(b"sk-1"), "ns")._token({"env": [reference]}) == "sk-1"
    for bad in (b"sk-1\n", b"\xff"):
        with pytest.raises(InputError) as caught:
            EngineReader(Secrets(bad), "ns")._token({"env": [reference]})
        assert "sk-1" not in str(caught.value)


def test_a_missing_claim_template_shows_in_events_only():
    waiting = pod(ready=False)
    waiting["status"]["conditions"] = []
    failed = {
        "reason": "FailedResourceClaimCreation",
        "type": "Warning",
        "message": "template one-l4 not found",
    }
    health = assess_health(
        isvc(),
        deployment(availableReplicas=0),
        [waiting],
        [{"involvedObject": {"uid": "p"}, **failed}],
    )
    assert health.stuck
    assert "template one-l4 not found" in health.message


@pytest.mark.parametrize(
    "reason", ["CrashLoopBackOff", "ImagePullBackOff", "CreateContainerConfigError"]
)
def test_a_container_that_will_not_start_has_failed(reason):
    status = {
        "containerStatuses": [
            {
                "restartCount": 1,
                "state": {"waiting": {"reason": reason, "message": "why"}},
                "lastState": {"terminated": {"exitCode": 3}},
            }
        ]
    }
    health = assess_health(isvc(), deployment(availableReplicas=0), [pod(ready=False, **status)])
    assert health.phase is Phase.FAILED
    assert reason in health.message
    assert "code 3" in health.message


def test_pods_that_cannot_be_created_have_failed():
    actual_deployment = deployment(availableReplicas=0, updatedReplicas=0)
    actual_deployment["status"]["conditions"] = [
        {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    ]
    health = assess_health(isvc(), actual_deployment, [])
    assert (health.phase, "exceeded quota" in health.message) == (Phase.FAILED, True)
    actual_deployment["spec"]["replicas"] = 2
    one_serves = assess_health(isvc(), actual_deployment, [pod()])
    assert (one_serves.phase, one_serves.pods, one_serves.matches) == (Phase.FAILED, ("p",), True)


def test_a_model_with_a_runtime_adds_its_arguments_behind_the_runtimes():
    model = isvc() | {
        "spec": {"predictor": {"model": {"args": ["--speculative-config={}"], "runtime": "r"}}}
    }
    want = expected_container(model)
    assert matches_expected(container(["--port=8080", "--speculative-config={}"]), want)
    assert not matches_expected(container(["--port=8080"]), want)
    whole = expected_container(isvc())
    assert not matches_expected(container(["--port=8080", *ARGS]), whole)
    assert not matches_expected(container(ARGS, image="other"), whole)


def test_environment_counts_and_templates_of_kserve_match_anything():
    spec = copy.deepcopy(isvc(["--served-model-name={{.Name}}"]))
    spec["spec"]["predictor"]["containers"][0]["env"] = [{"name": "A", "value": "1"}]
    want = expected_container(spec)
    args = ["--served-model-name=demo"]
    assert matches_expected(
        container(args, env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]), want
    )
    assert not matches_expected(container(args, env=[{"name": "A", "value": "2"}]), want)


def test_cold_start_is_measured_on_pods_that_never_restarted():
    assert cold_start_s(pod()) == 42
    assert cold_start_s(pod(ready=False)) is None
    assert cold_start_s(pod(containerStatuses=[{"restartCount": 1}])) is None


@pytest.mark.parametrize(
    ("more", "args", "port"),
    [
        ({"ports": [{"containerPort": 9000}]}, [], 9000),
        ({"ports": [{"containerPort": 9000}]}, ["--port=8000"], 8000),
        ({}, ["--port=8000", "--port=8002"], 8002),
        ({"command": ["sh", "-c", "exec vllm serve m --port 8003 --api-key k"]}, [], 8003),
        ({"env": [{"name": "PORT", "value": "8004"}]}, ["--port=$(PORT)"], 8004),
        ({}, ["--port=8000"], 8000),
        ({}, ["--port", "8001"], 8001),
        ({}, [], 8080),
        (
            {
                "env": [{"name": "KSERVE_TLS_CERT_FILE", "value": "/tls/tls.crt"}],
                "ports": [{"containerPort": 8080}],
            },
            [],
            8443,
        ),
    ],
)
def test_the_engines_port(more, args, port):
    assert port_of(container(args, **more)) == port


@pytest.mark.parametrize(
    ("image", "args", "found"),
    [
        (
            "vllm/vllm-openai:v0.32.0",
            ["org/target", "--speculative-config.method=ngram"],
            {"method": "ngram"},
        ),
        (
            "vllm/vllm-openai:v0.32.0",
            ["--model=org/target", "--speculative-config.method=ngram"],
            {"method": "ngram"},
        ),
        ("vllm/vllm-openai:v0.32.0", ["org/target"], None),
    ],
)
def test_the_setting_of_an_engine_that_its_image_starts(image, args, found):
    assert speculation_of(argv_of({"image": image, "args": args})) == found


@pytest.mark.parametrize(
    ("more", "secure"),
    [
        ({}, False),
        ({"readinessProbe": {"httpGet": {"scheme": "HTTP"}}, "livenessProbe": {"exec": {}}}, False),
        ({"readinessProbe": {"httpGet": {"scheme": "HTTPS"}}}, True),
        ({"startupProbe": {"httpGet": {"scheme": "https"}}}, True),
        ({"env": [{"name": "KSERVE_TLS_CERT_FILE", "value": "/tls/tls.crt"}]}, True),
    ],
)
def test_whether_the_engine_answers_over_https(more, secure):
    assert answers_tls(container([], **more)) is secure


@pytest.mark.parametrize(
    ("asked", "scheduled", "held"),
    [
        (3, ["True"] * 3, 3),
        (3, ["True", "False", "False"], 1),
        (3, ["True"] * 3 + ["False"], 3),
        (2, ["False"], 1),
    ],
)
def test_a_pod_that_no_node_takes_is_not_waited_for(asked, scheduled, held):
    """The autoscaler asked for it; a surge's pod is not one of the pods wanted."""
    pods = [
        {"status": {"conditions": [{"type": "PodScheduled", "status": status}]}}
        for status in scheduled
    ]
    assert schedulable_replicas(asked, pods) == held
    assert schedulable_replicas(asked, [{}]) == asked


class Pods:
    """A namespace with these pods."""

    def __init__(self, *pods):
        self.pods = pods

    def list(self, kind, namespace, *, fields):
        return [pod for pod in self.pods if fields == f"metadata.name={pod['metadata']['name']}"]


def lost(*pods):
    reader = EngineReader.__new__(EngineReader)
    reader._client, reader._namespace, reader._reached = Pods(*pods), "team", {"demo": ("p", "p")}
    return reader.lost_pods()


def test_a_measured_pod_that_somebody_ended_is_named_with_the_reason():
    assert lost() == ("pod p was deleted",)
    other = pod()
    other["metadata"]["uid"] = "another of the same name"
    assert lost(other) == ("pod p was deleted",)
    ending = pod()
    ending["metadata"]["deletionTimestamp"] = "2026-11-21T00:01:00Z"
    assert lost(ending) == ("pod p is being deleted",)
    ending["status"]["conditions"].append(
        {"type": "DisruptionTarget", "message": "Eviction API: evicting"}
    )
    assert lost(ending) == ("pod p is being deleted (Eviction API: evicting)",)
    evicted = pod(phase="Failed", message="The node was low on resource: memory.")
    assert lost(evicted) == ("pod p is being deleted (The node was low on resource: memory.)",)
    assert lost(pod()) == ()
