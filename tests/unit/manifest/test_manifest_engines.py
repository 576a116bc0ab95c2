"""Other engines are recognised by image, command and runtime, and refused with what to do instead."""

from __future__ import annotations

import pytest
from service_samples import HEAD

from mpctl.errors import InputError
from mpctl.manifest import load
from mpctl.manifest.engine.recognition import other_engine

MODEL = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: s}
spec:
  predictor:
    model:
      modelFormat: {name: %s}
      runtime: %s
      storageUri: hf://a/b
"""


@pytest.mark.parametrize(
    ("image", "command", "engine"),
    [
        ("lmsysorg/sglang:v0.5.4", "[python3, -m, sglang.launch_server, --model, x]", "SGLang"),
        ("registry.example/llm:1", "[python3, -m, sglang.launch_server, --model, x]", "SGLang"),
        ("lmsysorg/sglang:v0.5.4", "[sh, -c, 'exec python3 -m sglang.launch_server --model x']", "SGLang"),
        # SGLang has flags of the same name as vLLM's
        ("lmsysorg/sglang:latest", "[python3, --served-model-name, x, --max-model-len, '1']", "SGLang"),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.2.0", "[trtllm-serve, x, --config, /c.yaml]", "TensorRT-LLM"),
        ("registry.example/llm:1", "[trtllm-serve, x]", "TensorRT-LLM"),
    ],
)
def test_a_container_of_another_engine(image, command, engine):
    text = HEAD.replace("vllm/vllm-openai:v0.23.0", image) + f"      command: {command}\n"
    with pytest.raises(InputError, match=f"the engine is {engine}: .* could not be measured") as caught:
        load(text, file="s.yaml")
    assert caught.value.hint == f"measure speculation on {engine} with its own tools, or serve the model with vLLM"
    assert caught.value.line


@pytest.mark.parametrize(
    "texts",
    [
        ["vllm/vllm-openai:v0.32.0", """--speculative-config={"model": "lmsys/SGLang-EAGLE3-X"}"""],
        ["vllm/vllm-openai:v0.32.0", "--speculative-config", """{"model": "lmsys/SGLang-EAGLE3-X"}"""],
        ["--speculative-config.model=lmsys/SGLang-EAGLE3-X"],
        ["""vllm serve q/q --speculative-config '{"method": "eagle3", "model": "lmsys/SGLang-EAGLE3-X"}' --port 80"""],
        ["""vllm serve q/q --speculative-config "{\\"model\\": \\"lmsys/SGLang-EAGLE3-X\\"}" """],
        ["vllm serve q/q --model lmsys/TensorRT-LLM-Q"],
    ],
)
def test_a_draft_of_that_name_makes_no_other_engine(texts):
    assert other_engine(texts) is None
    assert other_engine([*texts, "exec", "python3 -m sglang.launch_server --model x"]) == "sglang"
    assert other_engine(["pip install --upgrade sglang && trtllm-serve x"]) == "tensorrt-llm"


@pytest.mark.parametrize(
    ("form", "runtime", "engine"),
    [("sglang", "kserve-sglang", "SGLang"), ("llm", "trtllm-runtime", "TensorRT-LLM")],
)
def test_a_runtime_of_another_engine(form, runtime, engine):
    with pytest.raises(InputError, match=f"the engine is {engine}"):
        load(MODEL % (form, runtime))


def test_a_modelplane_engine_of_another_kind():
    text = (
        "apiVersion: modelplane.ai/v1alpha1\nkind: ModelDeployment\nmetadata: {name: m, namespace: n}\nspec:\n"
        "  replicas: 1\n  template:\n    spec:\n      engines:\n      - name: e\n        members:\n"
        "        - role: Standalone\n          template:\n            spec:\n              containers:\n"
        "              - name: engine\n                image: lmsysorg/sglang:v0.5\n                args: [--model=x]\n"
    )
    with pytest.raises(InputError, match="the engine is SGLang"):
        load(text)


def test_vllm_is_vllm():
    assert other_engine(["vllm/vllm-openai:v0.23.0", "--max-model-len=1", None]) is None
    assert load(HEAD + "      args: [--model=x]\n")[0].image == "vllm/vllm-openai:v0.23.0"
