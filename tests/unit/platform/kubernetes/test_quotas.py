"""Quotas and limits of a namespace, counted as admission counts them, before a candidate is started."""

import pytest

from mpctl.estimate.quota import exceeded_limits, exceeded_quotas
from mpctl.platform.kubernetes.gpu_capacity import LOAD_POD

ENGINE = {
    "containers": [
        {
            "name": "engine",
            "resources": {
                "requests": {"cpu": "1500m", "memory": "2Gi"},
                "limits": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"},
            },
        }
    ],
    "initContainers": [
        {
            "name": "fetch",
            "resources": {
                "requests": {"cpu": "2", "memory": "512Mi"},
                "limits": {"cpu": "2", "memory": "512Mi"},
            },
        },
        {
            "name": "proxy",
            "restartPolicy": "Always",
            "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
        },
    ],
}


def quota(hard, used=None, **spec):
    return {
        "metadata": {"name": "team"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or dict.fromkeys(hard, "0")},
    }


def limits(kind, **bounds):
    """A LimitRange as the API server keeps it: with defaults from its bounds, for containers."""
    if kind == "Container":
        default = {**bounds.get("max", {}), **bounds.get("default", {})}
        requests = {**bounds.get("min", {}), **default, **bounds.get("defaultRequest", {})}
        bounds |= {"default": default, "defaultRequest": requests}
    return {"metadata": {"name": "bounds"}, "spec": {"limits": [{"type": kind, **bounds}]}}


def faults(one, pods=(ENGINE,), ranges=(), objects=None):
    return list(exceeded_quotas([one], ranges, pods, objects or {}))


@pytest.mark.parametrize(
    ("hard", "used", "shown"),
    [
        ({"pods": "2"}, {"pods": "2"}, "pods used 2, hard 2, needed 1"),
        ({"count/pods": "1"}, {"count/pods": "1"}, "count/pods used 1, hard 1, needed 1"),
        (
            {"cpu": "4"},
            {"cpu": "2500m"},
            "cpu used 2.5, hard 4, needed 2",
        ),  # of the init container that is larger
        (
            {"requests.cpu": "4"},
            {"requests.cpu": "2500m"},
            "requests.cpu used 2.5, hard 4, needed 2",
        ),
        (
            {"limits.memory": "10Gi"},
            {"limits.memory": "4Gi"},
            "limits.memory used 4Gi, hard 10Gi, needed 8.06Gi",
        ),
        ({"memory": "3000Mi"}, {"memory": "1Gi"}, "memory used 1Gi, hard 2.93Gi, needed 2.06Gi"),
        (
            {"requests.nvidia.com/gpu": "1"},
            {"requests.nvidia.com/gpu": "1"},
            "requests.nvidia.com/gpu used 1, hard 1, needed 1",
        ),
    ],
)
def test_a_quota_without_room_is_named_with_its_figures(hard, used, shown):
    assert faults(quota(hard, used)) == [f"ResourceQuota team has no room for 1 more pod: {shown}"]


@pytest.mark.parametrize(
    "room",
    [
        quota(
            {"pods": "3", "cpu": "6", "memory": "100Gi", "secrets": "0"},
            {"pods": "2", "cpu": "4", "secrets": "9"},
        ),
        quota({"pods": "0"}, scopes=["BestEffort"]),
        quota({"pods": "0"}, scopes=["Terminating"]),
        quota(
            {"pods": "0"},
            scopeSelector={
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]
            },
        ),
        quota({"count/deployments.apps": "0"}, scopes=["NotBestEffort"]),
        quota({"count/jobs.batch": "0"}),
    ],
)
def test_a_quota_with_room_or_of_other_pods_is_no_fault(room):
    assert faults(room, objects={"deployments.apps": 1, "jobs.batch": 0}) == []


def test_a_quota_of_a_scope_counts_the_pods_in_it():
    urgent = {
        "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["urgent"]}]
    }
    assert faults(quota({"pods": "0"}, scopes=["NotBestEffort", "NotTerminating"]))
    assert faults(
        quota({"pods": "0"}, scopeSelector=urgent),
        pods=({**ENGINE, "priorityClassName": "urgent"},),
    )


def test_a_pod_that_names_a_gpu_alone_is_of_the_best_effort_that_quotas_tell_apart():
    pod = {"containers": [{"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    assert faults(quota({"pods": "0"}, scopes=["BestEffort"]), pods=(pod,))
    assert not faults(quota({"pods": "0"}, scopes=["NotBestEffort"]), pods=(pod,))


def test_the_copy_and_the_load_client_are_counted_with_the_candidate():
    (fault,) = faults(
        quota({"pods": "4", "cpu": "9"}, {"pods": "2", "cpu": "4"}), pods=(ENGINE, ENGINE, LOAD_POD)
    )
    assert fault.endswith("no room for 3 more pods: pods used 2, hard 4, needed 3")


def test_other_objects_are_counted_by_name():
    (fault,) = faults(
        quota({"count/jobs.batch": "1"}, {"count/jobs.batch": "1"}),
        pods=(),
        objects={"jobs.batch": 1},
    )
    assert (
        fault
        == "ResourceQuota team has no room for more objects: count/jobs.batch used 1, hard 1, needed 1"
    )


def test_a_container_that_names_no_amount_gets_the_default_or_is_refused():
    bare = {"containers": [{"name": "engine"}]}
    (fault,) = faults(quota({"limits.cpu": "100"}), pods=(bare,))
    assert fault.endswith("container engine names no limits.cpu")
    fetching = {**ENGINE, "initContainers": [{"name": "fetch"}]}
    (fault,) = faults(quota({"limits.cpu": "100"}), pods=(fetching,))
    assert fault.endswith("container fetch names no limits.cpu")
    assert (
        faults(quota({"limits.cpu": "100"}), (bare,), [limits("Container", default={"cpu": "2"})])
        == []
    )
    (fault,) = faults(
        quota({"limits.cpu": "1"}), (bare,), [limits("Container", default={"cpu": "2"})]
    )
    assert fault.endswith("limits.cpu used 0, hard 1, needed 2")


@pytest.mark.parametrize(
    ("bound", "shown"),
    [
        (
            limits("Container", max={"memory": "4Gi"}),
            "container engine has limits.memory 8Gi, max 4Gi",
        ),
        (
            limits("Container", min={"memory": "100Mi"}),
            "container proxy has requests.memory 64Mi, min 100Mi",
        ),
        (limits("Pod", max={"cpu": "3"}), "the pod has limits.cpu 4.1, max 3"),
        (
            limits("Pod", max={"ephemeral-storage": "1Gi"}),
            "the pod has no limits.ephemeral-storage, max 1Gi",
        ),
        (
            limits("Pod", min={"ephemeral-storage": "1Gi"}),
            "the pod has no requests.ephemeral-storage, min 1Gi",
        ),
        (limits("PersistentVolumeClaim", max={"storage": "1Gi"}), None),
        (limits("Container", max={"cpu": "4"}), None),
    ],
)
def test_a_limit_that_a_pod_does_not_keep_is_named(bound, shown):
    actual_exceeded_limits = list(exceeded_limits([bound], (ENGINE, ENGINE)))
    assert actual_exceeded_limits == ([f"LimitRange bounds: {shown}"] if shown else [])
