"""Refusals as errors, differing fields, room for a pod, limits of autoscalers, names."""

import json

import pytest

from mpctl.errors import InputError, MpctlError, NotPermitted, Refused
from mpctl.estimate.capacity import Need, counted_node, exclusion_reason, gpu_nodes, gpus_of
from mpctl.platform.kubernetes.api.kinds import HTTP_ROUTE, INFERENCE_SERVICE, NODE, POD
from mpctl.platform.kubernetes.api.names import label_of
from mpctl.platform.kubernetes.api.objects import changed_fields
from mpctl.platform.kubernetes.api.replies import AlreadyExists, Call, Stale, error_of, retry_after
from mpctl.platform.kubernetes.autoscaler import (
    KServePin,
    autoscaler_record,
    limits_of,
    pinned,
    targets,
)
from mpctl.platform.kubernetes.gpu_capacity import assess_capacity
from mpctl.platform.kubernetes.lease import process_is_gone, this_process

CALL = Call("update", INFERENCE_SERVICE, "team", "demo")


UNDEFINED = (
    "without its definition inferenceservices.serving.kserve.io no InferenceService exists there"
)


def status(reason, message, **details):
    return json.dumps({"kind": "Status", "reason": reason, "message": message, "details": details})


@pytest.mark.parametrize(
    ("code", "body", "kind", "said"),
    [
        (401, status("Unauthorized", "who"), NotPermitted, "not authenticated to"),
        (
            403,
            status("Forbidden", "no"),
            NotPermitted,
            "not allowed to update inferenceservices.serving.kserve.io in namespace team",
        ),
        (
            403,
            status("Forbidden", 'admission webhook "v.kserve.io" denied the request: bad uri'),
            InputError,
            "refused by an admission webhook: bad uri (v.kserve.io)",
        ),
        (
            404,
            status("NotFound", "gone", name="demo"),
            InputError,
            "InferenceService team/demo not found",
        ),
        (
            404,
            status("NotFound", "the server could not find the requested resource"),
            MpctlError,
            UNDEFINED,
        ),
        (404, "404 page not found\n", MpctlError, UNDEFINED),
        (409, status("AlreadyExists", "there"), AlreadyExists, "already exists"),
        (409, status("Conflict", "modified"), Stale, "was changed meanwhile"),
        (
            409,
            status(
                "Conflict",
                "x",
                causes=[
                    {
                        "reason": "FieldManagerConflict",
                        "field": ".spec.replicas",
                        "message": 'conflict with "argocd"',
                    }
                ],
            ),
            Stale,
            ".spec.replicas belongs to argocd",
        ),
        (
            422,
            status("Invalid", "x", causes=[{"field": "spec.a", "message": "must be"}]),
            InputError,
            "spec.a: must be",
        ),
        (
            422,
            status(
                "Invalid",
                "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no restores",
            ),
            NotPermitted,
            "denied request: no restores",
        ),
        (
            403,
            status(
                "Forbidden",
                'jobs "a" is forbidden: unable to create new content in namespace team because it is being terminated',
            ),
            MpctlError,
            "namespace team is being deleted",
        ),
        (
            403,
            status("Forbidden", 'configmaps "a" is forbidden: exceeded quota: objects, used: 9'),
            Refused,
            "was refused by a quota: configmaps",
        ),
        (400, "not JSON at all", InputError, "not JSON at all"),
        (418, b"", MpctlError, "answered 418"),
    ],
)
def test_a_refusal_is_an_error_that_names_its_object(code, body, kind, said):
    error = error_of(code, body, CALL)
    assert type(error) is kind
    assert said in error.message


@pytest.mark.parametrize(
    ("headers", "seconds"), [({"Retry-After": "3"}, 3.0), ({"retry-after": "x"}, 0.5), ({}, 0.5)]
)
def test_how_long_a_server_asks_to_wait(headers, seconds):
    assert retry_after(headers, otherwise=0.5) == seconds


def test_paths():
    assert POD.path("a b", "x", "log") == "/api/v1/namespaces/a%20b/pods/x/log"
    assert INFERENCE_SERVICE.path() == "/apis/serving.kserve.io/v1beta1/inferenceservices"
    assert NODE.path("ignored", "n") == "/api/v1/nodes/n"
    assert HTTP_ROUTE.resource == "httproutes.gateway.networking.k8s.io"


def test_changed_fields_are_the_smallest_that_differ():
    before = {
        "spec": {"a": 1, "containers": [{"name": "x", "args": ["1"]}, {"name": "y"}]},
        "same": [1],
    }
    after = {
        "spec": {"b": 1, "containers": [{"name": "x", "args": ["2"]}, {"name": "y"}]},
        "same": [1],
    }
    assert changed_fields(before, after) == ("spec.a", "spec.b", "spec.containers[x].args")
    assert changed_fields(before, before) == ()


L4 = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


def node(name, gpus=1, ready=True):
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}, "conditions": conditions},
    }


def user(name, where=None):
    spec = {"containers": [L4]} | ({"nodeName": where} if where else {})
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"phase": "Running" if where else "Pending"},
    }


@pytest.mark.parametrize(
    ("nodes", "pods", "fits"),
    [
        ([node("a")], [], True),
        ([node("a")], [user("p", "a")], False),
        ([node("a", 2)], [user("p", "a")], True),
        ([node("a", 2)], [user("p", "a"), user("waits")], False),  # who waits already comes first
        ([node("a", ready=False)], [], False),
        ([], [], False),
    ],
)
def test_room_counts_extended_resources_and_those_who_wait(nodes, pods, fits):
    assert (assess_capacity(Need(1, 1), nodes, [], [], pods)[0]) is fits


GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("pod", "taints", "said"),
    [
        ({}, [], ""),
        ({}, [GPU_TAINT], "n has taint nvidia.com/gpu=present:NoSchedule"),
        ({}, [GPU_TAINT | {"effect": "PreferNoSchedule"}], ""),
        ({"tolerations": [{"operator": "Exists"}]}, [GPU_TAINT], ""),
        (
            {
                "tolerations": [
                    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
                ]
            },
            [GPU_TAINT],
            "",
        ),
        (
            {
                "tolerations": [
                    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}
                ]
            },
            [GPU_TAINT],
            "n has",
        ),
        ({"tolerations": [{"key": "nvidia.com/gpu", "value": "present"}]}, [GPU_TAINT], ""),
        (
            {"tolerations": [{"key": "nvidia.com/gpu", "value": "other"}]},
            [GPU_TAINT],
            "n has taint",
        ),
        ({"nodeSelector": {"gpu": "l4"}}, [], ""),
        ({"nodeSelector": {"gpu": "h100"}}, [], "n has no label gpu=h100"),
    ],
)
def test_why_a_pod_may_not_use_a_node(pod, taints, said):
    actual_exclusion_reason = exclusion_reason(
        pod, {"metadata": {"name": "n", "labels": {"gpu": "l4"}}, "spec": {"taints": taints}}
    )
    assert actual_exclusion_reason.startswith(said) if said else not actual_exclusion_reason


def test_gpus_of_a_pod():
    assert gpus_of({"containers": [L4, L4]}) == 2
    assert gpus_of({"containers": [{}], "resourceClaims": [{"name": "gpu"}]}) == 1
    assert gpus_of({"containers": [{}]}) == 0
    assert gpus_of({"containers": [L4, L4], "resourceClaims": [{"name": "channel"}]}) == 2


def test_gpus_of_the_device_plugin_are_taken_whatever_else_their_pod_claims():
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"nvidia.com/gpu": "4"}}}
    spec = {"containers": [L4, L4], "resourceClaims": [{"name": "channel"}], "nodeName": "n"}
    assert counted_node(node, [{"metadata": {"name": "p"}, "spec": spec}]).taken == 2


def test_a_monitor_takes_no_gpu():
    result = {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0", "adminAccess": True}
    claim = {
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    node = {
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"nvidia.com/gpu.present": "true"}},
        "status": {},
    }
    assert gpu_nodes([node, claim])[0].taken == 0
    del result["adminAccess"]
    claim["status"]["allocation"]["devices"]["results"] = [result]
    pool = {"name": "n"}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": pool, "devices": [{"name": "a"}]}
    assert gpu_nodes([node, claim, {"kind": "ResourceSlice", "spec": spec}])[0].taken == 1


def test_pods_that_wait_want_groups_of_gpus_as_the_new_ones_do():
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    nodes = [
        {
            "kind": "Node",
            "metadata": {"name": name},
            "spec": {},
            "status": {**ready, "allocatable": {"nvidia.com/gpu": "2"}},
        }
        for name in "ab"
    ]
    waits = {"metadata": {"name": "w"}, "spec": {"containers": [L4, L4]}, "status": {}}
    assert assess_capacity(Need(1, 2), nodes, [], [], [waits])[0]
    assert not assess_capacity(Need(1, 2), nodes, [], [], [waits, waits])[0]


def test_an_autoscaler_in_the_service_that_another_writer_removed_has_no_limits():
    service = {"kind": "LLMInferenceService", "metadata": {"name": "d"}, "spec": {"replicas": 2}}
    assert limits_of(service) == {}
    pin = KServePin(lambda: None)
    pin.set({"replicas": 2, "items": [{"kind": "LLMInferenceService", "limits": {}}]})
    assert pin.with_pin(service) == service


def scaler(kind="HorizontalPodAutoscaler", **spec):
    ref = {"kind": "Deployment", "name": "demo-predictor"}
    return {
        "kind": kind,
        "metadata": {"name": "q", "uid": "u"},
        "spec": {"scaleTargetRef": ref, **spec},
    }


def test_limits_are_recorded_as_they_are_written():
    actual_autoscaler_record = autoscaler_record(
        [scaler(maxReplicas=5)], 2, {"metadata": {"uid": "s"}}
    )
    assert actual_autoscaler_record == {
        "replicas": 2,
        "items": [
            {
                "kind": "HorizontalPodAutoscaler",
                "name": "q",
                "uid": "u",
                "limits": {"maxReplicas": 5},
            }
        ],
    }
    assert pinned(actual_autoscaler_record["items"][0], 2) == {"minReplicas": 2, "maxReplicas": 2}
    keda = scaler("ScaledObject", minReplicaCount=0, maxReplicaCount=4)
    assert limits_of(keda) == {"minReplicaCount": 0, "maxReplicaCount": 4}
    assert autoscaler_record([], 1, {}) is None


def test_an_autoscaler_of_another_deployment_is_left_alone():
    assert targets(scaler(), "demo-predictor")
    assert not targets(scaler(), "other")
    assert targets(
        {"spec": {"scaleTargetRef": {"name": "demo-predictor"}}}, "demo-predictor"
    )  # KEDA's default kind


def test_a_process_of_this_machine_is_known_to_live_or_to_be_gone():
    mine = this_process()
    assert not process_is_gone(mine)
    boot, pid, start = mine.split()
    assert process_is_gone(f"{boot} {pid} {int(start) + 1}")
    assert not process_is_gone(f"other-boot {pid} {int(start) + 1}")
    assert not process_is_gone("")


def test_a_long_name_is_shortened_to_a_label_without_a_clash():
    first, second = label_of("x" * 70 + "a"), label_of("x" * 70 + "b")
    assert first != second
    assert len(first) <= 63
    assert label_of("demo") == "demo"
