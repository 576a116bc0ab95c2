"""A copy of a shared runtime for one service: a document more, and every byte back."""

from __future__ import annotations

import pytest
import yaml
from service_samples import METHODS, NGRAM

from mpctl.errors import InputError
from mpctl.manifest import load, load_one
from mpctl.manifest.draft_storage import with_claim, with_speculation, without_draft
from mpctl.manifest.runtime_copy import with_runtime_copy, without_runtime_copy

RUNTIME = """\
# of the platform team
apiVersion: serving.kserve.io/v1alpha1
kind: ClusterServingRuntime
metadata:
  name: vllm-runtime
  uid: 1-2-3
spec:
  supportedModelFormats: [{name: vLLM, autoSelect: true}]  # offered to all
  containers:
  - name: kserve-container
    image: vllm/vllm-openai:v0.33.0
    # the shell passes no arguments on
    command: [sh, -c]
    args:
    - |
      exec vllm serve /mnt/models \\
        --port 8080
"""
USER = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: qwen, namespace: ml}
spec:
  predictor:
    model:
      modelFormat: {name: vLLM}
      runtime: RUNTIME  # shared
      storageUri: hf://Qwen/Qwen3-8B
"""
PLAIN = USER.replace("RUNTIME", "vllm-runtime")
FILES = {
    "the runtime first": f"{RUNTIME}---\n{PLAIN}",
    "the service first": f"{PLAIN}---\n{RUNTIME}",
    "no break at the end": f"{RUNTIME}---\n{PLAIN}".rstrip("\n"),
    "Windows": f"{RUNTIME}---\n{PLAIN}".replace("\n", "\r\n"),
    "quoted": f"{RUNTIME}---\n{USER.replace('RUNTIME', repr('vllm-runtime'))}# end\n\n",
    "a comment behind": f"---\n{PLAIN}---\n{RUNTIME}...\n# end",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_a_copy_carries_the_setting_and_goes_byte_for_byte(text):
    service = load_one(text, None)
    with pytest.raises(InputError, match="passes no arguments on"):
        service.with_speculation(NGRAM)
    copied = with_runtime_copy(service)
    assert (copied.runtime, copied.copy_of) == ("vllm-runtime-qwen", "ClusterServingRuntime/vllm-runtime")
    assert with_runtime_copy(copied) is copied
    for config in METHODS:
        changed = copied.with_speculation(config)
        assert changed.speculation() == config
        before, after = list(yaml.safe_load_all(text)), list(yaml.safe_load_all(changed.text))
        runtime = next(one for one in after if one["kind"] == "ServingRuntime")
        assert runtime["metadata"].keys() == {"name", "namespace", "labels", "annotations"}
        assert runtime["metadata"]["namespace"] == "ml"
        assert runtime["spec"]["supportedModelFormats"] == [{"name": "vLLM", "autoSelect": False}]
        assert "--speculative-config" in runtime["spec"]["containers"][0]["args"][0]
        assert next(one for one in after if one["kind"] == "ClusterServingRuntime") in before
        assert without_runtime_copy(changed.with_speculation(None)).text == text
        assert without_runtime_copy(load(changed.text)[0].with_speculation(NGRAM).with_speculation(None)).text == text


def test_a_draft_is_mounted_by_the_service_and_not_by_its_runtime():
    text = FILES["the runtime first"]
    config = {**NGRAM, "method": "eagle3", "model": "/mnt/mpctl/draft"}
    changed = with_speculation(with_claim(with_runtime_copy(load_one(text, None)), "drafts", "head"), config)
    service = next(one for one in yaml.safe_load_all(changed.text) if one["kind"] == "InferenceService")
    assert service["spec"]["predictor"]["volumes"][0]["name"] == "mpctl-draft"
    assert service["spec"]["predictor"]["model"]["volumeMounts"][0]["name"] == "mpctl-draft"
    back = without_runtime_copy(without_draft(load_one(changed.text, None)).with_speculation(None))
    assert back.text == text


def test_a_copy_of_a_runtime_with_a_setting_stays_because_the_service_would_inherit_it_again():
    text = FILES["the service first"].replace(
        "--port 8080", '--port 8080 --speculative-config \'{"method": "suffix"}\''
    )
    copied = with_runtime_copy(load_one(text, None))
    assert copied.speculation() == {"method": "suffix"}
    bare = copied.with_speculation(None)
    assert bare.speculation() is None
    assert without_runtime_copy(bare) is bare


def test_a_copy_whose_original_is_elsewhere_stays():
    copied = with_runtime_copy(load_one(FILES["the runtime first"], None))
    alone = load_one(copied.text[copied.text.index("---\n") + 4 :], None)
    assert alone.copy_of and without_runtime_copy(alone) is alone


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PLAIN, "ServingRuntime vllm-runtime is not in this file"),
        (PLAIN.replace("runtime: vllm-runtime", "args: [--port=8080]"), "names no runtime"),
        (f"{{{RUNTIME[RUNTIME.index('apiVersion') :]}", "not valid YAML"),
        (f"{PLAIN.replace('vllm-runtime', '&r vllm-runtime')}---\n{RUNTIME}---\na: 1\nkind: C\n", ""),
        (f"---\n  {RUNTIME.replace(chr(10), chr(10) + '  ').rstrip()}\n---\n{PLAIN}", "cannot be copied"),
        (
            f"{RUNTIME}---\n{PLAIN.replace('vllm-runtime', '|-' + chr(10) + '        vllm-runtime')}",
            "cannot be edited here",
        ),
        (f"{RUNTIME}---\n{PLAIN}".rstrip() + "\n---\n" + RUNTIME.replace("vllm-runtime", "vllm-runtime-qwen"), ""),
    ],
)
def test_what_cannot_be_copied_is_refused_before_anything_is_written(text, message):
    if not message:  # an anchor that nothing repeats; a name that is taken by a cluster-wide runtime
        assert without_runtime_copy(with_runtime_copy(load_one(text, None))).text == text
        return
    with pytest.raises(InputError, match=message):
        with_runtime_copy(load_one(text, None))


def test_a_service_that_sets_speculation_itself_keeps_it_there():
    text = FILES["the runtime first"].rstrip() + "\n      args: [--speculative-config.method=suffix]\n"
    copied = with_runtime_copy(load_one(text.replace("command: [sh, -c]", "command: [sh, -c]"), None))
    with pytest.raises(InputError, match="which count more than its copy"):
        copied.with_speculation(NGRAM)
