"""Options that name a runtime or Helm values instead of a service's manifest."""

from __future__ import annotations

import pytest
from service_samples import RUNTIME, USER

STACK = """\
# values of the team
servingEngineSpec:
  runtimeClassName: ""
  modelSpec:
  - name: "qwen"
    repository: "vllm/vllm-openai"
    tag: "v0.33.0"
    modelURL: "Qwen/Qwen3-8B"
    vllmConfig:
      enablePrefixCaching: true
      extraArgs: ["--max-num-seqs", "64"]
  - name: "llama"
    modelURL: "meta-llama/Llama-3.1-8B-Instruct"
    vllmConfig:
      maxModelLen: 4096
"""


def test_a_runtime_or_values_are_read_where_they_are_named(cli):
    runtime, values = cli.directory / "runtime.yaml", cli.directory / "values.yaml"
    runtime.write_text(RUNTIME + USER)
    values.write_text(STACK)
    shared = cli("render", "-f", str(runtime), "--shared-runtime", "--spec", "ngram")
    assert shared.code == 0
    assert "[shared-runtime] every InferenceService in its namespace" in shared.err
    assert "qwen in this file" in shared.err
    done = cli("render", "llama", "--values", str(values), "--spec", "ngram")
    assert "extraArgs:" in done.out
    assert done.code == 0
    assert cli("render", "--values", str(values), "--spec", "ngram").code == 2
    assert (
        "cannot be combined"
        in cli("render", "-f", str(runtime), "--values", str(values), "--spec", "ngram").err
    )
    assert (
        "needs --values"
        in cli("render", "-f", str(runtime), "--chart-key", "a", "--spec", "ngram").err
    )
    assert "add -f FILE" in cli("render", "qwen", "--shared-runtime", "--spec", "ngram").err


VLLM_RUNTIME = """\
apiVersion: production-stack.vllm.ai/v1alpha1
kind: VLLMRuntime
metadata: {name: chat}
spec:
  model: {modelURL: org/target}
  vllmConfig:
    v1: true
"""
WORKSPACE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: params}
data:
  inference_config.yaml: |
    vllm:
      max-model-len: 2048
---
apiVersion: kaito.sh/v1beta1
kind: Workspace
metadata: {name: chat}
inference: {preset: {name: org/target}, config: params}
"""


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (VLLM_RUNTIME, "kubectl delete deployment chat"),
        (WORKSPACE, "kubectl rollout restart statefulset chat"),
    ],
)
def test_who_applies_a_kind_whose_pods_stay_as_they_are_is_told_so(cli, text, command):
    manifest, changed = cli.directory / "service.yaml", cli.directory / "changed.yaml"
    manifest.write_text(text)
    done = cli("render", "-f", str(manifest), "--spec", "ngram")
    assert (done.code, command in done.err) == (0, True)
    changed.write_text(done.out)
    assert cli("render", "-f", str(changed), "--spec", "none").out == text
