"""The load Job as a document: what it takes from the serving pod, what it leaves, and what its troubles are called."""

import base64
import copy
import json
import subprocess
import sys
import zlib

import pytest

from mpctl.platform.kubernetes.load_job.job_manifest import (
    is_finished,
    is_same,
    load_job,
    pod_problem,
)
from stacks.services.isolation import namespace_policies

POD = {
    "metadata": {
        "name": "demo-predictor-1",
        "labels": {"serving.kserve.io/inferenceservice": "demo"},
    },
    "spec": {
        "serviceAccountName": "puller",
        "imagePullSecrets": [{"name": "mirror"}],
        "nodeSelector": {"pool": "l4"},
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
        ],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-l4"}],
        "securityContext": {"runAsUser": 1000, "fsGroup": 2000, "sysctls": []},
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
        "containers": [
            {"name": "queue-proxy", "image": "proxy"},
            {
                "name": "kserve-container",
                "image": "vllm/vllm-openai:v0.32.0",
                "imagePullPolicy": "Never",
                "args": ["--api-key=sk-secret"],
                "env": [{"name": "HF_TOKEN", "value": "hf-secret"}],
                "resources": {"limits": {"nvidia.com/gpu": "1"}, "claims": [{"name": "gpu"}]},
                "securityContext": {"runAsNonRoot": True, "privileged": True},
            },
        ],
    },
}


OWNER = "c0ffee"


def made(pod=POD, service="demo", scope="rollout"):
    return load_job(pod, service, "chat", scope, OWNER)


def spec_of(job):
    return job["spec"]["template"]["spec"]


def test_it_runs_where_the_serving_pod_may():
    spec = spec_of(made())
    (container,) = spec["containers"]
    assert (container["image"], container["imagePullPolicy"]) == (
        "vllm/vllm-openai:v0.32.0",
        "Never",
    )
    assert spec["imagePullSecrets"] == [{"name": "mirror"}]
    assert spec["nodeSelector"] == {"pool": "l4"}
    assert [t["key"] for t in spec["tolerations"]] == ["nvidia.com/gpu"]
    assert spec["securityContext"] == {
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsUser": 1000,
        "fsGroup": 2000,
    }


def test_the_stacks_network_policy_lets_its_pods_out():
    labels = made()["spec"]["template"]["metadata"]["labels"]
    policies = {policy["metadata"]["name"]: policy for policy in namespace_policies("inference")}
    selector = policies["allow-load"]["spec"]["podSelector"]
    assert selector["matchLabels"].items() <= labels.items()


def test_it_takes_no_gpu_no_volume_no_secret_and_no_service_account():
    job = made()
    spec = spec_of(job)
    (container,) = spec["containers"]
    assert "resourceClaims" not in spec
    assert "serviceAccountName" not in spec
    assert set(container["resources"]["limits"]) == {"cpu", "memory"}
    assert all(set(volume) == {"name", "emptyDir"} for volume in spec["volumes"])
    assert all(volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"])
    assert "hf-secret" not in json.dumps(job)
    assert "sk-secret" not in json.dumps(job)
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"} in container["env"]


def test_it_is_what_a_restricted_namespace_admits():
    (container,) = spec_of(made())["containers"]
    assert container["securityContext"] == {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec_of(made())["automountServiceAccountToken"] is False


@pytest.mark.parametrize(("user", "expected"), [(None, None), (0, None), (1000, True)])
def test_it_is_no_root_where_the_serving_pod_is_none(user, expected):
    other = copy.deepcopy(POD)
    other["spec"]["securityContext"] = {} if user is None else {"runAsUser": user}
    del other["spec"]["containers"][1]["securityContext"]
    assert spec_of(made(other))["containers"][0]["securityContext"].get("runAsNonRoot") is expected


def test_nobody_can_know_its_name():
    names = {made()["metadata"]["name"] for _ in range(50)}
    assert len(names) == 50
    assert all(len(name) <= 63 for name in names)  # it becomes a label of the pod


def as_stored(job, uid="9f0c"):
    """The Job as the API server returns it: with its defaults, its uid, and both in selector and labels."""
    stored = copy.deepcopy(job)
    stored["metadata"]["uid"] = uid
    fields = {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}
    names = dict.fromkeys(("batch.kubernetes.io/job-name", "job-name"), job["metadata"]["name"])
    stored["spec"] |= {"suspend": False, "podReplacementPolicy": "TerminatingOrFailed"}
    stored["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    stored["spec"]["template"]["metadata"]["labels"] |= {**fields, **names}
    spec = spec_of(stored)
    spec["dnsPolicy"] = "ClusterFirst"
    spec["containers"][0]["terminationMessagePath"] = "/dev/termination-log"
    return stored


def new_one(job=None):
    """What a dry-run create returns for a new Job."""
    return as_stored(job or made(), uid="never-stored")


def test_it_is_found_again_by_what_it_runs():
    assert is_same(as_stored(made()), new_one())


def test_a_job_of_another_owner_is_another():
    assert not is_same(
        as_stored(made()), new_one(load_job(POD, "demo", "chat", "rollout", "another"))
    )


@pytest.mark.parametrize("key", ["completions", "parallelism"])
def test_a_job_of_more_pods_is_another(key):
    stored = as_stored(made())
    stored["spec"][key] = 2
    assert not is_same(stored, new_one())


def change_image(spec):
    spec["containers"][0]["image"] = "evil"


def change_scripts(spec):
    spec["containers"][0]["command"][3] += "AAAA"


def add_container(spec):
    spec["containers"].append({"name": "listener", "image": "evil"})


def add_init_container(spec):
    spec["initContainers"] = [{"name": "first", "image": "evil"}]


def share_a_volume(spec):
    spec["volumes"][0] = {"name": "work", "persistentVolumeClaim": {"claimName": "hers"}}


def mount_more(spec):
    spec["volumes"].append({"name": "more", "configMap": {"name": "hers"}})


def shadow_the_python(spec):
    spec["containers"][0]["env"][0] = {"name": "PYTHONPATH", "value": "/hers"}


def add_a_native_sidecar(spec):
    spec["initContainers"] = [{"name": "listener", "image": "evil", "restartPolicy": "Always"}]


CHANGES = [
    change_image,
    change_scripts,
    add_container,
    add_init_container,
    add_a_native_sidecar,
    share_a_volume,
    mount_more,
    shadow_the_python,
]
# Fields that run code, hand out rights or lead elsewhere, and that no Job of mpctl has.
HOOK = {"exec": {"command": ["sh", "-c", "evil"]}}
OF_THE_CONTAINER = {
    "lifecycle": {"postStart": HOOK},
    "livenessProbe": HOOK,
    "startupProbe": HOOK,
    "envFrom": [{"secretRef": {"name": "hers"}}],
    "args": ["evil"],
    "stdin": True,
    "volumeDevices": [{"name": "work", "devicePath": "/dev/sda"}],
    "ports": [{"containerPort": 8765, "hostPort": 8765}],
}
OF_THE_POD = {
    "serviceAccountName": "admin",
    "automountServiceAccountToken": True,
    "hostPID": True,
    "hostIPC": True,
    "hostNetwork": True,
    "hostUsers": False,
    "shareProcessNamespace": True,
    "hostAliases": [{"ip": "10.0.0.66", "hostnames": ["engine"]}],
    "dnsConfig": {"nameservers": ["10.0.0.66"]},
    "dnsPolicy": "None",
    "nodeName": "hers",
    "runtimeClassName": "hers",
    "schedulerName": "hers",
    "priorityClassName": "system-node-critical",
    "nodeSelector": {"kubernetes.io/hostname": "hers"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {},
    "imagePullSecrets": [{"name": "hers"}],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "hers"}],
    "securityContext": {},
    "restartPolicy": "OnFailure",
    "ephemeralContainers": [{"name": "debug", "image": "evil"}],
}
OF_THE_JOB = {
    "manualSelector": True,
    "managedBy": "example.com/hers",
    "suspend": True,
    "backoffLimit": 99,
    "podFailurePolicy": {"rules": []},
    "ttlSecondsAfterFinished": 10**6,
    "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "another"}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_job_that_runs_anything_else_is_not_ours(change):
    foreign = as_stored(made())
    change(spec_of(foreign))
    assert not is_same(foreign, new_one())


@pytest.mark.parametrize("field", OF_THE_CONTAINER)
def test_a_prepared_job_with_a_field_of_the_container_is_not_ours(field):
    foreign = as_stored(made())
    spec_of(foreign)["containers"][0][field] = OF_THE_CONTAINER[field]
    assert not is_same(foreign, new_one())


@pytest.mark.parametrize("field", OF_THE_POD)
def test_a_prepared_job_with_a_field_of_the_pod_is_not_ours(field):
    foreign = as_stored(made())
    spec_of(foreign)[field] = OF_THE_POD[field]
    assert not is_same(foreign, new_one())


@pytest.mark.parametrize("field", OF_THE_JOB)
def test_a_prepared_job_with_a_field_of_its_own_is_not_ours(field):
    foreign = as_stored(made())
    foreign["spec"][field] = OF_THE_JOB[field]
    assert not is_same(foreign, new_one())


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_a_prepared_job_with_another_label_or_annotation_of_its_pods_is_not_ours(part):
    """Webhooks inject containers by them."""
    foreign = as_stored(made())
    foreign["spec"]["template"]["metadata"][part]["sidecar.istio.io/inject"] = "true"
    assert not is_same(foreign, new_one())


@pytest.mark.parametrize("service", ["a" * 63, "a" * 35 + "-" + "b" * 20])
def test_a_long_name_is_a_name(service):
    name = made(service=service, scope="bench-a1b2c3")["metadata"]["name"]
    assert len(f"{name}-98") <= 63  # a pod's host name
    assert "--" not in made(service=service)["metadata"]["name"]


def test_the_python_of_the_engines_command_is_taken():
    other = copy.deepcopy(POD)
    other["spec"]["containers"][1]["command"] = [
        "/opt/venv/bin/python3",
        "-m",
        "vllm.entrypoints.openai.api_server",
    ]
    assert spec_of(made(other))["containers"][0]["command"][0] == "/opt/venv/bin/python3"
    other["spec"]["containers"][1]["command"] = ["vllm", "serve"]
    assert spec_of(made(other))["containers"][0]["command"][0] == "python3"


PROBE = """
import json, pathlib, sys
here = pathlib.Path(sys.argv[0]).parent
print(json.dumps([sys.argv[1:], sorted(path.name for path in here.iterdir())]))
"""


def test_the_scripts_are_in_the_command_and_no_other_object_decides_what_runs(tmp_path):
    """The attack: a ConfigMap of the scripts' name with another agent.py. There is no such ConfigMap any more."""
    command = spec_of(made())["containers"][0]["command"]
    assert "configMap" not in json.dumps(made())
    ran = subprocess.run(
        [sys.executable, *with_agent(command, PROBE)[1:]],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    assert json.loads(ran.stdout) == [["8765", "900", OWNER], ["agent.py", "paced.py", "stream.py"]]
    assert len(json.dumps(command)) < 30_000


def with_agent(command, text):
    """The command with another agent in the place of the first script."""
    files = json.loads(zlib.decompress(base64.b64decode(command[3])))
    files["agent.py"] = text
    return [
        *command[:3],
        base64.b64encode(zlib.compress(json.dumps(files).encode())).decode(),
        *command[4:],
    ]


@pytest.mark.parametrize(
    ("job", "ended"),
    [
        ({"metadata": {}}, False),
        (
            {"metadata": {}, "status": {"conditions": [{"type": "Complete", "status": "True"}]}},
            True,
        ),
        ({"metadata": {}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}}, True),
        (
            {"metadata": {}, "status": {"conditions": [{"type": "Failed", "status": "False"}]}},
            False,
        ),
        ({"metadata": {}, "status": {"failed": 1, "active": 1}}, True),
        ({"metadata": {}, "status": {"succeeded": 1, "active": 1}}, True),
        ({"metadata": {}, "status": {"active": 2, "failed": 0}}, False),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, True),
    ],
)
def test_when_it_is_over(job, ended):
    assert is_finished(job) is ended


def pod(phase, *, ready=None, **state):
    status = (
        {"phase": phase, "containerStatuses": [{"name": "load", "state": state}]}
        if state
        else {"phase": phase}
    )
    return {"metadata": {"name": "load-x", "uid": "u"}, "spec": {}, "status": status}


REFUSED = 'pods "load-x" is forbidden: exceeded quota: small, requested: requests.memory=2Gi, limited: 1Gi'
UNBOUND = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/2 nodes are available: 2 Insufficient cpu.",
}


@pytest.mark.parametrize(
    ("found", "events", "message", "final"),
    [
        (
            None,
            [{"reason": "FailedCreate", "message": REFUSED}],
            f"its pod is refused: {REFUSED}",
            False,
        ),
        (
            pod("Running", terminated={"reason": "OOMKilled", "exitCode": 137}),
            [],
            "pod load-x: OOMKilled with code 137; its memory limit is 4Gi",
            True,
        ),
        (
            pod("Failed", terminated={"reason": "Error", "exitCode": 1}),
            [],
            "pod load-x: Error with code 1",
            True,
        ),
        (
            pod("Succeeded", terminated={"reason": "Completed", "exitCode": 0}),
            [],
            "Completed with code 0",
            True,
        ),
        (
            pod(
                "Pending",
                waiting={
                    "reason": "ImagePullBackOff",
                    "message": "failed to pull image: not found",
                },
            ),
            [],
            "ImagePullBackOff: failed to pull image: not found",
            True,
        ),
        (
            {**pod("Pending"), "status": {"phase": "Pending", "conditions": [UNBOUND]}},
            [],
            "pod load-x cannot be scheduled: 0/2 nodes are available: 2 Insufficient cpu.",
            False,
        ),
        (
            {
                **pod("Pending"),
                "status": {"phase": "Pending", "conditions": [{**UNBOUND, "status": "True"}]},
            },
            [{"reason": "FailedMount", "message": 'configmap "load" not found'}],
            'pod load-x waits: configmap "load" not found',
            False,
        ),
    ],
)
def test_its_troubles_in_the_clusters_own_words(found, events, message, final):
    actual_pod_problem = pod_problem(found, events)
    assert message in actual_pod_problem.message
    assert actual_pod_problem.final is final


def test_no_trouble():
    assert pod_problem(None, []) is None
    assert pod_problem(pod("Running", running={"startedAt": "now"}), []) is None
