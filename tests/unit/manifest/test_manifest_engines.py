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
        (
            "lmsysorg/sglang:v0.5.4",
            "[sh, -c, 'exec python3 -m sglang.launch_server --model x']",
            "SGLang",
        ),
        # SGLang has flags of the same name as vLLM's
        (
            "lmsysorg/sglang:latest",
            "[python3, --served-model-name, x, --max-model-len, '1']",
            "SGLang",
        ),
        (
            "nvcr.io/nvidia/tensorrt-llm/release:1.2.0",
            "[trtllm-serve, x, --config, /c.yaml]",
            "TensorRT-LLM",
        ),
        ("registry.example/llm:1", "[trtllm-serve, x]", "TensorRT-LLM"),
    ],
)
def test_a_container_of_another_engine(image, command, engine):
    text = HEAD.replace("vllm/vllm-openai:v0.23.0", image) + f"      command: {command}\n"
    with pytest.raises(
        InputError, match=f"the engine is {engine}: .* could not be measured"
    ) as caught:
        load(text, file="s.yaml")
    assert (
        caught.value.hint
        == f"measure speculation on {engine} with its own tools, or serve the model with vLLM"
    )
    assert caught.value.line


@pytest.mark.parametrize(
    "texts",
    [
        ["vllm/vllm-openai:v0.32.0", """--speculative-config={"model": "lmsys/SGLang-EAGLE3-X"}"""],
        [
            "vllm/vllm-openai:v0.32.0",
            "--speculative-config",
            """{"model": "lmsys/SGLang-EAGLE3-X"}""",
        ],
        ["--speculative-config.model=lmsys/SGLang-EAGLE3-X"],
        [
            """vllm serve q/q --speculative-config '{"method": "eagle3", "model": "lmsys/SGLang-EAGLE3-X"}' --port 80"""
        ],
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


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: s}
spec:
  template:
    spec:
      containers:
      - {name: c, image: "%s", args: %s}
"""


@pytest.mark.parametrize(
    ("image", "arguments", "engine"),
    [
        ("vllm/vllm-openai:v0.32.0", "[]", True),
        ("vllm/vllm-openai:v0.32.0", "[--model=a/b]", True),
        ("registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2", "[--model=a/b]", True),
        ("quay.io/ascend/vllm-ascend:v0.17.0", "[--model=a/b]", True),
        ("registry.example/team/my-vllm:1", "[--model=a/b]", True),
        ("registry.example/team/my-vllm:1", "[a/b, --port=8000]", True),
        ("registry.example/team/llm:1", "[--model=a/b, --max-model-len=1024]", True),
        ("ghcr.io/vllm-project/semantic-router/extproc:latest", "[--secure=true]", False),
        ("ghcr.io/vllm-project/semantic-router/dashboard:latest", "[]", False),
        (
            "ghcr.io/vllm-project/semantic-router/llm-katan:latest",
            "[llm-katan, --port=8000]",
            False,
        ),
        ("registry.example/anthropic-shim-vllm:1", "[--port=8080]", False),
        ("registry.example/mock-vllm:1", "[--model=a/b]", False),
        ("registry.example/vllm-mock:1", "[--model=a/b]", False),
        ("registry.example/dynamo-mocker-vllm:1", "[--model=a/b]", False),
        ("registry.example/vllm-optimizer-backend:1", "[--port=8080]", False),
        ("registry.example/vllm-optimizer-frontend:1", "[]", False),
        ("registry.example/gradio-rag-milvus-vllm:1", "[--share]", False),
        ("registry.example/chat-with-vllm:1", "[--listen=0.0.0.0]", False),
        ("registry.example/chat-with-vllm:1", "[]", False),
    ],
)
def test_an_engine_is_told_by_its_images_own_name_and_by_words_of_vllm(image, arguments, engine):
    text = DEPLOYMENT % (image, arguments)
    if engine:
        assert load(text, file="s.yaml")[0].name == "s"
        return
    with pytest.raises(InputError, match="no served model"):
        load(text, file="s.yaml")


NO_TEXT = [
    "Qwen/Qwen3-Embedding-8B",
    "BAAI/bge-m3",
    "intfloat/e5-mistral-7b-instruct",
    "Alibaba-NLP/gte-Qwen2-7B-instruct",
    "nomic-ai/nomic-embed-text-v1.5",
    "jinaai/jina-embeddings-v3",
    "nvidia/NV-Embed-v2",
    "sentence-transformers/all-MiniLM-L6-v2",
    "Snowflake/snowflake-arctic-embed-l",
    "google/embeddinggemma-300m",
    "BAAI/bge-reranker-v2-m3",
    "Qwen/Qwen3-Reranker-4B",
    "mixedbread-ai/mxbai-rerank-large-v1",
    "cross-encoder/ms-marco-MiniLM-L6-v2",
    "Skywork/Skywork-Reward-Llama-3.1-8B",
    "openai/whisper-large-v3",
    "openai/whisper-tiny",
    "nvidia/parakeet-tdt-0.6b-v2",
    "black-forest-labs/FLUX.1-dev",
    "stabilityai/stable-diffusion-3.5-large",
    "Qwen/Qwen-Image",
    "google/flan-t5-xl",
    "google-t5/t5-base",
    "facebook/bart-large-cnn",
    "microsoft/layoutlmv3-base",
    "google-bert/bert-base-uncased",
    "FacebookAI/roberta-large",
    "microsoft/deberta-v3-base",
]


@pytest.mark.parametrize("name", NO_TEXT)
def test_a_model_that_generates_no_text_is_refused_by_its_name(name):
    with pytest.raises(InputError, match="generates no text"):
        load(DEPLOYMENT % ("vllm/vllm-openai:v0.32.0", f"[--model={name}]"), file="s.yaml")
    load(
        DEPLOYMENT % ("vllm/vllm-openai:v0.32.0", f"[--model={name}, --runner=generate]"),
        file="s.yaml",
    )


@pytest.mark.parametrize(
    "name",
    ["Qwen/Qwen3-8B", "mistralai/Mistral-7B-Instruct-v0.3", "openai/gpt-oss-120b", "zai-org/GLM-4.5-Air",
     "google/gemma-3-27b-it", "nvidia/NVIDIA-Nemotron-3-Nano-30B", "microsoft/phi-4", "org/rewarding-llm",
     "Qwen/Qwen2.5-VL-7B-Instruct", "org/gated-chat-e50", "LiquidAI/LFM2-8B"],
)  # fmt: skip
def test_a_model_that_generates_text_is_not_refused_by_its_name(name):
    assert (
        load(DEPLOYMENT % ("vllm/vllm-openai:v0.32.0", f"[--model={name}]"), file="s.yaml")[0].model
        == name
    )


def test_openshifts_annotation_of_an_embedding_model_counts():
    text = (MODEL % ("vLLM", "r")).replace(
        "{name: s}", "{name: s, annotations: {opendatahub.io/model-type: embedding}}"
    )
    with pytest.raises(InputError, match=r"opendatahub\.io/model-type is embedding"):
        load(text, file="s.yaml")


SHARED = (
    (MODEL % ("vLLM", "shared"))
    + """\
---
apiVersion: serving.kserve.io/v1alpha1
kind: ServingRuntime
metadata: {name: shared}
spec:
  containers:
  - {name: kserve-container, image: vllm/vllm-openai:v0.32.0, args: [--model=/mnt/models, %s]}
"""
)


@pytest.mark.parametrize(
    ("setting", "wins"),
    [
        ("--speculative-config.method=suffix", True),
        ("--speculative-config.num_speculative_tokens=2", True),
        ("--spec-method=suffix", True),
        ("""'--speculative-config={"method": "suffix"}'""", False),
        ("""-sc, '{"method": "suffix"}'""", False),
    ],
)
def test_a_setting_of_a_runtime_that_vllm_reads_after_the_services_is_refused(setting, wins):
    service = load(SHARED % setting, file="s.yaml")[0]
    config = {"method": "ngram", "num_speculative_tokens": 3}
    if not wins:
        assert service.with_speculation(config).speculation() == config
        return
    with pytest.raises(InputError, match="in place of the service's own"):
        service.with_speculation(config)


LLM = """\
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
metadata: {name: q}
spec:
  model: {uri: hf://Qwen/Qwen3-8B}
  template:
    containers:
    - name: main
      env: [{name: SPEC, value: "%s"}%s]
      %s
"""


@pytest.mark.parametrize(
    ("variable", "arguments"),
    [
        ("", 'args: ["$(SPEC)"]'),
        (', {name: VLLM_ADDITIONAL_ARGS, value: "$(SPEC)"}', ""),
        ("", 'args: ["${SPEC}"]'),
    ],
)
def test_a_setting_in_a_variable_of_an_llm_inference_service_is_seen(variable, arguments):
    manifest = (LLM % ("%s", variable, arguments)).replace("SPEC", "EXTRA")
    service = load(manifest % "--speculative-config.method=suffix", file="s.yaml")[0]
    with pytest.raises(InputError, match=r"variable EXTRA|variables or the shell"):
        service.with_speculation(None)
    plain = load(manifest % "--max-model-len=1024", file="s.yaml")[0]
    assert plain.speculation() is None


@pytest.mark.parametrize("kind", ["NIMService", "ModelServing", "ModelBooster", "RayClusterFleet"])
def test_a_kind_that_is_not_read_has_a_hint_of_its_own(kind):
    with pytest.raises(InputError, match=f"it holds {kind}") as caught:
        load(f"apiVersion: x/v1\nkind: {kind}\nmetadata: {{name: s}}\n", file="s.yaml")
    assert caught.value.hint.startswith(f"{kind}: ")
