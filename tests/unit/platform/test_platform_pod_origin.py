"""A pod is the Job's only if the Job's controller created it from the template; a pod that was adopted is foreign."""

import copy

import pytest
from test_platform_load_job import OF_THE_CONTAINER, OF_THE_POD, POD, as_stored

from mpctl.platform.kubernetes.load_job.job_manifest import load_job
from mpctl.platform.kubernetes.pod_origin import foreign_reason, is_pod_of

CREATED = "2026-11-26T01:00:00Z"
CONTROLLER = "kube-controller-manager"


def job():
    stored = as_stored(load_job(POD, "demo", "chat", "rollout", "c0ffee"))
    stored["metadata"]["creationTimestamp"] = CREATED
    return stored


def written(manager, *fields, **more):
    return {
        "manager": manager,
        "operation": "Update",
        "fieldsV1": {k: v for f in fields for k, v in f.items()},
        **more,
    }


SPEC = {"f:spec": {"f:containers": {'k:{"name":"load"}': {"f:image": {}}}}}
OWNER = {"f:metadata": {"f:ownerReferences": {".": {}}}}


def pod(**spec):
    """A pod as the Job's controller creates it and admission completes it."""
    stored = job()
    body = copy.deepcopy(stored["spec"]["template"]["spec"])
    (container,) = body["containers"]
    container["resizePolicy"] = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]
    container["resources"]["limits"]["ephemeral-storage"] = "1Gi"  # of a LimitRange
    body["tolerations"] += [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}
    ]
    body |= {
        "nodeName": "node-1",
        "hostname": "load-0",
        "serviceAccountName": "default",
        "priority": 0,
    }
    body["securityContext"] |= {"seLinuxOptions": {"level": "s0"}}
    owner = {"kind": "Job", "uid": stored["metadata"]["uid"], "controller": True}
    metadata = {
        "name": "load-0",
        "creationTimestamp": "2026-11-26T01:00:01Z",
        "generation": 1,
        "ownerReferences": [owner],
        "managedFields": [
            written(CONTROLLER, SPEC, OWNER),
            written("kubelet", {"f:status": {}}, subresource="status"),
        ],
    }
    return {"metadata": metadata, "spec": {**body, **spec}}


def test_a_pod_of_the_jobs_controller_is_the_jobs():
    assert foreign_reason(pod(), job()) == ""


def test_a_pod_that_was_started_before_the_job_is_foreign():
    impostor = pod()
    impostor["metadata"]["creationTimestamp"] = "2026-11-26T00:59:59Z"
    assert foreign_reason(impostor, job()) == "it is older than the Job"


@pytest.mark.parametrize("field", OF_THE_POD)
def test_a_pod_with_another_field_is_foreign_if_the_field_can_run_code(field):
    placed = {"nodeName", "priorityClassName", "imagePullSecrets", "serviceAccountName"}
    reason = foreign_reason(pod(**{field: OF_THE_POD[field]}), job())
    harmless = field in placed and field not in job()["spec"]["template"]["spec"]
    assert reason == ("" if harmless else f"it differs from the Job's template: {field}")


@pytest.mark.parametrize("field", OF_THE_CONTAINER)
def test_a_pod_whose_container_has_another_field_is_foreign(field):
    impostor = pod()
    impostor["spec"]["containers"][0][field] = OF_THE_CONTAINER[field]
    assert (
        foreign_reason(impostor, job())
        == f"it differs from the Job's template: {field} of container load"
    )


def change_command(container):
    container["command"][3] += "AAAA"


def change_image(container):
    container["image"] = "evil"


def preload(container):
    container["env"].append({"name": "LD_PRELOAD", "value": "/hers"})


def take_its_cpu(container):
    container["resources"]["limits"]["cpu"] = "1m"


def gain_privileges(container):
    container["securityContext"]["allowPrivilegeEscalation"] = True


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (change_command, "command"),
        (change_image, "image"),
        (preload, "env"),
        (take_its_cpu, "resources"),
        (gain_privileges, "securityContext"),
    ],
)
def test_a_pod_whose_container_runs_anything_else_is_foreign(change, field):
    impostor = pod()
    change(impostor["spec"]["containers"][0])
    assert (
        foreign_reason(impostor, job())
        == f"it differs from the Job's template: {field} of container load"
    )


@pytest.mark.parametrize("field", ["containers", "initContainers"])
def test_a_pod_with_another_container_is_foreign(field):
    impostor = pod()
    impostor["spec"].setdefault(field, []).append({"name": "listener", "image": "evil"})
    assert foreign_reason(impostor, job()) == f"it differs from the Job's template: {field}"


def test_a_pod_whose_image_was_changed_and_changed_back_is_foreign():
    impostor = pod()
    impostor["metadata"]["generation"] = 3
    assert foreign_reason(impostor, job()) == "its spec was changed after its creation"


def test_a_pod_that_waited_for_its_queue_is_the_jobs():
    gated = job()
    gated["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    admitted = pod(nodeSelector={"pool": "l4", "kubernetes.io/hostname": "node-1"})
    admitted["metadata"]["generation"] = 2
    assert foreign_reason(admitted, gated) == ""


def test_a_pod_that_another_client_created_and_the_job_adopted_is_foreign():
    impostor = pod()
    impostor["metadata"]["managedFields"] = [
        written("kubectl-create", SPEC),
        written(CONTROLLER, OWNER),
    ]
    assert (
        foreign_reason(impostor, job())
        == "it was created by kubectl-create, not by the Job's controller"
    )


def test_a_pod_of_another_job_under_our_label_is_foreign():
    impostor = pod()
    impostor["metadata"]["labels"] = {"batch.kubernetes.io/controller-uid": "9f0c"}
    impostor["metadata"]["ownerReferences"][0]["uid"] = "hers"
    assert foreign_reason(impostor, job()) == "another object controls it"
    assert not is_pod_of({"metadata": {"name": "x", "labels": {}}}, "9f0c")
