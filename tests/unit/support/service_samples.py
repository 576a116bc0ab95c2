"""Small manifests for the tests of mpctl.manifest."""

from __future__ import annotations

import textwrap

NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 5,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
}
EAGLE3 = {"method": "eagle3", "model": "/mnt/models/draft", "num_speculative_tokens": 3}
METHODS = [
    NGRAM,
    EAGLE3,
    {"method": "suffix", "num_speculative_tokens": 16, "suffix_decoding_max_tree_depth": 24},
    {"method": "draft_model", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 4},
    {"method": "mtp", "num_speculative_tokens": 1},
    {"model": "o'brien/$draft", "num_speculative_tokens_per_batch_size": [[1, 16, 3], [17, 64, 0]]},
]

HEAD = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: svc
  namespace: chat
spec:
  predictor:
    minReplicas: 1
    containers:
    - name: kserve-container
      image: vllm/vllm-openai:v0.23.0
"""


def container(body: str) -> str:
    """An InferenceService whose container has ``body`` (unindented) after name and image."""
    return HEAD + textwrap.indent(textwrap.dedent(body), "      ")


def script(body: str, style: str = "|") -> str:
    """An InferenceService that starts its engine with ``sh -c`` and the script ``body``."""
    text = (
        "command: [sh, -c]\nargs:\n- " + style + "\n" + textwrap.indent(textwrap.dedent(body), "  ")
    )
    return HEAD + textwrap.indent(text, "      ")


RUNTIME = """\
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata:
  name: vllm-runtime
spec:
  supportedModelFormats: [{name: vLLM}]
  containers:
  - name: kserve-container
    image: vllm/vllm-openai:v0.33.0
    command: [python, -m, vllm.entrypoints.openai.api_server]
    args:
    - --port=8080
    - --model=/mnt/models
    - --served-model-name={{.Name}}
"""
USER = """\
---
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: qwen}
spec:
  predictor:
    model:
      modelFormat: {name: vLLM}
      runtime: vllm-runtime
      storageUri: hf://Qwen/Qwen3-8B
"""
