"""A VLLMRuntime changed and rolled back exactly, by the role that ``mpctl rbac --allow deployments`` prints.

Its operator is a script here, which compares and writes what the real one does (production-stack, 2026-08,
``deploymentNeedsUpdate``): a changed argument alone is not seen. The definition has the fields that are used, with the
operator's defaults. Not there: the real operator and its definition, VLLMRouters, KEDA, storage, LoRA's sidecar.
"""

import threading

import pytest

from mpctl.platform.kubernetes.access.rbac import roles, subject_of
from mpctl.platform.kubernetes.service.manifest_text import text_of

from .fenced import unlocked
from .measurement import LOCAL
from .objects import ANY_SPEED
from .roles import Granted

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PODS = {
    "replicas": {"type": "integer", "default": 1},
    "deploymentStrategy": {
        "type": "string",
        "enum": ["RollingUpdate", "Recreate"],
        "default": "RollingUpdate",
    },
    "image": _OPEN,
    "podAnnotations": _OPEN,
}
_CONFIG = {
    "port": {"type": "integer", "default": 8000},
    "extraArgs": {"type": "array", "items": {"type": "string"}},
    "enablePrefixCaching": {"type": "boolean"},
}
_SPEC = {
    "model": _OPEN,
    "vllmConfig": {"type": "object", "properties": _CONFIG},
    "deploymentConfig": {"type": "object", "properties": _PODS},
    "autoscalingConfig": _OPEN,
}
_SCHEMA = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": _SPEC}, "status": _OPEN},
}
_NAMES = {"kind": "VLLMRuntime", "plural": "vllmruntimes", "singular": "vllmruntime"}
_VERSION = {
    "name": "v1alpha1",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": _SCHEMA},
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "vllmruntimes.production-stack.vllm.ai"},
    "spec": {
        "group": "production-stack.vllm.ai",
        "scope": "Namespaced",
        "names": _NAMES,
        "versions": [_VERSION],
    },
}
RUNTIME = """\
apiVersion: production-stack.vllm.ai/v1alpha1
kind: VLLMRuntime
metadata:
  name: chat
  labels: {model: qwen}
spec:
  model: {modelURL: org/target, maxModelLen: 2048}
  vllmConfig:
    enablePrefixCaching: true
    extraArgs: [--served-model-name=qwen]
  deploymentConfig:
    image: {registry: docker.io, name: "vllm/vllm-openai:v0.32.0"}
"""
QUICK = ("--requests", "4", "--repeats", "8", "--max-tokens", "16", *LOCAL)


def deployment_of(runtime):
    spec, metadata = runtime["spec"], runtime["metadata"]
    pods, config, port = spec["deploymentConfig"], spec["vllmConfig"], spec["vllmConfig"]["port"]
    labels = {"app": metadata["name"], **metadata.get("labels", {})}
    owner = {key: runtime[key] for key in ("apiVersion", "kind")} | {
        key: metadata[key] for key in ("name", "uid")
    }
    container = {
        "name": "vllm",
        "image": f"{pods['image']['registry']}/{pods['image']['name']}",
        "command": ["vllm", "serve"],
        "args": [spec["model"]["modelURL"], "--port", str(port), *config.get("extraArgs", [])],
        "ports": [{"name": "http", "containerPort": port}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": port}},
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": metadata["name"], "ownerReferences": [{**owner, "controller": True}]},
        "spec": {
            "replicas": pods["replicas"],
            "strategy": {"type": pods["deploymentStrategy"]},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def differs(present, wanted):
    """Whether the operator sees a difference."""
    found, made = (d["spec"]["template"]["spec"]["containers"][0] for d in (present, wanted))
    compared = [(c["args"][0], c["image"], c["ports"][0]["containerPort"]) for c in (found, made)]
    return compared[0] != compared[1] or present["spec"]["replicas"] != wanted["spec"]["replicas"]


class Operator(threading.Thread):
    """The operator's part that makes Deployments, in one namespace."""

    def __init__(self, client, namespace):
        super().__init__(daemon=True)
        self.client, self.path = client, f"/apis/apps/v1/namespaces/{namespace}/deployments"
        self.ended = threading.Event()

    def run(self):
        while not self.ended.wait(0.2):
            for runtime in self.client.list("vllmruntimes"):
                wanted = deployment_of(runtime)
                present = self.client.find("deployments", runtime["metadata"]["name"])
                if present is None:
                    self.client.request("POST", self.path, wanted)
                elif differs(present, wanted):
                    self.client.request("PUT", f"{self.path}/{runtime['metadata']['name']}", wanted)


@pytest.fixture
def chat(cluster, namespace):
    cluster.pods.rule(lambda pod: {"script": {"token_s": 0.02}})
    cluster.kserve.define([DEFINITION])
    operator = Operator(namespace.client, namespace.name)
    operator.start()
    try:
        namespace.client.apply(RUNTIME)
        namespace.client.wait("the engine serves", lambda: namespace.settled("chat"))
        yield namespace
    finally:
        operator.ended.set()
        operator.join()
        cluster.client.delete("crd", DEFINITION["metadata"]["name"])


def arguments(namespace):
    (container,) = namespace.client.get("deployments", "chat")["spec"]["template"]["spec"][
        "containers"
    ]
    return container["args"]


@pytest.mark.nightly
def test_whoever_takes_its_lease_replaces_no_pod(chat, mpctl):
    assert unlocked(chat, mpctl, "vllmruntimes", "chat") == []


@pytest.mark.nightly  # every kind takes the steps that test_journey_rollout.py tries
def test_a_vllm_runtime_is_rolled_out_and_rolled_back_exactly(chat, cluster, mpctl, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text(ANY_SPEED)
    granted = Granted(cluster, chat.name)
    granted.documents = roles(
        "operator", chat.name, to=[subject_of("user:operator")], allow=["deployments"]
    )
    granted.apply()
    mine = mpctl.as_user(granted.user)
    before = text_of(chat.client.get("vllmruntimes", "chat"))

    (status,) = mine.json("status")["items"]
    assert (status["metadata"]["name"], status["status"]["state"]) == ("chat", "Ready")
    mine("rollout", "chat", "--spec", "ngram", "--policy", str(policy), *QUICK)
    assert any("--speculative-config" in word for word in arguments(chat))
    assert chat.client.find("vllmruntimes", "chat-candidate") is None
    assert chat.settled("chat")

    mine("rollback", "chat")
    assert text_of(chat.client.get("vllmruntimes", "chat")) == before
    assert arguments(chat)[-1] == "--served-model-name=qwen"
    mine(
        "rollout",
        "chat",
        "--spec",
        "ngram",
        "--strategy",
        "in-place",
        "--policy",
        str(policy),
        *QUICK,
    )
    assert any("--speculative-config" in word for word in arguments(chat))
    mine("rollback", "chat")
    assert text_of(chat.client.get("vllmruntimes", "chat")) == before
    endings = [operation["ending"] for operation in mine.json("history", "chat")["operations"]]
    assert endings == ["promoted", "rolled back"] * 2
    granted.remove()
