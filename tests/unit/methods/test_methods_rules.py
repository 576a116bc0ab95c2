"""The preflight as a truth table: each rule fires, is silent, or says that it could not look."""

import pytest

from mpctl.methods import CheckpointFacts, ServiceFacts, from_config
from mpctl.methods.preflight.checks import RULES
from mpctl.methods.preflight.nixl import KvEnd
from tests.preflight import preflight_findings, unknowns

DRAFT = {"model": "/mnt/models/draft"}
SCHEDULE = {"num_speculative_tokens_per_batch_size": [[1, 8, 3]]}

NGRAM = {"method": "ngram", "num_speculative_tokens": 5}
NGRAM_GPU = NGRAM | {"method": "ngram_gpu"}
SUFFIX = {"method": "suffix"}
EAGLE3 = {"method": "eagle3", "num_speculative_tokens": 3} | DRAFT
PEAGLE = EAGLE3 | {"parallel_drafting": True}
MODEL = EAGLE3 | {"method": "draft_model"}
MTP = {"method": "mtp", "num_speculative_tokens": 1}
DSPARK = {"method": "dspark", "num_speculative_tokens": 7}
DFLASH = EAGLE3 | {"method": "dflash"}
MEDUSA = EAGLE3 | {"method": "medusa"}
NIXL = ("--kv-transfer-config", '{"kv_connector":"NixlConnector"}')
FORCED = (
    "--kv-transfer-config",
    '{"kv_connector":"NixlConnector","kv_connector_extra_config":{"enforce_handshake_compat": false}}',
)
NONE = None
ADAPTIVE = {"enable_adaptive_verification": True}
DFLASH2, LILICORR = ("DFlash2DraftModel",), ("LiLiCorrDraftModel",)
K7, TOPC = {"num_speculative_tokens": 7}, {"xpress_topc": 32}

# rule, configuration, facts, severity or None when silent.
TABLE = [
    ("plain-secret", NGRAM, {"plain_secrets": ("HF_TOKEN",)}, "warn"),
    ("plain-secret", NONE, {"plain_secrets": ("HF_TOKEN",)}, "warn"),
    ("plain-secret", NGRAM, {"plain_secrets": ()}, None),
    ("unmanaged-method", {"method": "custom_class", "model": "a.B"}, {}, "refuse"),
    ("unmanaged-method", {"method": "extract_hidden_states"}, {}, "refuse"),
    ("unmanaged-method", {"method": "lilicorr"}, {}, "refuse"),
    ("unmanaged-method", NGRAM, {}, None),
    ("unmanaged-method", {"model": "/d"}, {}, None),
    ("method-inferred", {"model": "/d"}, {}, "warn"),
    ("method-inferred", MODEL, {}, None),
    ("no-proposer", EAGLE3 | {"method": "mlp_speculator"}, {}, "refuse"),
    ("no-proposer", EAGLE3, {}, None),
    ("engine-too-old", MODEL, {"engine_version": "v0.14.0"}, "refuse"),
    ("engine-too-old", MODEL, {"engine_version": "vllm/vllm-openai:v0.15.0"}, None),
    ("engine-too-old", NGRAM_GPU, {"engine_version": "0.17.1"}, "refuse"),
    ("engine-too-old", PEAGLE, {"engine_version": "0.15.1"}, "refuse"),
    ("engine-too-old", EAGLE3, {"engine_version": "0.15.1"}, None),
    ("engine-version-unknown", NGRAM, {"engine_version": "latest"}, "note"),
    ("engine-version-unknown", NGRAM, {"engine_version": "v0.32.0"}, None),
    ("engine-version-unknown", NGRAM, {}, "note"),
    ("engine-too-old", DSPARK, {"engine_version": "0.31.0"}, "note"),
    ("engine-too-old", DSPARK, {"engine_version": "0.32.0+cpu"}, None),
    ("engine-too-old", NONE, {"engine_version": "0.1.0"}, None),
    ("engine-too-new", MEDUSA, {"engine_version": "0.33.0"}, "refuse"),
    ("engine-too-new", MEDUSA, {"engine_version": "v0.34.1"}, "refuse"),
    ("engine-too-new", MEDUSA, {"engine_version": "0.32.0"}, None),
    ("engine-too-new", EAGLE3, {"engine_version": "0.33.0"}, None),
    (
        "key-too-new",
        EAGLE3 | {"draft_lm_head_quantization": "fp8"},
        {"engine_version": "0.32.0"},
        "refuse",
    ),
    (
        "key-too-new",
        EAGLE3 | {"draft_lm_head_quantization": "fp8"},
        {"engine_version": "0.33.0"},
        None,
    ),
    ("key-too-new", EAGLE3, {"engine_version": "0.32.0"}, None),
    (
        "adaptive-verification",
        EAGLE3 | ADAPTIVE,
        {"engine_version": "0.32.0", "gpu": "H100"},
        "refuse",
    ),
    ("adaptive-verification", EAGLE3 | ADAPTIVE, {"engine_version": "0.33.0", "gpu": "H100"}, None),
    (
        "adaptive-verification",
        EAGLE3 | ADAPTIVE,
        {"engine_version": "0.33.0", "gpu": "L4"},
        "refuse",
    ),
    ("adaptive-verification", EAGLE3 | ADAPTIVE, {"engine_version": "0.33.0"}, "note"),
    (
        "adaptive-verification",
        EAGLE3 | ADAPTIVE,
        {"gpu": "L4", "argv": ("--attention-backend=TRITON_ATTN",)},
        None,
    ),
    (
        "adaptive-verification",
        EAGLE3 | ADAPTIVE,
        {"gpu": "L4", "argv": ("--attention_backend", "TRITON_ATTN")},
        None,
    ),
    (
        "adaptive-verification",
        EAGLE3 | ADAPTIVE,
        {"gpu": "L4", "argv": ("--attention-backend", "X")},
        "refuse",
    ),
    ("adaptive-verification", EAGLE3 | ADAPTIVE, {"gpu": "H100", "enable_lora": True}, "refuse"),
    ("adaptive-verification", EAGLE3 | ADAPTIVE, {"gpu": "H100", "argv": ("-pp", "2")}, "refuse"),
    (
        "adaptive-verification",
        EAGLE3 | ADAPTIVE,
        {"gpu": "H100", "argv": ("--pipeline-parallel-size=1",)},
        None,
    ),
    (
        "adaptive-verification",
        EAGLE3 | ADAPTIVE,
        {"gpu": "H100", "argv": ("--enforce-eager",)},
        "refuse",
    ),
    ("adaptive-verification", DSPARK | ADAPTIVE, {"engine_version": "0.32.0", "gpu": "H200"}, None),
    ("adaptive-verification", DSPARK, {"engine_version": "0.32.0", "gpu": "L4"}, None),
    (
        "draft-variant",
        DFLASH,
        {"draft.architectures": DFLASH2, "engine_version": "0.32.0"},
        "refuse",
    ),
    ("draft-variant", DFLASH, {"draft.architectures": DFLASH2, "engine_version": "0.33.0"}, None),
    ("draft-variant", DFLASH, {"draft.architectures": DFLASH2, "v2_runner": False}, "refuse"),
    (
        "draft-variant",
        DFLASH,
        {"draft.architectures": DFLASH2, "argv": ("--watermark-config", "{}")},
        "refuse",
    ),
    (
        "draft-variant",
        DFLASH,
        {"draft.architectures": ("DFlashDraftModel",), "engine_version": "0.32.0"},
        None,
    ),
    ("draft-variant", DFLASH | K7, {"draft.architectures": LILICORR, "draft.block_size": 8}, None),
    (
        "draft-variant",
        DFLASH | K7,
        {"draft.architectures": LILICORR, "draft.block_size": 16},
        "refuse",
    ),
    ("draft-variant", DFLASH | TOPC, {"draft.architectures": ("Qwen3XPressModel",)}, None),
    ("draft-variant", DFLASH | TOPC, {"draft.architectures": DFLASH2}, "refuse"),
    ("draft-variant", DFLASH, {}, None),
    ("removed-flags", NGRAM, {"argv": ("vllm", "serve", "--speculative-model=/d")}, "refuse"),
    ("removed-flags", NGRAM, {"argv": ("--num_speculative_tokens", "5")}, "refuse"),
    ("removed-flags", NONE, {"argv": ("--use-v2-block-manager",)}, "warn"),
    ("removed-flags", NGRAM, {"argv": ("--speculative-config", "{}", "--model", "/m")}, None),
    ("removed-flags", NONE, {"argv": ("--speculative-model=/d",)}, "refuse"),
    (
        "removed-flags",
        NONE,
        {"argv": ("--speculative-model=/d",), "engine_version": "0.7.3"},
        "refuse",
    ),
    (
        "removed-flags",
        NONE,
        {"argv": ("--speculative-model=/d",), "engine_version": "0.28.0"},
        "warn",
    ),
    (
        "decode-graphs",
        NGRAM,
        {"argv": ("--max-cudagraph-capture-size=4",), "v2_runner": False},
        "refuse",
    ),
    (
        "decode-graphs",
        NGRAM,
        {"argv": ("--max-cudagraph-capture-size=4",), "v2_runner": True},
        "warn",
    ),
    ("decode-graphs", NGRAM, {"argv": ("--max-cudagraph-capture-size=4", "--enforce-eager")}, None),
    ("decode-graphs", NGRAM, {"argv": ("--max-cudagraph-capture-size=512",)}, None),
    ("batched-tokens", NGRAM, {"max_batched_tokens": 512, "max_num_seqs": 256}, "warn"),
    ("batched-tokens", NGRAM, {"max_batched_tokens": 8192, "max_num_seqs": 256}, None),
    ("draft-mrope", MODEL, {"draft.mrope": True}, "refuse"),
    ("draft-mrope", MODEL, {"draft.mrope": True, "v2_runner": True}, "warn"),
    ("draft-mrope", MODEL, {"draft.family": "qwen3_5"}, "refuse"),
    ("draft-mrope", MODEL, {"draft.family": "qwen3_5", "draft.mrope": False}, None),
    ("draft-mrope", MODEL, {"draft.family": "qwen3"}, None),
    ("draft-mrope", PEAGLE, {"draft.mrope": True}, "refuse"),
    ("draft-mrope", EAGLE3, {"draft.mrope": True}, None),
    ("target-speculates", NONE, {"target.verifier": "org/served"}, "refuse"),
    ("target-speculates", EAGLE3, {"target.verifier": "org/served"}, "refuse"),
    ("target-speculates", NONE, {"target.verifier": ""}, None),
    ("custom-logits-processors", NGRAM, {"argv": ("--logits-processors", "a.B")}, "refuse"),
    ("custom-logits-processors", NGRAM, {"argv": ()}, None),
    ("fast-prefill", EAGLE3, {"argv": ("--kv-sharing-fast-prefill",)}, "refuse"),
    ("fast-prefill", NGRAM, {"argv": ("--kv-sharing-fast-prefill",)}, None),
    ("async-scheduling", NGRAM, {"async_scheduling": False}, None),
    ("async-scheduling", NGRAM, {"async_scheduling": True}, "refuse"),
    ("async-scheduling", SUFFIX, {"async_scheduling": True}, "refuse"),
    ("async-scheduling", NGRAM_GPU, {"async_scheduling": True}, None),
    ("async-scheduling", EAGLE3, {"async_scheduling": True}, None),
    (
        "async-scheduling",
        EAGLE3 | {"disable_padded_drafter_batch": True},
        {"async_scheduling": True},
        "refuse",
    ),
    ("model-runner", DSPARK, {"v2_runner": False}, "refuse"),
    ("model-runner", DSPARK, {"v2_runner": True}, None),
    ("model-runner", DSPARK, {}, None),
    ("model-runner", SUFFIX, {"v2_runner": True}, "warn"),
    ("model-runner", SUFFIX, {"v2_runner": False}, None),
    ("model-runner", SUFFIX, {}, "note"),
    ("model-runner", PEAGLE, {"v2_runner": True}, "warn"),
    ("model-runner", MODEL | {"parallel_drafting": True}, {"v2_runner": True}, "warn"),
    ("model-runner", MODEL | {"use_heterogeneous_vocab": True}, {"v2_runner": True}, "warn"),
    ("model-runner", EAGLE3, {"v2_runner": True}, None),
    (
        "model-runner",
        DSPARK | {"enable_adaptive_verification": True},
        {"v2_runner": False},
        "refuse",
    ),
    ("prefill-apart", EAGLE3, {"argv": NIXL}, "refuse"),
    ("prefill-apart", NGRAM, {"argv": NIXL}, None),
    (
        "prefill-apart",
        EAGLE3,
        {"argv": NIXL, "decode_end": KvEnd(), "prefill_ends": (KvEnd(),)},
        None,
    ),
    (
        "prefill-apart",
        EAGLE3,
        {"argv": ("--kv-transfer-config", '{"kv_connector":"MooncakeConnector"}')},
        None,
    ),
    (
        "prefill-differs",
        EAGLE3,
        {"decode_end": KvEnd(), "prefill_ends": (KvEnd(cache_dtype="fp8"),)},
        "refuse",
    ),
    (
        "prefill-differs",
        EAGLE3,
        {"decode_end": KvEnd(), "prefill_ends": (KvEnd(dtype="half"),)},
        None,
    ),
    (
        "prefill-differs",
        NGRAM,
        {"decode_end": KvEnd(model="a"), "prefill_ends": (KvEnd(model="b"),)},
        "refuse",
    ),
    (
        "prefill-differs",
        NGRAM,
        {"argv": FORCED, "decode_end": KvEnd(model="a"), "prefill_ends": (KvEnd(model="b"),)},
        "warn",
    ),
    ("prefill-apart", EAGLE3, {}, None),
    ("dynamic-k", NGRAM | SCHEDULE, {"data_parallel": 2}, "refuse"),
    ("gpu-needed", NGRAM_GPU, {"device": "CPU"}, "refuse"),
    ("gpu-needed", NGRAM_GPU, {"device": "GPU"}, None),
    ("gpu-needed", NGRAM, {"device": "CPU"}, None),
    ("dynamic-k", EAGLE3 | SCHEDULE, {"data_parallel": 1, "v2_runner": True}, "warn"),
    ("dynamic-k", EAGLE3 | SCHEDULE, {"data_parallel": 1, "v2_runner": False}, "warn"),
    ("dynamic-k", EAGLE3 | SCHEDULE, {}, "warn"),
    ("dynamic-k", EAGLE3, {"data_parallel": 2}, None),
    ("dynamic-k", EAGLE3 | SCHEDULE, {"v2_runner": True, "engine_version": "0.33.0"}, None),
    ("dynamic-k", EAGLE3 | SCHEDULE, {"v2_runner": True, "engine_version": "0.32.0"}, "warn"),
    ("dynamic-k", EAGLE3 | SCHEDULE, {"v2_runner": False, "engine_version": "0.33.0"}, "warn"),
    ("dynamic-k", EAGLE3 | SCHEDULE, {"data_parallel": 2, "engine_version": "0.33.0"}, "refuse"),
    ("dynamic-k", SUFFIX | SCHEDULE, {"engine_version": "0.33.0"}, "refuse"),
    (
        "draft-tensor-parallel",
        MODEL | {"draft_tensor_parallel_size": 2},
        {"tensor_parallel": 4},
        "refuse",
    ),
    (
        "draft-tensor-parallel",
        MODEL | {"draft_tensor_parallel_size": 4},
        {"tensor_parallel": 4},
        None,
    ),
    (
        "draft-tensor-parallel",
        MODEL | {"draft_tensor_parallel_size": 1},
        {"tensor_parallel": 4},
        None,
    ),
    ("draft-tensor-parallel", MODEL | {"draft_tensor_parallel_size": 2}, {}, None),
    (
        "kserve-storage-uris",
        EAGLE3,
        {"uses_storage_uris": True, "kserve_version": "v0.15.2"},
        "refuse",
    ),
    ("kserve-storage-uris", EAGLE3, {"uses_storage_uris": True, "kserve_version": "v0.16.0"}, None),
    ("kserve-storage-uris", EAGLE3, {"uses_storage_uris": True, "kserve_version": "main"}, "note"),
    (
        "kserve-storage-uris",
        EAGLE3,
        {"uses_storage_uris": False, "kserve_version": "v0.15.2"},
        None,
    ),
    ("kserve-storage-uris", EAGLE3, {"uses_storage_uris": True}, None),
    ("draft-missing", {"method": "eagle3", "num_speculative_tokens": 3}, {}, "refuse"),
    ("draft-missing", {"method": "draft_model", "num_speculative_tokens": 3}, {}, "refuse"),
    ("draft-missing", MTP, {}, None),
    ("draft-missing", EAGLE3, {}, None),
    ("draft-missing", NGRAM, {}, None),
    ("method-taken-from-name", MODEL | {"model": "AngelSlim/Qwen3-8B_eagle3"}, {}, "warn"),
    ("method-taken-from-name", MODEL | {"model": "Qwen/Qwen3-0.6B"}, {}, None),
    ("method-taken-from-name", EAGLE3 | {"model": "x/dflash"}, {}, None),
    ("medusa-heads", MEDUSA, {"draft.medusa_heads": 2}, "refuse"),
    ("medusa-heads", MEDUSA, {"draft.medusa_heads": 3}, None),
    ("medusa-heads", EAGLE3, {"draft.medusa_heads": 2}, None),
    ("mtp-layers", MTP, {"target.mtp_layers": 0}, "refuse"),
    ("mtp-layers", MTP, {"target.mtp_layers": 1}, None),
    ("mtp-layers", MTP | {"num_speculative_tokens": 3}, {"target.mtp_layers": 2}, "refuse"),
    ("mtp-layers", MTP | {"num_speculative_tokens": 4}, {"target.mtp_layers": 2}, None),
    ("mtp-layers", MTP | DRAFT, {"target.mtp_layers": 0}, None),
    ("mtp-layers", EAGLE3, {"target.mtp_layers": 0}, None),
    ("draft-kind", EAGLE3, {"draft.draft_kind": "model"}, "refuse"),
    ("draft-kind", EAGLE3, {"draft.draft_kind": "eagle3"}, None),
    ("draft-kind", PEAGLE, {"draft.draft_kind": "eagle3"}, None),
    ("draft-kind", MODEL, {"draft.draft_kind": "eagle3"}, "refuse"),
    ("draft-kind", EAGLE3, {}, None),
    ("parallel-drafting", PEAGLE, {"draft.mask_token": False}, "refuse"),
    ("parallel-drafting", PEAGLE, {"draft.mask_token": True}, None),
    ("parallel-drafting", PEAGLE, {}, None),
    ("parallel-drafting", EAGLE3, {"draft.mask_token": True}, "warn"),
    ("parallel-drafting", EAGLE3, {"draft.mask_token": False}, None),
    (
        "parallel-drafting",
        MODEL | {"parallel_drafting": True},
        {"draft.mask_token": False},
        "refuse",
    ),
    ("parallel-drafting", MODEL, {"draft.mask_token": False}, None),
    ("draft-context", MODEL, {"served_context": 16384, "draft.context": 2048}, "refuse"),
    ("draft-context", MODEL, {"served_context": 2048, "draft.context": 2048}, None),
    (
        "draft-context",
        MODEL,
        {"served_context": 16384, "draft.context": 2048, "v2_runner": False},
        "warn",
    ),
    ("draft-context", MEDUSA, {"served_context": 16384, "draft.context": 2048}, None),
    ("draft-context", EAGLE3, {"served_context": 16384, "draft.context": 2048}, "refuse"),
    (
        "draft-context",
        EAGLE3,
        {"served_context": 9, "draft.context": 8, "engine_version": "0.29.0"},
        "refuse",
    ),
    (
        "draft-context",
        EAGLE3,
        {"served_context": 9, "draft.context": 8, "engine_version": "0.32.0"},
        "warn",
    ),
    (
        "draft-context",
        DFLASH,
        {"served_context": 9, "draft.context": 8, "engine_version": "0.32.0"},
        "refuse",
    ),
    ("draft-context", MODEL, {"served_context": 16384}, None),
    ("draft-context", NGRAM, {"served_context": 16384, "draft.context": 2048}, None),
    ("draft-max-model-len", MODEL | {"max_model_len": 4096}, {"served_context": 2048}, "refuse"),
    ("draft-max-model-len", MODEL | {"max_model_len": 4096}, {"draft.context": 2048}, "refuse"),
    ("draft-max-model-len", MODEL | {"max_model_len": 512}, {"served_context": 2048}, None),
    ("draft-max-model-len", EAGLE3 | {"max_model_len": 512}, {}, "warn"),
    (
        "tokenizer-mismatch",
        MODEL,
        {"target.tokenizer_digest": "a", "draft.tokenizer_digest": "b"},
        "refuse",
    ),
    (
        "tokenizer-mismatch",
        MODEL,
        {"target.tokenizer_digest": "a", "draft.tokenizer_digest": "a"},
        None,
    ),
    (
        "tokenizer-mismatch",
        MODEL | {"use_heterogeneous_vocab": True},
        {"target.tokenizer_digest": "a", "draft.tokenizer_digest": "b"},
        None,
    ),
    ("tokenizer-mismatch", MODEL, {"target.tokenizer_digest": "a"}, None),
    (
        "tokenizer-mismatch",
        EAGLE3,
        {"target.tokenizer_digest": "a", "draft.tokenizer_digest": "b"},
        "refuse",
    ),
    (
        "tokenizer-mismatch",
        EAGLE3 | {"use_heterogeneous_vocab": True},
        {"target.tokenizer_digest": "a", "draft.tokenizer_digest": "b"},
        "refuse",
    ),
    (
        "added-tokens-mismatch",
        EAGLE3,
        {"target.added_tokens_digest": "a", "draft.added_tokens_digest": "b"},
        "refuse",
    ),
    (
        "added-tokens-mismatch",
        EAGLE3,
        {"target.added_tokens_digest": "a", "draft.added_tokens_digest": "a"},
        None,
    ),
    (
        "wrong-target",
        EAGLE3,
        {"target.name": "Qwen/Qwen3-8B", "draft.trained_for": "Qwen/Qwen3-14B"},
        "refuse",
    ),
    (
        "wrong-target",
        EAGLE3,
        {"target.name": "Qwen/Qwen3-8B-FP8", "draft.trained_for": "/data/qwen3-8b/"},
        None,
    ),
    ("wrong-target", EAGLE3, {"target.name": "meta-llama/Llama-3.1-8B-Instruct"}, None),
    (
        "wrong-target",
        EAGLE3,
        {
            "target.name": "meta-llama/Llama-3.1-8B-Instruct",
            "draft.trained_for": "x/Meta-Llama-3.1-8B-Instruct",
        },
        None,
    ),
    (
        "wrong-target",
        EAGLE3,
        {"target.name": "Qwen/Qwen3-8B", "draft.trained_for": "Qwen/Qwen3-8B-Base"},
        "refuse",
    ),
    ("wrong-target", MODEL, {"target.name": "Qwen/Qwen3-8B", "draft.trained_for": "x/y"}, None),
    (
        "hidden-size-mismatch",
        EAGLE3,
        {"target.hidden": 4096, "draft.expects_hidden": 5120},
        "refuse",
    ),
    ("hidden-size-mismatch", EAGLE3, {"target.hidden": 4096, "draft.expects_hidden": 4096}, None),
    ("hidden-size-mismatch", EAGLE3, {"draft.expects_hidden": 4096}, None),
    ("rope-theta", EAGLE3, {"target.rope_theta": 1e6, "draft.rope_theta": 1e4}, "warn"),
    ("rope-theta", EAGLE3, {"target.rope_theta": 1e6, "draft.rope_theta": 1e6}, None),
    ("rope-theta", EAGLE3, {"target.rope_theta": 1e6}, None),
    ("vocabulary-mismatch", EAGLE3, {"target.vocab": 151936, "draft.vocab": 128256}, "refuse"),
    ("vocabulary-mismatch", MODEL, {"target.vocab": 152064, "draft.vocab": 151936}, "refuse"),
    (
        "vocabulary-mismatch",
        MODEL | {"use_heterogeneous_vocab": True},
        {"target.vocab": 152064, "draft.vocab": 151936},
        None,
    ),
    ("draft-vocabulary", EAGLE3, {"draft.draft_vocab": 32000, "draft.map_rows": 16000}, "refuse"),
    (
        "draft-vocabulary",
        EAGLE3,
        {"draft.draft_vocab": 32000, "draft.map_rows": 32000, "target.vocab": 151936},
        None,
    ),
    ("draft-vocabulary", EAGLE3, {"draft.draft_vocab": 200000, "target.vocab": 151936}, "refuse"),
    ("draft-vocabulary", EAGLE3, {"draft.draft_vocab": 32000}, None),
    (
        "chat-template-mismatch",
        EAGLE3,
        {"target.template_digest": "a", "draft.template_digest": "b"},
        "warn",
    ),
    (
        "chat-template-mismatch",
        EAGLE3,
        {"target.template_digest": "a", "draft.template_digest": "a"},
        None,
    ),
    ("family-mismatch", MODEL, {"target.family": "qwen3", "draft.family": "llama"}, "warn"),
    ("family-mismatch", MODEL, {"target.family": "qwen3", "draft.family": "qwen3"}, None),
    ("family-mismatch", MODEL, {"target.family": "qwen3_moe", "draft.family": "qwen3"}, None),
    (
        "family-mismatch",
        MODEL,
        {
            "target.family": "llama4_text",
            "draft.family": "llama",
            "target.tokenizer_digest": "a",
            "draft.tokenizer_digest": "a",
        },
        None,
    ),
    ("draft-size", MODEL, {"target.params_b": 8.0, "draft.params_b": 4.0}, "warn"),
    ("draft-size", MODEL, {"target.params_b": 8.0, "draft.params_b": 8.0}, "warn"),
    ("draft-size", MODEL, {"target.params_b": 8.0, "draft.params_b": 32.0}, "refuse"),
    (
        "draft-size",
        MODEL,
        {"target.name": "/mnt/models/draft", "target.params_b": 8.0, "draft.params_b": 8.0},
        "refuse",
    ),
    ("draft-no-text", MODEL, {"draft.no_text": "BertModel"}, "refuse"),
    ("draft-no-text", MODEL, {"draft.no_text": ""}, None),
    ("draft-no-text", EAGLE3, {"draft.no_text": "LlamaModel"}, None),
    ("no-text", NGRAM, {"target.no_text": "XLMRobertaModel"}, "refuse"),
    ("no-text", NGRAM, {"target.no_text": ""}, None),
    ("no-text", NGRAM, {}, None),
    ("no-text", NONE, {"target.no_text": "XLMRobertaModel"}, None),
    ("draft-size", MODEL, {"target.params_b": 32.0, "draft.params_b": 3.2}, None),
    ("draft-size", MODEL, {"target.params_b": 70.0, "draft.params_b": 1.0}, "warn"),
    ("draft-size", EAGLE3, {"target.params_b": 8.0, "draft.params_b": 4.0}, None),
    ("draft-size", MODEL, {"target.params_b": 8.0}, None),
    ("kv-dtype-mismatch", MODEL, {"kv_cache_dtype": "fp8", "draft.kv_cache_dtype": "auto"}, "warn"),
    ("kv-dtype-mismatch", MODEL | {"kv_cache_dtype": "auto"}, {"kv_cache_dtype": "fp8"}, "warn"),
    ("kv-dtype-mismatch", MODEL, {"kv_cache_dtype": "fp8", "draft.kv_cache_dtype": "fp8"}, None),
    ("kv-dtype-mismatch", MODEL, {"kv_cache_dtype": "fp8"}, None),
    (
        "kv-dtype-mismatch",
        MODEL,
        {"kv_cache_dtype": "fp8", "draft.kv_cache_dtype": "fp8_e4m3"},
        None,
    ),
    ("kv-dtype-mismatch", MODEL | {"kv_cache_dtype": "fp8"}, {"kv_cache_dtype": "fp8_e4m3"}, None),
    (
        "kv-dtype-mismatch",
        MODEL,
        {"kv_cache_dtype": "fp8", "draft.kv_cache_dtype": "fp8_e5m2"},
        "warn",
    ),
    (
        "quantization-mismatch",
        EAGLE3,
        {"quantization": "fp8", "draft.quantization": "none"},
        "warn",
    ),
    ("quantization-mismatch", EAGLE3, {"quantization": "none", "draft.quantization": "none"}, None),
    ("quantization-mismatch", EAGLE3, {"draft.quantization": "none"}, None),
    ("mtp-repeated-layer", MTP | {"num_speculative_tokens": 2}, {"target.mtp_layers": 1}, "note"),
    ("mtp-repeated-layer", MTP | {"num_speculative_tokens": 2}, {"target.mtp_layers": 2}, None),
    ("mtp-repeated-layer", MTP | {"num_speculative_tokens": 2}, {}, None),
    (
        "synthetic-acceptance",
        NGRAM | {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2},
        {},
        "refuse",
    ),
    ("synthetic-acceptance", NGRAM | {"rejection_sample_method": "block"}, {}, None),
    ("lossy-acceptance", NGRAM | {"rejection_sample_method": "fly"}, {}, "refuse"),
    ("lossy-acceptance", NGRAM | {"rejection_sample_method": "standard"}, {}, None),
    ("thinking", NGRAM, {"thinking": True}, "warn"),
    ("thinking", NGRAM, {"thinking": False}, None),
    ("thinking", NGRAM, {}, None),
    ("thinking", EAGLE3, {"thinking": True}, None),
    ("lora", EAGLE3, {"enable_lora": True}, "warn"),
    ("lora", NGRAM, {"enable_lora": True}, "warn"),
    ("lora", NGRAM, {"enable_lora": False}, None),
    ("mtp-prefix-caching", MTP, {"prefix_caching": True}, "warn"),
    ("mtp-prefix-caching", MTP, {"prefix_caching": False}, None),
    ("mtp-prefix-caching", EAGLE3, {"prefix_caching": True}, None),
    ("high-temperature", NGRAM, {"temperature": 1.0}, "warn"),
    ("high-temperature", NGRAM, {"temperature": 0.7}, None),
    ("greedy-draft", EAGLE3, {"temperature": 0.7}, "note"),
    ("greedy-draft", EAGLE3, {"temperature": 0.0}, None),
    ("greedy-draft", EAGLE3 | {"draft_sample_method": "probabilistic"}, {"temperature": 0.7}, None),
    ("greedy-draft", NGRAM, {"temperature": 0.7}, None),
    ("high-concurrency", NGRAM, {"concurrency": 64}, "warn"),
    ("high-concurrency", NGRAM, {"concurrency": 63}, None),
    ("high-concurrency", EAGLE3, {"concurrency": 64}, None),
    ("high-concurrency", EAGLE3, {"concurrency": 128}, "warn"),
    ("high-concurrency", SUFFIX, {"concurrency": 256}, None),
    ("suffix-concurrency", SUFFIX, {"concurrency": 21}, "warn"),
    ("suffix-concurrency", SUFFIX, {"concurrency": 20}, None),
]

BY_ID = {rule.id: rule for rule in RULES}


def service_facts(facts: dict[str, object]) -> ServiceFacts:
    """Facts by their names, those of a checkpoint like ``draft.context``."""
    sides: dict[str, dict[str, object]] = {"target": {}, "draft": {}, "": {}}
    for name, value in facts.items():
        side, _, field = name.rpartition(".")
        sides[side][field] = value
    return ServiceFacts(
        **sides[""],
        target=CheckpointFacts(**sides["target"]),
        draft=CheckpointFacts(**sides["draft"]),
    )


@pytest.mark.parametrize(("rule_id", "config", "facts", "severity"), TABLE)
def test_truth_table(rule_id, config, facts, severity):
    severities_by_id = {
        finding.id: finding.severity
        for finding in preflight_findings(from_config(config), service_facts(facts))
    }
    assert severities_by_id.get(rule_id) == severity


def test_every_rule_fires_somewhere_and_is_silent_elsewhere():
    assert {row[0] for row in TABLE if row[3]} == set(BY_ID)
    assert {row[0] for row in TABLE if not row[3]} == set(BY_ID)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_rule_has_a_source_a_next_step_and_facts_that_exist(rule):
    assert rule.source.strip() and rule.todo.strip()
    assert rule.id == rule.id.lower().replace("_", "-").replace(" ", "-")
    assert all(ServiceFacts().value(name) in (None, (), "") for name in rule.needs + rule.asks)


def test_ids_are_unique():
    assert len(BY_ID) == len(RULES)


@pytest.mark.parametrize(
    ("rule_id", "config", "facts", "severity"), [row for row in TABLE if row[3]]
)
def test_every_finding_is_complete(rule_id, config, facts, severity):
    for finding in preflight_findings(from_config(config), service_facts(facts)):
        assert finding.reason and finding.source.strip() and finding.todo.strip()
        assert "\n" not in finding.reason and "None" not in finding.reason


@pytest.mark.parametrize("config", [EAGLE3, DFLASH])
def test_the_type_that_a_head_is_written_as_says_nothing(config):
    actual_preflight_findings = preflight_findings(
        from_config(config), service_facts({"target.family": "qwen3", "draft.family": "llama"})
    )
    assert "family-mismatch" not in {one.id for one in actual_preflight_findings}


@pytest.mark.parametrize(
    ("ours", "named", "severity"),
    [
        ("Qwen/Qwen3-8B", "/data/train/Qwen3-8B/", None),
        ("Qwen/Qwen3-8B", "/hub/models--Qwen--Qwen3-8B/snapshots/b968826d9c46", None),
        ("Qwen/Qwen3-8B", "/hub/models--Qwen--Qwen3-14B/snapshots/b968826d9c46", "warn"),
        ("Qwen/Qwen3-8B", "/data/base", "warn"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-14B", "refuse"),
        ("amd/Llama-3.1-8B-Instruct-FP8-KV", "meta-llama/Meta-Llama-3.1-8B-Instruct", None),
        ("RedHatAI/Qwen3-32B-NVFP4A16", "Qwen/Qwen3-32B", None),
        ("RedHatAI/Qwen3-32B-MXFP8", "Qwen/Qwen3-32B", None),
        ("Intel/Qwen3-32B-int4-AutoRound", "Qwen/Qwen3-32B", None),
        ("org/Qwen3-32B-W4A16-G128", "Qwen/Qwen3-32B", None),
        ("mlx-community/Qwen3-32B-MLX-4bit", "Qwen/Qwen3-32B", None),
        ("unsloth/Qwen3-32B-unsloth-bnb-4bit", "Qwen/Qwen3-32B", None),
        # more of the name than is known: another way to store it, or other weights
        ("org/Qwen3-32B-EXL9", "Qwen/Qwen3-32B", "warn"),
        ("Qwen/Qwen3-32B", "org/Qwen3-32B-tuned", "warn"),
        ("Qwen/Qwen3-32B-Instruct-EXL9", "Qwen/Qwen3-32B", "refuse"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1", "refuse"),
        ("Qwen/Qwen3-32B", "Qwen/Qwen3-3", "refuse"),
    ],
)
def test_a_path_of_a_trainers_machine_does_not_refuse(ours, named, severity):
    actual_preflight_findings = preflight_findings(
        from_config(EAGLE3), service_facts({"target.name": ours, "draft.trained_for": named})
    )
    assert {one.id: one.severity for one in actual_preflight_findings}.get(
        "wrong-target"
    ) == severity


def test_what_a_rule_needs_and_lacks_is_named_and_never_passes():
    for rule_id, config, facts, severity in TABLE:
        spec, rule = from_config(config), BY_ID[rule_id]
        if severity is None or not rule.needs:
            continue
        for name in rule.needs:
            without = service_facts({key: value for key, value in facts.items() if key != name})
            assert rule.check(spec, without).finding is None
            line = next(line for line in unknowns(spec, without) if line.startswith(f"{rule_id}:"))
            assert name in line


@pytest.mark.parametrize(
    ("config", "lacking"),
    [
        (SUFFIX, "suffix"),
        (MODEL | {"parallel_drafting": True}, "parallel_drafting"),
        (MODEL | {"use_heterogeneous_vocab": True}, "use_heterogeneous_vocab"),
    ],
)
def test_what_a_model_runner_lacks_is_named_and_not_the_method_that_it_has(config, lacking):
    found = preflight_findings(from_config(config), service_facts({"v2_runner": True}))
    (reason,) = [finding.reason for finding in found if finding.id == "model-runner"]
    assert reason.startswith(f"Model Runner V2 lacks {lacking}: ")
