"""Options that name a runtime or Helm values instead of a service's manifest."""

from __future__ import annotations

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
    assert "cannot be combined" in cli("render", "-f", str(runtime), "--values", str(values), "--spec", "ngram").err
    assert "needs --values" in cli("render", "-f", str(runtime), "--chart-key", "a", "--spec", "ngram").err
    assert "add -f FILE" in cli("render", "qwen", "--shared-runtime", "--spec", "ngram").err
