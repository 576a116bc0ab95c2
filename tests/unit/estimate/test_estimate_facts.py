"""Facts of a service and of a checkpoint's config.json: what is not known stays None."""

from __future__ import annotations

import json
import textwrap

import pytest

from mpctl.estimate import (
    ModelFacts,
    TokenizerDigests,
    describe_model,
    facts_of,
    runs_v2,
    target_name_of,
)
from mpctl.estimate.facts import loaded_gib
from mpctl.estimate.shape import Shape
from mpctl.manifest import load, select
from mpctl.methods import build
from tests.preflight import match

THINKS = (
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>{% endif %}"
)
NGRAM, _ = build("ngram")


def service(*args, model="Qwen/Qwen2.5-7B", extra=""):
    text = textwrap.dedent(
        """\
        apiVersion: serving.kserve.io/v1beta1
        kind: InferenceService
        metadata:
          name: svc
        spec:
          predictor:
            containers:
            - name: kserve-container
              image: vllm/vllm-openai:v0.23.0
        """
    )
    words = [*([f"--model={model}"] if model else []), *args]
    return select(load(text + f"      args: {json.dumps(words)}\n" + extra), None)


def facts(*args, model="Qwen/Qwen2.5-7B", **known):
    return facts_of(service(*args, model=model), **known)


@pytest.mark.parametrize(
    ("args", "target", "context"),
    [
        ((), None, None),
        ((), ModelFacts(context=40960), 40960),
        (("--max-model-len=4096",), ModelFacts(context=40960), 4096),
        (("--max-model-len", "4096"), None, 4096),
        (("--max_model_len=4096", "--max-model-len=8192"), None, 8192),
        # small letters are powers of 1000, capital ones of 1024
        (("--max-model-len=8k",), ModelFacts(context=40960), 8000),
        (("--max-model-len", "8K"), ModelFacts(context=40960), 8192),
        (("--max-model-len=1m",), None, 1_000_000),
        (("--max-model-len=1M",), None, 1_048_576),
        (("--max-model-len=1.5k",), None, 1500),
        (("--max-model-len=1g",), None, 1_000_000_000),
        (("--max-model-len=1G",), None, 1_073_741_824),
        # what is no number says nothing
        *(
            ((f"--max-model-len={word}",), ModelFacts(context=40960), 40960)
            for word in ("auto", "-1", "8kb", "k", "")
        ),
        (("--max-model-len=auto",), None, None),
    ],
)
def test_served_context_is_the_flag_before_the_checkpoint(args, target, context):
    served_context = facts(*args, target=target).served_context
    assert served_context == context
    assert type(served_context) is type(context)


@pytest.mark.parametrize(
    ("model", "template", "kwargs", "thinking"),
    [
        ("Qwen/Qwen3-8B", None, None, True),
        ("/models/Qwen3-0.6B", None, None, True),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", None, None, True),
        ("Qwen/Qwen3-4B-Instruct-2507", None, None, None),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", None, None, None),
        ("Qwen/Qwen3-8B-Base", None, None, None),
        ("Qwen/Qwen2.5-7B", None, None, None),
        # the directories above a model do not name it
        ("/models/Qwen3-8B/", None, None, True),
        ("/base/instruct/coder/Qwen3-8B", None, None, True),
        ("/models/qwen3-tests/Llama-3.1-8B", None, None, None),
        ("/models/qwen3-tests/Llama-3.1-8B/", None, None, None),
        ("/models/Qwen3-8B/Qwen3-8B-Base", None, None, None),
        (None, None, None, None),
        # what the template says outweighs the name
        ("Qwen/Qwen3-8B", False, None, False),
        ("my/model", True, None, True),
        # what the command line chooses outweighs both
        ("Qwen/Qwen3-8B", True, '{"enable_thinking": false}', False),
        ("my/model", False, '{"enable_thinking": true}', True),
        # a choice that says nothing of thinking, or cannot be read, is none
        ("Qwen/Qwen3-8B", None, '{"other": 1}', True),
        ("Qwen/Qwen3-8B", None, '{"enable_thinking": "no"}', True),
        ("Qwen/Qwen3-8B", None, "{", True),
        ("my/model", None, "[]", None),
    ],
)
def test_thinking(model, template, kwargs, thinking):
    args = [] if kwargs is None else ["--default-chat-template-kwargs", kwargs]
    actual_facts = facts(*args, model=model, target=ModelFacts(template_thinks=template))
    assert actual_facts.thinking is thinking


@pytest.mark.parametrize(
    ("args", "name", "value"),
    [
        ((), "enable_lora", False),
        (("--enable-lora",), "enable_lora", True),
        (("--enable-lora", "--no-enable-lora"), "enable_lora", False),
        ((), "prefix_caching", True),
        (("--enable-prefix-caching",), "prefix_caching", True),
        (("--no-enable-prefix-caching",), "prefix_caching", False),
        (("--no-enable-prefix-caching", "--enable-prefix-caching"), "prefix_caching", True),
        (("--no_enable_prefix_caching",), "prefix_caching", False),
        (("--no-enable-prefix-caching", "--enable_prefix_caching"), "prefix_caching", True),
        (("--enable-prefix-caching", "--no-enable-prefix-caching"), "prefix_caching", False),
        ((), "async_scheduling", False),
        (("--async-scheduling",), "async_scheduling", True),
        ((), "tensor_parallel", 1),
        (("-tp", "2"), "tensor_parallel", 2),
        (("--data-parallel-size=4",), "data_parallel", 4),
        ((), "kv_cache_dtype", None),
        (("--kv-cache-dtype=fp8",), "kv_cache_dtype", "fp8"),
        ((), "quantization", "awq"),
        (("-q", "fp8"), "quantization", "fp8"),
        ((), "engine_version", "vllm/vllm-openai:v0.23.0"),
        ((), "target.family", "qwen2"),
        ((), "target.params_b", 7.6),
        ((), "uses_storage_uris", False),
    ],
)
def test_facts_from_the_command_line(args, name, value):
    target = ModelFacts(family="qwen2", params_b=7.6, quantization="awq")
    found = facts(*args, target=target).value(name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("args", "target", "gib"),
    [
        ((), None, 16.0),  # the table's parameters in bf16
        ((), ModelFacts(quantization="none", weight_bytes=12 * 2**30), 12.0),
        ((), ModelFacts(quantization="none"), 16.0),
        ((), ModelFacts(quantization="fp8", weight_bytes=8 * 2**30), 8.0),
        ((), ModelFacts(quantization="fp8"), None),
        ((), ModelFacts(weight_bytes=8 * 2**30), 8.0),
        ((), ModelFacts(), None),
        (("--quantization=fp8",), None, None),
        (("-q", "bitsandbytes"), ModelFacts(quantization="none", weight_bytes=2**30), None),
        (
            ("--quantization=awq_marlin",),
            ModelFacts(quantization="awq", weight_bytes=8 * 2**30),
            8.0,
        ),
    ],
)
def test_what_the_targets_weights_take_once_they_are_loaded(args, target, gib):
    shape = Shape(1, 1, 1, 1, 1, 1, params_b=16 * 2**30 / 2 / 1e9)
    assert loaded_gib(service(*args), target, shape) == gib


def test_what_was_measured_elsewhere_is_passed_on():
    draft = ModelFacts(
        family="llama", context=2048, params_b=0.5, tokenizer_digest="d", draft_kind="eagle3"
    )
    actual_facts = facts_of(
        service(),
        engine_version="0.32.0",
        target=ModelFacts(tokenizer_digest="t", moe=True),
        draft=draft,
        concurrency=8,
        temperature=0.0,
    )
    assert (actual_facts.engine_version, actual_facts.draft.draft_kind) == ("0.32.0", "eagle3")
    assert (actual_facts.draft.context, actual_facts.draft.params_b, actual_facts.draft.family) == (
        2048,
        0.5,
        "llama",
    )
    assert (actual_facts.target.tokenizer_digest, actual_facts.draft.tokenizer_digest) == ("t", "d")
    assert (actual_facts.concurrency, actual_facts.temperature) == (8, 0.0)


QWEN3 = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}


def test_a_plain_checkpoint():
    model = describe_model(
        QWEN3,
        weight_bytes=16_000_000_000,
        tokenizer=TokenizerDigests("t", "a"),
        chat_template=THINKS,
    )
    assert model == ModelFacts(
        family="qwen3",
        context=40960,
        params_b=8.0,
        weight_bytes=16_000_000_000,
        tokenizer_digest="t",
        added_tokens_digest="a",
        template_digest=model.template_digest,
        recurrent="none",
        moe=False,
        quantization="none",
        template_thinks=True,
        draft_kind="model",
        mtp_layers=0,
        mask_token=False,
        dtype="bfloat16",
        no_text="",
        mrope=False,
        verifier="",
    )


@pytest.mark.parametrize(
    ("classes", "found"),
    [
        *(([name], name) for name in (
            "BertModel", "XLMRobertaModel", "NomicBertModel", "XLMRobertaForSequenceClassification", "MistralModel",
            "Qwen2ForRewardModel", "Qwen2ForProcessRewardModel", "WhisperForConditionalGeneration", "CLIPModel",
            "T5ForConditionalGeneration", "BartForConditionalGeneration", "GteNewModel", "ModernBertForMaskedLM",
            "FluxTransformer2DModel", "StableDiffusion3Pipeline", "JinaVLForRanking", "Wav2Vec2ForCTC", "Qwen3Model",
        )),
        *(([name], "") for name in (
            "Qwen3ForCausalLM", "LlamaForCausalLM", "ChatGLMModel", "GPT2LMHeadModel", "InternVLChatModel",
            "Qwen3OmniMoeForConditionalGeneration", "Gemma3ForConditionalGeneration", "DeepseekV3ForCausalLM",
            "LlavaNextForConditionalGeneration", "Llama4ForConditionalGeneration", "MiMoForCausalLM", "NVLM_D",
            "BertLMHeadModel", "QWenLMHeadModel", "H2OVLChatModel", "Phi4MMForCausalLM", "GraniteSpeechForCausalLM",
        )),
        ([], None),
    ],
)  # fmt: skip
def test_classes_that_generate_no_text_are_told_by_their_names(classes, found):
    assert describe_model({"architectures": classes}).no_text == found


def test_an_empty_config_knows_nothing():
    model = describe_model({})
    known = (
        model.family,
        model.context,
        model.params_b,
        model.template_thinks,
        model.draft_kind,
        model.mtp_layers,
    )
    assert known == (None,) * 6


@pytest.mark.parametrize(
    ("changes", "weight_bytes", "params"),
    [
        ({}, None, None),
        ({"torch_dtype": "float32"}, 4_000_000_000, 1.0),
        ({"torch_dtype": None, "dtype": "float16"}, 4_000_000_000, 2.0),
        ({"torch_dtype": "int3"}, 4_000_000_000, None),
        ({"torch_dtype": None}, 4_000_000_000, None),
        ({"quantization_config": {"quant_method": "awq"}}, 4_000_000_000, None),
        ({"quantization_config": None}, 4_000_000_000, 2.0),
    ],
)
def test_parameters_only_where_size_and_width_are_known(changes, weight_bytes, params):
    assert describe_model({**QWEN3, **changes}, weight_bytes=weight_bytes).params_b == params


@pytest.mark.parametrize(
    ("key", "moe"),
    [
        ("num_experts", True),
        ("num_local_experts", True),
        ("n_routed_experts", True),
        ("experts", False),
    ],
)
def test_experts(key, moe):
    assert describe_model({**QWEN3, key: 64}).moe is moe
    assert describe_model({**QWEN3, key: 0}).moe is False


@pytest.mark.parametrize(
    ("template", "thinks"),
    [
        (None, None),
        (THINKS, True),
        ("{{ messages }}", False),
        ("{{ messages }}{{ enable_thinking }}", False),
        (
            "{{ messages }}<think>",
            None,
        ),  # opened always, or only parsed: the text alone does not tell
        ("", False),
    ],
)
def test_templates(template, thinks):
    assert describe_model(QWEN3, chat_template=template).template_thinks is thinks


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "eagle3"),
        ({"architectures": ["Eagle3LlamaForCausalLM"]}, "eagle3"),
        ({"architectures": ["EagleLlamaForCausalLM"]}, "eagle"),
        ({"architectures": ["MedusaModel"]}, "medusa"),
        ({"medusa_num_heads": 3, "medusa_num_layers": 1}, "medusa"),
        ({"architectures": ["MLPSpeculatorPreTrainedModel"]}, "mlp_speculator"),
        ({"architectures": ["DeepSeekMTPModel"]}, "mtp"),
        ({"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3"}, "eagle3"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "model"),
        ({"architectures": None}, None),
        ({"architectures": ["BertModel"]}, None),
    ],
)
def test_kinds_of_drafts(config, kind):
    assert describe_model(config).draft_kind == kind


@pytest.mark.parametrize(
    ("tensors", "kind"),
    [
        ({"fc.weight": (128, 256), "layers.0.mlp.up_proj.weight": (384, 128)}, "eagle"),
        ({"fc.weight": (128, 384)}, None),
        ({"model.layers.0.mlp.up_proj.weight": (384, 128)}, "model"),
        ({}, None),
        (None, None),
    ],
)
def test_one_layer_under_the_name_of_a_whole_model_is_told_by_its_weights(tensors, kind):
    """The published heads of EAGLE's first generation call themselves LlamaForCausalLM."""
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}
    assert describe_model(config, tensors=tensors).draft_kind == kind


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({}, False),
        ({"mask_token_id": None, "ptd_token_id": None}, False),
        ({"ptd_token_id": 0}, True),
        ({"pard_token": 151666}, True),
        ({"speculators_model_type": "peagle", "mask_token_id": 128002}, True),
        ({"dflash_config": {"mask_token_id": 7}}, True),
    ],
)
def test_a_mask_token_for_drafting_in_one_pass(config, named):
    assert describe_model(config).mask_token is named


W4 = {"weights": {"type": "int", "num_bits": 4}, "input_activations": None}
W8 = {
    "weights": {"type": "float", "num_bits": 8},
    "input_activations": {"type": "float", "num_bits": 8},
}


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "compressed-tensors"}, None),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, None),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": W8}},
            "compressed-tensors float w8a8",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": W8, "group_1": W4}},
            "compressed-tensors float w8a8 int w4a16",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": W8, "group_1": None},
            },
            None,
        ),
    ],
)
def test_a_format_of_many_schemes_is_known_by_them(written, found):
    assert describe_model({**QWEN3, "quantization_config": written}).quantization == found


@pytest.mark.parametrize(
    ("ours", "theirs", "flag", "verdict"),
    [
        ({"group_0": W8}, {"group_0": W8}, (), "ok"),
        ({"group_0": W8}, {"group_0": W4}, (), "warn"),
        ({"group_0": W8}, {"group_0": W4}, ("--quantization=compressed-tensors",), "warn"),
        ({"group_0": W8}, {}, (), "unknown"),
        ({}, {}, (), "unknown"),
    ],
)
def test_the_same_format_is_not_the_same_quantisation(ours, theirs, flag, verdict):
    target, draft = (
        describe_model(
            {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": groups}}
        )
        for groups in (ours, theirs)
    )
    spec, _ = build("eagle3", draft="/models/draft")
    verdicts_by_id = {
        one.id: one.verdict
        for one in match(spec, facts_of(service(*flag), target=target, draft=draft))
    }
    assert verdicts_by_id["quantization-mismatch"] == verdict


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({"num_nextn_predict_layers": 1}, 1),
        ({"text_config": {"mtp_num_hidden_layers": 2}}, 2),
        ({"mtp_config": {"num_nextn_predict_layers": 3}}, 3),
        ({"num_nextn_predict_layers": 0}, 0),
        ({"num_nextn_predict_layers": "one"}, 0),
        ({"model_type": "qwen3"}, 0),
        ({"model_type": "longcat_flash"}, None),
    ],
)
def test_mtp_layers_of_a_target(config, layers):
    assert describe_model(config).mtp_layers == layers


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        ({"medusa_num_heads": 3, "medusa_num_layers": 1}, 3),
        ({"architectures": ["MedusaModel"], "num_heads": 5}, 5),
        ({"architectures": ["MedusaModel"]}, None),
        ({"architectures": ["LlamaForCausalLM"], "num_heads": 32}, None),
    ],
)
def test_heads_of_a_medusa_checkpoint(config, heads):
    assert describe_model(config).medusa_heads == heads


TRITON = "WARNING [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner instead."


@pytest.mark.parametrize(
    ("env", "log", "v2"),
    [
        ("", TRITON, False),
        ("", "INFO [gpu_worker.py:518] Using V2 Model Runner", True),
        (
            "",
            "Model Runner V2 does not yet support speculative method 'suffix'; using the V1 model runner",
            None,
        ),
        ("", None, None),
        ("      env: [{name: VLLM_USE_V2_MODEL_RUNNER, value: '0'}]\n", None, False),
        ("      env: [{name: VLLM_USE_V2_MODEL_RUNNER, value: '1'}]\n", TRITON, True),
    ],
)
def test_which_model_runner_serves(env, log, v2):
    assert runs_v2(service(extra=env), log) is v2


@pytest.mark.parametrize(
    ("args", "model", "name"),
    [
        ((), "Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ((), "/mnt/models", None),
        (
            ("--served-model-name=Qwen/Qwen3-8B",),
            "/mnt/models",
            None,
        ),  # clients are told it; it may be any
        (("--served-model-name=chat",), "/mnt/models", None),
        ((), "./here", None),
        ((), "$MODEL", None),
    ],
)
def test_the_targets_name(args, model, name):
    assert target_name_of(service(*args, model=model)) == name


def test_what_a_checkpoint_records_names_a_target_that_is_loaded_from_a_path():
    named = service("--served-model-name=acme/chat", model="/mnt/models")
    assert target_name_of(named, "Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
    assert target_name_of(service(model="org/loaded"), "Qwen/Qwen3-8B") == "org/loaded"


def test_the_targets_name_from_its_storage():
    text = (
        "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\nmetadata: {name: s}\nspec:\n  predictor:\n"
        "    model:\n      modelFormat: {name: vLLM}\n      storageUri: hf://Qwen/Qwen3-8B:main\n"
    )
    assert target_name_of(select(load(text), None)) == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"architectures": ["DFlash2DraftModel"]}, "dflash"),
        ({"architectures": ["LiLiCorrDraftModel"]}, "dflash"),
        ({"architectures": ["Qwen3XPressModel"]}, "dflash"),
        ({"speculators_model_type": "dflash2"}, "dflash"),
        ({"speculators_model_type": "xpress"}, "dflash"),
        ({"architectures": ["Qwen3DSparkModel"]}, "dspark"),
    ],
)
def test_heads_that_run_under_another_methods_name_are_told_by_their_architecture(config, kind):
    model = describe_model({**config, "block_size": 8})
    assert (model.draft_kind, model.block_size) == (kind, 8)
    assert model.architectures == (
        tuple(config["architectures"]) if "architectures" in config else None
    )


def test_the_block_size_may_stand_in_a_part_of_the_configuration():
    model = describe_model(
        {"architectures": ["DFlashDraftModel"], "dflash_config": {"block_size": 16}}
    )
    assert model.block_size == 16
