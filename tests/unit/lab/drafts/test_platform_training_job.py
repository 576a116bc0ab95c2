"""The objects that train a head in a cluster: what they hold and what they never hold."""

import base64
import hashlib
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpctl.errors import InputError
from mpctl.lab.drafts.card import StartHead, Target, prompt_digest
from mpctl.lab.drafts.order import Images, Split, TrainingOrder, digest_of
from mpctl.lab.training_job.manifest import (
    JobForm,
    Volume,
    object_name,
    stage_commands,
    training_objects,
)

SERVING = {
    "metadata": {"name": "qwen-0", "labels": {}},
    "spec": {
        "nodeSelector": {"cloud.google.com/gke-accelerator": "nvidia-l4"},
        "tolerations": [{"key": "nvidia.com/gpu"}, {"key": "node.kubernetes.io/not-ready"}],
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
        "initContainers": [
            {
                "name": "storage-initializer",
                "image": "kserve/storage-initializer:v0.20.0",
                "args": ["hf://Qwen/Qwen3-8B", "/mnt/models"],
                "volumeMounts": [
                    {"name": "models", "mountPath": "/mnt/models"},
                    {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
                ],
            },
            {"name": "unrelated", "image": "busybox", "volumeMounts": []},
        ],
        "containers": [
            {
                "name": "kserve-container",
                "image": "vllm/vllm-openai:v0.32.0",
                "env": [
                    {"name": "HF_HOME", "value": "/tmp/hf"},
                    {"name": "VLLM_API_KEY", "value": "sk-planted"},
                ],
                "resources": {"limits": {"cpu": "4"}, "claims": [{"name": "gpu"}]},
                "volumeMounts": [
                    {"name": "models", "mountPath": "/mnt/models"},
                    {"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
                    {"name": "shm", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "models", "emptyDir": {}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {
                "name": "token",
                "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]},
            },
        ],
    },
}
COMMANDS = {
    stage: [stage, "--folder", "/mpctl/drafts/drafts/qwen-7"]
    for stage in ("collect", "train", "card")
}
FORM = JobForm(Volume(30), COMMANDS)


def order_of(prompts=("first prompt", "second prompt"), *, name="qwen-7"):
    return TrainingOrder(
        name=name,
        service="qwen",
        method="eagle3",
        target=Target("/mnt/models"),
        salt="5a17",
        training=tuple(prompt_digest(prompt, "5a17") for prompt in prompts),
        holdout=(prompt_digest("held out", "5a17"),),
        prompts=digest_of(Split(tuple(prompts), ("held out",)), "5a17"),
        command=("speculators", "train"),
        start=StartHead("/mnt/models/head", ""),
        images=Images("vllm/vllm-openai@sha256:1f", "speculators@sha256:2e"),
    )


def job_of(form=FORM):
    *_, job = training_objects(order_of(), form, SERVING, "ml")
    return job


def test_the_stages_run_one_after_the_other_on_the_gpu_of_the_service():
    spec = job_of()["spec"]["template"]["spec"]
    names = [container["name"] for container in (*spec["initContainers"], *spec["containers"])]
    assert names == ["storage-initializer", "collect", "train", "card"]
    stages = [c for c in (*spec["initContainers"], *spec["containers"]) if c["name"] in COMMANDS]
    assert [c["image"] for c in stages] == [
        "vllm/vllm-openai@sha256:1f",
        "speculators@sha256:2e",
        "vllm/vllm-openai@sha256:1f",
    ]
    assert all(c["resources"]["claims"] == [{"name": "gpu"}] for c in stages)
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    assert spec["nodeSelector"] == SERVING["spec"]["nodeSelector"]
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu"}]


def test_no_container_can_speak_to_the_api_server_or_change_the_targets_files():
    spec = job_of()["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    mounts = [m for c in (*spec["initContainers"], *spec["containers"]) for m in c["volumeMounts"]]
    assert not [m for m in mounts if "serviceaccount" in m["mountPath"]]
    assert not [v for v in spec["volumes"] if "projected" in v or "secret" in v]
    stages = [c for c in (*spec["initContainers"], *spec["containers"]) if c["name"] in COMMANDS]
    models = [m for c in stages for m in c["volumeMounts"] if m["mountPath"] == "/mnt/models"]
    assert [m["readOnly"] for m in models] == [True] * 3
    for container in stages:
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert not container["securityContext"]["allowPrivilegeEscalation"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert {"name": "HF_HUB_OFFLINE", "value": "1"} in container["env"]


def test_a_job_is_suspended_only_where_a_queue_resumes_it():
    assert "suspend" not in job_of()["spec"]
    queued = job_of(JobForm(Volume(30), COMMANDS, queue="gpus"))
    assert queued["spec"]["suspend"] is True
    assert queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"


def test_a_lost_node_costs_no_retry():
    (rule,) = job_of()["spec"]["podFailurePolicy"]["rules"]
    assert rule == {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }


@given(
    prompts=st.lists(
        st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=12), min_size=1
    )
)
def test_no_object_holds_a_prompt_or_a_key(prompts):
    marked = [f"planted-{prompt}" for prompt in prompts]
    text = json.dumps(training_objects(order_of(marked), FORM, SERVING, "ml"))
    assert "planted" not in text


def test_two_orders_of_one_head_have_one_config_map_that_cannot_be_changed():
    _, first, _ = training_objects(order_of(), FORM, SERVING, "ml")
    _, other, _ = training_objects(order_of(("third prompt",)), FORM, SERVING, "ml")
    assert first["immutable"] is True
    assert first["metadata"] == other["metadata"]
    spec = job_of()["spec"]["template"]["spec"]
    assert {"name": "mpctl-order", "configMap": {"name": first["metadata"]["name"]}} in spec[
        "volumes"
    ]


def test_no_object_but_the_job_decides_what_runs_in_its_pod():
    order = order_of()
    _, config, job = training_objects(
        order, JobForm(Volume(30), stage_commands(order)), SERVING, "ml"
    )
    assert list(config["data"]) == ["order.json"]
    digest = hashlib.sha256(config["data"]["order.json"].encode()).hexdigest()
    spec = job["spec"]["template"]["spec"]
    stages = [c for c in (*spec["initContainers"], *spec["containers"]) if c["name"] in COMMANDS]
    for container in stages:
        start, _, loader, packed, stage, _, order_file, *options = container["command"]
        assert (start, stage, options[0]) == ("python3", container["name"], digest)
        assert "stage.py" in json.loads(zlib.decompress(base64.b64decode(packed)))
        assert order_file not in loader
        assert (
            max(map(len, container["command"])) < 128 * 1024
        )  # of one argument: Linux's MAX_ARG_STRLEN
    assert stages[1]["command"][-2:] == ["speculators", "train"]


def test_too_many_prompts_for_an_object_are_refused_with_their_number():
    with pytest.raises(InputError, match="60001 prompts are too many"):
        training_objects(order_of([str(number) for number in range(60_000)]), FORM, SERVING, "ml")


@given(name=st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True))
def test_names_of_objects_fit_a_label(name):
    assert len(object_name(name)) <= 63 - len("-0123456789")
