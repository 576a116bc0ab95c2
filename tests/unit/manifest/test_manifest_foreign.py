"""What two manifests differ in beyond speculation, and what a running engine's arguments say."""

import pytest

from mpctl.manifest import foreign_changes, load_one, speculation_of

SERVICE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: qwen
  labels: {team: ml}
spec:
  predictor:
    minReplicas: 1
    model:
      modelFormat: {name: vLLM}
      storageUri: hf://org/model
      args:
      - --max-model-len=4096
      env:
      - {name: HF_TOKEN, value: secret}
"""
NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
STAGED = """\
    volumes:
    - name: mpctl-draft
      persistentVolumeClaim: {claimName: drafts}
"""
SPECULATES = load_one(SERVICE, None).with_speculation(NGRAM).to_yaml()


def test_the_speculative_setting_and_a_staged_draft_are_mpctls_own():
    assert SPECULATES != SERVICE
    assert foreign_changes(SERVICE, SERVICE) == ()
    assert foreign_changes(SERVICE, SPECULATES) == foreign_changes(SPECULATES, SERVICE) == ()
    assert foreign_changes(SERVICE, SPECULATES + STAGED) == ()
    listed = (
        "storageUris: [{uri: hf://org/model}, {uri: hf://org/draft, mountPath: /mnt/mpctl/draft}]"
    )
    assert foreign_changes(SERVICE, SPECULATES.replace("storageUri: hf://org/model", listed)) == ()


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("team: ml", "team: other", "metadata.labels.team"),
        ("labels: {team: ml}", "labels: {team: ml, more: x}", "metadata.labels.more"),
        ("minReplicas: 1", "minReplicas: 2", "spec.predictor.minReplicas"),
        ("--max-model-len=4096", "--max-model-len=8192", "spec.predictor.model.args[0]"),
        (
            "--max-model-len=4096",
            "--max-model-len=4096\n      - --trust-remote-code",
            "spec.predictor.model.args",
        ),
        ("value: secret", "value: other", "spec.predictor.model.env[0].value"),
        (
            "    minReplicas: 1\n",
            "    minReplicas: 1\n    volumes: [{name: host, hostPath: {path: /}}]\n",
            "spec.predictor.volumes",
        ),
        (
            "    minReplicas: 1\n",
            "    minReplicas: 1\n    volumes: [{name: mpctl-draft, hostPath: {path: /}}]\n",
            "spec.predictor.volumes",
        ),
        ("name: qwen", "name: other", "metadata.name"),
    ],
)
def test_every_other_difference_is_named(old, new, path):
    assert old in SPECULATES
    assert foreign_changes(SERVICE, SPECULATES.replace(old, new, 1)) == (path,)
    assert foreign_changes(SPECULATES.replace(old, new, 1), SERVICE) == (path,)


def test_texts_that_are_no_service_are_compared_whole():
    assert foreign_changes("a: 1\n", "a: 1\n") == ()
    assert foreign_changes("a: 1\n", "a: 2\n") == ("a",)
    assert foreign_changes("a: [\n", "a: 2\n") == ("the whole text",)
    assert foreign_changes("a: 1\n", "a: 1\n---\nb: 2\n") == ("the number of documents",)


CONFIG = '--speculative-config={"method": "ngram", "num_speculative_tokens": 4}'


@pytest.mark.parametrize(
    "argv",
    [
        ("vllm", "serve", "m", CONFIG),
        ("/venv/bin/python", "/venv/bin/vllm", "serve", "m", *CONFIG.split("=", 1)),
        ("--model", "m", CONFIG),
        ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m", CONFIG),
        ("sh", "-c", f"vllm serve m '{CONFIG}'"),
    ],
)
def test_the_setting_is_read_from_what_an_engine_was_started_with(argv):
    assert speculation_of(argv) == NGRAM


@pytest.mark.parametrize("argv", [(), ("vllm", "serve", "m"), ("--model", "m")])
def test_an_engine_without_the_setting_has_none(argv):
    assert speculation_of(argv) is None


RUNTIME = """\
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata: {name: mine}
spec:
  containers:
  - name: kserve-container
    image: vllm/vllm-openai:v0.32.0
    args: ['--speculative-config={"method": "ngram", "num_speculative_tokens": 2}']
---
"""


def test_a_setting_that_a_runtime_has_is_replaced_and_nothing_else_is_foreign():
    before = RUNTIME + SERVICE.replace("name: vLLM}", "name: vLLM}\n      runtime: mine")
    after = load_one(before, None).with_speculation(NGRAM).to_yaml()
    assert before != after
    assert foreign_changes(before, after) == foreign_changes(after, before) == ()
    assert foreign_changes(before, after.replace("team: ml", "team: x")) == (
        "metadata.labels.team",
    )
