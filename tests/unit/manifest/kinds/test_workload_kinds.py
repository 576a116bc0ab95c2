"""Deployment, StatefulSet and LeaderWorkerSet: read, edited and restored, judged by another YAML reader."""

from __future__ import annotations

import argparse
import json
import textwrap

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from service_samples import EAGLE3, METHODS, NGRAM

from mpctl.errors import InputError
from mpctl.manifest import foreign_changes, load, load_one
from mpctl.manifest.draft_storage import with_claim, without_draft

few = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: qwen
  namespace: chat  # the team's
spec:
  replicas: 2
  selector: {matchLabels: {app: qwen}}
  template:
    metadata: {labels: {app: qwen}}
    spec:
      containers:
      - name: log-shipper
        image: fluent/fluent-bit:3
        args: [-c, /etc/vllm.conf]
      - name: engine
        image: vllm/vllm-openai:v0.33.0
"""
STATEFUL_SET = DEPLOYMENT.replace("kind: Deployment", "kind: StatefulSet")
GROUP = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: qwen
  namespace: chat
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers:
        - name: worker
          image: vllm/vllm-openai:v0.33.0
          command: [sh, -c, "bash multi-node-serving.sh worker --ray_address=$(LWS_LEADER_ADDRESS)"]
    leaderTemplate:
      spec:
        containers:
        - name: leader
          image: vllm/vllm-openai:v0.33.0
"""
HEADS = {
    "Deployment": (DEPLOYMENT, 8),
    "StatefulSet": (STATEFUL_SET, 8),
    "LeaderWorkerSet": (GROUP, 10),
}
SERVICE = "---\napiVersion: v1\nkind: Service\nmetadata: {name: qwen}\nspec: {ports: [{port: 80, targetPort: 8000}]}\n"

FORMS = {
    "entrypoint": "args: [--model=Qwen/Qwen3-8B, --port, '8000']\n",
    "command": "command: [vllm, serve, Qwen/Qwen3-8B]\nargs:\n- --port=8000  # as the Service\n- --enforce-eager\n",
    "module": "command:\n- python3\n- -m\n- vllm.entrypoints.openai.api_server\nargs: ['--model', 'Qwen/Qwen3-8B']\n",
    "shell": "command: [/bin/sh, -c]\nargs:\n- >-\n  exec vllm serve Qwen/Qwen3-8B --port 8000 --enforce-eager\n",
    "script": "command: [bash, -c]\nargs:\n- |\n  set -e\n  vllm serve Qwen/Qwen3-8B \\\n    --port 8000 \\\n"
    "    --enforce-eager\n",
    "no-args": "command: [vllm, serve, Qwen/Qwen3-8B]\n",
}


def manifest(kind: str, form: str) -> str:
    head, indent = HEADS[kind]
    return head + textwrap.indent(FORMS[form], " " * indent) + SERVICE


def container_of(text: str) -> dict:
    """The engine's container by PyYAML, by its place in the kind."""
    root = next(yaml.safe_load_all(text))
    spec = root["spec"]
    group = spec.get("leaderWorkerTemplate")
    pod = group["leaderTemplate"]["spec"] if group else spec["template"]["spec"]
    return pod["containers"][-1]


def setting_of(container: dict) -> dict | None:
    """The setting by argparse and, for the one line of a script, the words that a shell would make of it."""
    import shlex

    words = [*container.get("command", []), *container.get("args", [])]
    if words[0].rpartition("/")[2] in ("sh", "bash"):
        words = shlex.split(words[2].replace("\\\n", " "))
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--speculative-config", type=json.loads)
    return parser.parse_known_args(words)[0].speculative_config


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_setting_goes_in_and_out_byte_for_byte(kind, form, newline):
    text = manifest(kind, form).replace("\n", newline)
    service = load_one(text, "qwen")
    assert (service.kind, service.namespace, service.model) == (kind, "chat", "Qwen/Qwen3-8B")
    assert service.image == "vllm/vllm-openai:v0.33.0"
    assert service.speculation() is None
    for config in METHODS:
        changed = service.with_speculation(config)
        assert setting_of(container_of(changed.to_yaml())) == config
        assert foreign_changes(text, changed.to_yaml()) == ()
        assert changed.with_speculation(NGRAM).with_speculation(None).to_yaml() == text


values = (
    st.integers(0, 9)
    | st.sampled_from(["a b", "it's", 'q"q', "{x}", "[1,2]", "#", ": "])
    | st.booleans()
)


@few
@given(
    st.sampled_from(sorted(HEADS)),
    st.sampled_from(sorted(FORMS)),
    st.dictionaries(
        st.sampled_from(["method", "model", "num_speculative_tokens", "x"]), values, min_size=1
    ),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", "# a note\n", "\n\n"]),
)
def test_any_setting_goes_in_and_out(kind, form, config, newline, before):
    text = (before + manifest(kind, form)).replace("\n", newline)
    changed = load(text)[0].with_speculation(config)
    assert setting_of(container_of(changed.to_yaml())) == config
    assert changed.with_speculation(None).to_yaml() == text


def test_leader_and_workers_that_start_vllm_are_edited_together():
    text = GROUP.replace(
        'command: [sh, -c, "bash multi-node-serving.sh worker --ray_address=$(LWS_LEADER_ADDRESS)"]',
        "args: [Qwen/Qwen3-8B, --nnodes=2, --node-rank=1, --headless]",
    )
    text += "          args:\n          - Qwen/Qwen3-8B\n          - --nnodes=2\n"
    service = load_one(text, None)
    changed = service.with_speculation(NGRAM)
    template = yaml.safe_load(changed.to_yaml())["spec"]["leaderWorkerTemplate"]
    for part in ("leaderTemplate", "workerTemplate"):
        assert setting_of(template[part]["spec"]["containers"][0]) == NGRAM
    assert changed.with_speculation(None).to_yaml() == text
    one_sided = text + '          - \'--speculative-config={"method": "ngram"}\'\n'
    with pytest.raises(InputError, match="different speculative settings"):
        load_one(one_sided, None).speculation()


def test_without_a_leader_template_the_worker_template_is_the_engine():
    text = GROUP[: GROUP.index("    leaderTemplate")].replace(
        "          command: [sh", "          args: [m]\n#"
    )
    changed = load_one(text, None).with_speculation(NGRAM)
    assert changed.speculation() == NGRAM
    assert changed.with_speculation(None).to_yaml() == text


def test_a_draft_on_a_claim_is_mounted_and_unmounted():
    text = manifest("Deployment", "command")
    staged = with_claim(load_one(text, None), "models", "eagle3")
    pod = next(yaml.safe_load_all(staged.to_yaml()))["spec"]["template"]["spec"]
    assert pod["volumes"] == [
        {"name": "mpctl-draft", "persistentVolumeClaim": {"claimName": "models", "readOnly": True}}
    ]
    assert pod["containers"][1]["volumeMounts"][0]["mountPath"] == "/mnt/mpctl/draft"
    changed = staged.with_speculation(EAGLE3)
    assert foreign_changes(text, changed.to_yaml()) == ()
    assert without_draft(changed).with_speculation(None).to_yaml() == text


def test_the_claim_that_holds_the_model_is_its_storage():
    form = (
        "args: [--model=/models/qwen]\nvolumeMounts: [{name: m, mountPath: /models, subPath: a}]\n"
    )
    text = DEPLOYMENT.replace(
        "      containers:",
        "      volumes: [{name: m, persistentVolumeClaim: {claimName: c}}]\n      containers:",
        1,
    )
    service = load_one(text + textwrap.indent(form, " " * 8), None)
    assert [(one.uri, one.mount_path) for one in service.storage] == [("pvc://c/a", "/models")]


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("ghcr.io/vllm-project/production-stack/vllm-router:1", "args: [--service-discovery, k8s]"),
        ("nginx:1", "args: [--upstream, 'http://vllm:8000']"),
        ("ghcr.io/llm-d/llm-d-inference-sim:latest", "args: [--model, m, --max-model-len, '1024']"),
        (
            "lmsysorg/sglang:v0.5.23",
            "command: [python3, -m, sglang.launch_server, --served-model-name, m]",
        ),
        ("vllm/vllm-openai:v0.33.0", "command: [sleep, infinity]"),
    ],
)
def test_a_deployment_that_is_no_engine_is_no_service(image, words):
    text = DEPLOYMENT.replace("vllm/vllm-openai:v0.33.0", image) + f"        {words}\n"
    with pytest.raises(InputError, match="no served model in this file; it holds Deployment"):
        load(text)
    beside = (
        text + "---\n" + manifest("Deployment", "command").replace("name: qwen", "name: other", 1)
    )
    assert [service.name for service in load(beside)] == ["other"]


def test_two_engines_in_one_pod_are_refused():
    text = manifest("Deployment", "command").replace(
        "image: fluent/fluent-bit:3", "image: vllm/vllm-openai:v0.33.0"
    )
    with pytest.raises(InputError, match="more than one container of the pod template runs vLLM"):
        load(text)


def test_a_kind_that_is_not_read_is_named_with_what_can_be_done():
    text = "apiVersion: workload.serving.volcano.sh/v1alpha1\nkind: ModelServing\nmetadata: {name: a}\n"
    with pytest.raises(InputError, match="it holds ModelServing") as caught:
        load(text)
    assert "spec.template.roles" in caught.value.hint
    assert "docs/reference/kinds.md" in caught.value.hint


@pytest.mark.parametrize("image", ["", "        image: registry.example.com/team/serving:7\n"])
def test_flags_that_only_vllm_has_show_the_engine_where_the_image_does_not(image):
    """A patch of Kustomize names no image; a team's own image has any name."""
    head = DEPLOYMENT.replace("        image: vllm/vllm-openai:v0.33.0\n", image)
    text = head + "        args: [--model=m, --max-model-len=2048]\n"
    changed = load_one(text, None).with_speculation(NGRAM)
    assert setting_of(container_of(changed.to_yaml())) == NGRAM
    assert changed.with_speculation(None).to_yaml() == text
