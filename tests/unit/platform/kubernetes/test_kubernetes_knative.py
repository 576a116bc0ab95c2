"""Knative mode: which revision is an arm, when it serves alone, and what is refused before anything is changed."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_kubernetes_platform import Cluster

from mpctl.errors import Refused
from mpctl.platform.kubernetes.cluster_platform import KubernetesPlatform
from mpctl.platform.kubernetes.service.conditions import assess_health
from mpctl.platform.kubernetes.service.container import same_image
from mpctl.platform.kubernetes.service.kind_shape import child_name
from mpctl.platform.kubernetes.service.kserve import KNATIVE, starting_pods
from mpctl.platform.kubernetes.service.manifest_text import object_of, text_of
from mpctl.platform.kubernetes.service.shapes import shape_of
from mpctl.rollout.ports import Arm, Demand, Phase

TAG = "vllm/vllm-openai:v0.32.0"
DIGEST = "index.docker.io/vllm/vllm-openai@sha256:" + "ab" * 32
FIRST, SECOND = "demo-predictor-00001", "demo-predictor-00002"


def engine(*words, image=TAG):
    return {"name": "kserve-container", "image": image, "args": ["--model=m", *words]}


def service(*words, newest=FIRST, ready=None, traffic=None, annotations=None, **predictor):
    traffic = {newest: 100} if traffic is None else traffic
    fields = {
        "latestCreatedRevision": newest,
        "latestReadyRevision": ready or newest,
        "traffic": [{"revisionName": name, "percent": share} for name, share in traffic.items()],
    }
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": "demo",
            "namespace": "ns",
            "uid": "u1",
            "resourceVersion": "1",
            "annotations": {"serving.kserve.io/deploymentMode": "Knative"} | (annotations or {}),
        },
        "spec": {"predictor": {"containers": [engine(*words)], **predictor}},
        "status": {"components": {"predictor": fields}},
    }


def deployment(*words, revision=FIRST, replicas=1, image=DIGEST, gpus=0):
    containers = [
        engine(*words, image=image) | {"resources": {"limits": {"nvidia.com/gpu": gpus}}},
        {"name": "queue"},
    ]
    return {
        "kind": "Deployment",
        "metadata": {"name": f"{revision}-deployment", "generation": 1},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}},
        "status": {
            "observedGeneration": 1,
            "updatedReplicas": replicas,
            "availableReplicas": replicas,
            "replicas": replicas,
        },
    }


def pod(*words, revision=FIRST, ending=False, ready=True):
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"{revision}-x",
            "uid": revision,
            "labels": {"serving.knative.dev/revision": revision},
            **({"deletionTimestamp": "2026-11-21T00:00:00Z"} if ending else {}),
        },
        "spec": {"containers": [engine(*words, image=DIGEST), {"name": "queue"}]},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


@pytest.mark.parametrize(
    ("revision", "name"),
    [  # as knative.dev/pkg's kmeta.ChildName makes them
        ("demo-predictor-00001", "demo-predictor-00001-deployment"),
        (
            "a-service-with-a-name-of-forty-letters-x-predictor-0",
            "a-service-with-a-name-of-forty-letters-x-predictor-0-deployment",
        ),
        (
            "a-service-with-a-name-of-forty-letters-x-predictor-00",
            "a-service-with-a-namd2e535ababc4613dd31f8babf09b9e34-deployment",
        ),
        (
            "a-service-with-a-name-of-forty-letters-xyz-predictor-00012",
            "a-service-with-a-nam9e2071917cbb6e7730718f24397172f3-deployment",
        ),
    ],
)
def test_a_revisions_deployment_has_knatives_name(revision, name):
    assert child_name(revision, "-deployment") == name


@given(
    st.from_regex(r"[a-z][a-z0-9-]{0,61}[a-z0-9]", fullmatch=True),
    st.from_regex(r"[a-z][a-z0-9]{0,61}"),
)
def test_such_a_name_fits_and_is_one_revisions_alone(one, other):
    actual_child_name = child_name(one, "-deployment")
    assert len(actual_child_name) <= 63
    assert (actual_child_name == child_name(other, "-deployment")) is (one == other)


@pytest.mark.parametrize(
    ("asked", "found", "same"),
    [
        (TAG, TAG, True),
        (TAG, DIGEST, True),
        ("docker.io/vllm/vllm-openai:v0.32.0", DIGEST, True),
        ("ubuntu", "index.docker.io/library/ubuntu@sha256:00", True),
        ("host:5000/a/b:v1", "host:5000/a/b@sha256:00", True),
        (TAG, "vllm/vllm-openai:v0.11.0", False),
        (TAG, "index.docker.io/vllm/other@sha256:00", False),
        ("host:5000/a/b:v1", "host:6000/a/b@sha256:00", False),
    ],
)
def test_a_tag_is_found_again_as_its_digest(asked, found, same):
    assert same_image(asked, found) is same


@pytest.mark.parametrize("mode", ["Knative", "Serverless", "Standard"])
def test_the_mode_is_read_from_the_annotation_else_from_the_status(mode):
    assert (
        shape_of(service(annotations={"serving.kserve.io/deploymentMode": mode})) is KNATIVE
    ) is (mode != "Standard")
    bare = service()
    bare["metadata"].pop("annotations")
    bare["status"]["deploymentMode"] = mode
    assert (shape_of(bare) is KNATIVE) is (mode != "Standard")


def test_ready_is_the_newest_revision_alone():
    isvc = service("--x", newest=SECOND)
    actual_deployment = deployment("--x", revision=SECOND)
    health = assess_health(isvc, actual_deployment, [pod("--x", revision=SECOND), pod(ending=True)])
    assert (health.phase, health.pods) == (Phase.READY, (f"{SECOND}-x",))


@pytest.mark.parametrize(
    ("status", "pods", "said"),
    [
        (
            {"ready": FIRST, "traffic": {FIRST: 100}},
            [],
            f"does not report revision {SECOND} as ready",
        ),
        ({"traffic": {FIRST: 90, SECOND: 10}}, [], f"revision {SECOND} gets 10 % of the traffic"),
        ({"traffic": {}}, [], f"revision {SECOND} gets 0 % of the traffic"),
        # After a way back the revision before the last has the same arguments, but it is not the arm.
        ({}, [pod(revision=FIRST)], f"has not deleted the pods of {FIRST}"),
    ],
)
def test_a_revision_is_not_ready_before_it_serves_alone(status, pods, said):
    isvc = service(newest=SECOND, **status)
    health = assess_health(isvc, deployment(revision=SECOND), [pod(revision=SECOND), *pods])
    assert health.phase is Phase.STARTING
    assert said in health.message


def test_pods_of_a_revision_that_failed_are_not_waited_for():
    third = "demo-predictor-00003"
    failed = pod("--x", revision=SECOND, ready=False)
    health = assess_health(
        service(newest=third), deployment(revision=third), [pod(revision=third), failed]
    )
    assert (health.phase, health.pods) == (Phase.READY, (f"{third}-x",))


def test_pods_of_another_revision_with_the_same_start_are_not_taken_for_this_ones():
    health = assess_health(
        service(newest=SECOND), deployment(revision=SECOND), [pod(revision=FIRST)]
    )
    assert (health.phase, health.pods) == (Phase.STARTING, ())


def test_the_revision_before_is_not_taken_for_the_one_that_was_written():
    health = assess_health(service("--x", newest=FIRST), deployment(), [pod()])
    assert health.phase is Phase.STARTING
    assert "has not updated the Deployment" in health.message


@pytest.mark.parametrize(
    ("predictor", "annotations", "pods"),
    [
        ({}, {}, 1),
        ({"minReplicas": 3}, {}, 3),
        ({"minReplicas": 1}, {"autoscaling.knative.dev/initial-scale": "4"}, 4),
        ({"minReplicas": 3}, {"autoscaling.knative.dev/initial-scale": "no"}, 3),
    ],
)
def test_a_revision_starts_with_its_least_or_its_initial_pods(predictor, annotations, pods):
    assert starting_pods(service(annotations=annotations, **predictor)) == pods


@pytest.mark.parametrize(
    ("predictor", "annotations", "pods", "downtime", "said", "out"),
    [
        (
            {"canaryTrafficPercent": 10},
            {},
            1,
            False,
            "no more traffic than that",
            "finish that canary",
        ),
        ({"minReplicas": 0}, {}, 1, False, "minReplicas 0", "set minReplicas to 1"),
        (
            {},
            {"autoscaling.knative.dev/class": "hpa.autoscaling.knative.dev"},
            1,
            False,
            "an HPA that Knative makes",
            "autoscaling.knative.dev/class",
        ),
        ({}, {}, 1, True, "no pod can stop first", "add a GPU node"),
        ({"minReplicas": 2}, {}, 5, False, "scaled to 5 pods", 'initial-scale: "5"'),
    ],
)
def test_what_cannot_go_well_is_refused_with_the_way_out(
    predictor, annotations, pods, downtime, said, out
):
    isvc = service(annotations=annotations, **predictor)
    with pytest.raises(Refused, match=said) as refused:
        KNATIVE.require_changeable(
            isvc, "service ns/demo", side_by_side=False, downtime=downtime, pods=pods
        )
    assert out in (refused.value.hint or "")


def test_what_can_go_well_is_not_refused():
    finished = service(canaryTrafficPercent=100, minReplicas=2)
    KNATIVE.require_changeable(
        finished, "service ns/demo", side_by_side=False, downtime=False, pods=2
    )


def platform(*things):
    cluster = Cluster(*things)
    return KubernetesPlatform(cluster, "ns", "demo", sleep=lambda _: None), cluster


def test_room_is_needed_for_every_pod_of_a_revision():
    node = {
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {
            "allocatable": {"nvidia.com/gpu": "3"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    two = [pod() | {"metadata": pod()["metadata"] | {"name": n, "uid": n}} for n in "ab"]
    for each in two:
        each["spec"] = deployment(gpus=1)["spec"]["template"]["spec"] | {"nodeName": "n"}
    actual_deployment = deployment(replicas=2, gpus=1)
    cluster_platform, cluster = platform(service(minReplicas=2), actual_deployment, *two, node)
    with pytest.raises(Refused, match="no free GPU for a new revision's 2 pods side by side"):
        cluster_platform.fits(
            Demand(Arm(text_of(service("--x", minReplicas=2))), side_by_side=True)
        )[0].require()
    assert cluster.written == []
    cluster.things["Node", "n"]["status"]["allocatable"]["nvidia.com/gpu"] = "4"
    cluster_platform.fits(Demand(Arm(text_of(service("--x", minReplicas=2))), side_by_side=True))[
        0
    ].require()


def test_no_strategy_is_written_for_a_change_which_kserve_would_refuse():
    before, after = Arm(text_of(service())), Arm(text_of(service("--x")))
    for downtime in (False, True):
        cluster_platform, cluster = platform(service(), deployment(), pod())
        cluster_platform.replace(after, expect=(before,), downtime=downtime)
        (written,) = cluster.written
        assert written["spec"] == object_of(after.manifest)["spec"]


def test_an_autoscaler_of_a_revision_is_neither_held_nor_named():
    scaler = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"{FIRST}-deployment", "uid": "h"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": f"{FIRST}-deployment"},
            "maxReplicas": 3,
        },
    }
    cluster_platform, _ = platform(service(), deployment(), pod(), scaler)
    assert cluster_platform.scaling() is None
    notes = cluster_platform.fits(
        Demand(Arm(text_of(copy.deepcopy(service("--x")))), side_by_side=True)
    )[0].require()
    assert not [note for note in notes if "HPA" in note]
