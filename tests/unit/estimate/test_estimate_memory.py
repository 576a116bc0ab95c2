"""KV pools against what engines logged, the log's own words, and what is suggested when a draft joins."""

from __future__ import annotations

import json

import pytest
from eagle3_head import Head
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpctl.estimate.memory import (
    BLOCK,
    DraftMemory,
    KvLog,
    NotEstimated,
    Served,
    default_sequences,
    estimate,
    kv_pool_tokens,
    memory_findings,
    pool_tokens,
    read_log,
)
from mpctl.estimate.shape import GIB, Shape, find_gpu, gpu_gib, model_shape, shape_of

# A busy machine is slow; that is no finding.
patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

QWEN32 = Shape(64, 5120, 64, 8, 128, 151936, 25600, 32.8)
QWEN17 = Shape(28, 2048, 16, 8, 128, 151936, 6144, 1.72)
QWEN4 = Shape(36, 2560, 32, 8, 128, 151936, 9728, 4.02)
LLAMA70 = Shape(80, 8192, 64, 8, 128, 128256, 28672, 70.6)
LLAMA1 = Shape(16, 2048, 32, 8, 64, 128256, 8192, 1.24)

# tomasruizt/vllm-scripts at d94d714: target, draft KV bytes per token, TP, logged GiB for KV, logged tokens.
LOGGED = [
    ("32B alone", QWEN32, lambda tp: 0, 1, 16.91, 69232),
    (
        "32B eagle3",
        QWEN32,
        lambda tp: Head(QWEN32).kv_bytes_per_token(tensor_parallel=tp),
        1,
        11.72,
        47264,
    ),
    (
        "32B with 1.7B",
        QWEN32,
        lambda tp: QWEN17.kv_bytes_per_token(tensor_parallel=tp),
        1,
        11.42,
        32528,
    ),
    (
        "32B with 4B",
        QWEN32,
        lambda tp: QWEN4.kv_bytes_per_token(tensor_parallel=tp),
        1,
        7.08,
        18560,
    ),
    ("70B alone, TP 2", LLAMA70, lambda tp: 0, 2, 4.03, 26432),
    (
        "70B with 1B, TP 2",
        LLAMA70,
        lambda tp: LLAMA1.kv_bytes_per_token(tensor_parallel=tp),
        2,
        2.5,
        14864,
    ),
    (
        "70B eagle3, TP 2",
        LLAMA70,
        lambda tp: Head(LLAMA70).kv_bytes_per_token(tensor_parallel=tp),
        2,
        2.05,
        13280,
    ),
]


@pytest.mark.parametrize(
    ("name", "target", "draft", "tp", "gib", "logged"), LOGGED, ids=[row[0] for row in LOGGED]
)
def test_the_logged_pools_within_one_percent(name, target, draft, tp, gib, logged):
    actual_pool_tokens = pool_tokens(
        gib * GIB, target.kv_bytes_per_token(tensor_parallel=tp), draft(tp)
    )
    assert actual_pool_tokens == pytest.approx(logged, rel=0.01)


# Draft, its logged loaded GiB on one GPU, pool after as logged; from the same logs.
JOINED = [
    (
        QWEN32,
        DraftMemory(2.91, 4096),
        Served(5000, 93.1, 0.9, 1024),
        KvLog("GPU", 69232, 16.91),
        47264,
    ),
    (
        QWEN32,
        DraftMemory(3.21, 114688),
        Served(5000, 93.1, 0.9, 1024),
        KvLog("GPU", 69232, 16.91),
        32528,
    ),
    (
        QWEN32,
        DraftMemory(7.55, 147456),
        Served(5000, 93.1, 0.9, 1024),
        KvLog("GPU", 69232, 16.91),
        18560,
    ),
    (
        LLAMA70,
        DraftMemory(1.17, 16384),
        Served(5000, 79.1, 0.9, 256, 2),
        KvLog("GPU", 26432, 4.03),
        14864,
    ),
    (
        LLAMA70,
        DraftMemory(1.61, 2048),
        Served(5000, 79.1, 0.9, 256, 2),
        KvLog("GPU", 26432, 4.03),
        13280,
    ),
    (
        QWEN32,
        DraftMemory(3.21, 114688),
        Served(5000, 79.1, 0.9, 1),
        KvLog("GPU", 34992, 8.54),
        15456,
    ),
]


@pytest.mark.parametrize(("target", "draft", "served", "log", "after"), JOINED)
def test_the_range_after_a_draft_joins_holds_what_was_logged(target, draft, served, log, after):
    actual_estimate = estimate(target, draft, served, log=log)
    assert actual_estimate.after.low * 0.98 <= after <= actual_estimate.after.high * 1.02
    assert (
        actual_estimate.after.high - actual_estimate.after.low
    ) / actual_estimate.before.low < 0.06


def test_a_pool_from_specifications_holds_what_was_logged():
    actual_estimate = estimate(
        QWEN32, DraftMemory(2.91, 4096), Served(5000, 93.1, 0.9, 1024), target_gib=QWEN32.bf16_gib
    )
    assert actual_estimate.basis == "specifications"
    assert actual_estimate.before.low <= 69232 <= actual_estimate.before.high
    assert actual_estimate.after.low <= 47264 <= actual_estimate.after.high


def test_a_kv_cache_in_fp8_does_not_halve_the_weights():
    draft = DraftMemory(1.0, 4096)
    plain = estimate(QWEN17, draft, Served(4096, 22.0), target_gib=QWEN17.bf16_gib)
    narrow = estimate(
        QWEN17, draft, Served(4096, 22.0, element_bytes=1), target_gib=QWEN17.bf16_gib
    )
    # the same memory in half the bytes per token, and not a token more than rounding to blocks gives
    assert narrow.before.high == pytest.approx(2 * plain.before.high, abs=32)


def test_nothing_is_estimated_from_nothing():
    with pytest.raises(NotEstimated, match="--gpu names it"):
        estimate(QWEN32, DraftMemory(2.91, 4096), Served(5000), target_gib=61.1)
    # layers with a window share the pool in another way than the formula has it
    with pytest.raises(NotEstimated, match="a window or a state"):
        estimate(
            model_shape("openai/gpt-oss-20b"),
            DraftMemory(1, 4096),
            Served(5000, 80.0),
            target_gib=40.0,
        )
    with pytest.raises(NotEstimated, match="weights take once they are loaded"):
        estimate(QWEN32, DraftMemory(2.91, 4096), Served(5000, 80.0))


def test_a_service_that_runs_is_not_said_to_lack_room_for_itself():
    """Weights that leave no room for one request without a draft are not those that are loaded."""
    with pytest.raises(NotEstimated, match="no request of 8,192 tokens even without the draft"):
        estimate(
            QWEN32,
            DraftMemory(1.45, 4096),
            Served(8192, gpu_gib("L40S")),
            target_gib=QWEN32.bf16_gib,
        )
    tight = estimate(QWEN17, DraftMemory(1.0, 4096), Served(8192, 8.0), target_gib=QWEN17.bf16_gib)
    assert tight.before.low >= 8192


def test_without_a_flag_and_a_gpu_the_range_holds_both_of_the_engines_defaults():
    log, draft = KvLog("GPU", 69232, 16.91), DraftMemory(2.91, 4096)
    either = estimate(QWEN32, draft, Served(5000, None, 0.9), log=log)
    many = estimate(QWEN32, draft, Served(5000, None, 0.9, 1024), log=log)
    few = estimate(QWEN32, draft, Served(5000, None, 0.9, 256), log=log)
    assert (either.after.low, either.after.high) == (many.after.low, few.after.high)
    assert either.after.low <= 47264 <= either.after.high


@pytest.mark.parametrize(
    ("gpu", "sequences"),
    [
        ("L4", 256),
        ("A100-80GB-SXM", 256),
        ("NVIDIA A100-SXM4-80GB", 256),
        ("H100-SXM", 1024),
        ("GB200", 1024),
    ],
)
def test_how_many_sequences_an_engine_takes_by_itself(gpu, sequences):
    assert default_sequences(gpu, gpu_gib(gpu)) == sequences


def test_on_a_cpu_only_the_drafts_kv_counts():
    log = KvLog("CPU", 160_000, 1.0)
    shape = Shape(4, 64, 4, 2, 16, 512)
    per = shape.kv_bytes_per_token()
    actual_estimate = estimate(shape, DraftMemory(50.0, per), Served(1536), log=log)
    assert actual_estimate.after.low == actual_estimate.after.high == pool_tokens(GIB, per, per)


def test_a_pool_without_room_is_refused_with_the_flags_to_change():
    # an 8B target on an L4: the draft takes the room of one longest request
    target = model_shape("Qwen/Qwen3-8B")
    assert target is not None
    head = Head(target)
    joined = DraftMemory(head.gib(), head.kv_bytes_per_token())
    tight = estimate(
        target, joined, Served(24576, gpu_gib("L4"), 0.92, 256), target_gib=target.bf16_gib
    )
    (finding,) = memory_findings(tight)
    assert (finding.id, finding.severity) == ("kv-pool-too-small", "refuse")
    assert "24,576" in finding.reason
    for flag in ("--gpu-memory-utilization", "--max-num-seqs", "--max-model-len"):
        assert flag in finding.todo
    roomy = estimate(
        target, DraftMemory(1.0, 4096), Served(4096, 139.8, 0.9, 8), target_gib=target.bf16_gib
    )
    assert memory_findings(roomy)[0].severity == "note"
    halved = estimate(
        QWEN32,
        DraftMemory(3.21, 114688),
        Served(5000, 93.1, 0.9, 1024),
        log=KvLog("GPU", 69232, 16.91),
    )
    assert memory_findings(halved)[0].severity == "warn"


@patient
@given(st.floats(0, 100), st.integers(1, 10**6), st.integers(0, 10**6))
def test_a_pool_is_whole_blocks_that_fit(gib, target, draft):
    actual_pool_tokens = pool_tokens(gib * GIB, target, draft)
    assert actual_pool_tokens % BLOCK == 0
    assert (
        actual_pool_tokens * (target + draft)
        <= gib * GIB
        < (actual_pool_tokens + BLOCK) * (target + draft) * (1 + 1e-9) + 1
    )


LINES = """\
(EngineCore) INFO 01-23 01:44:55 [gpu_model_runner.py:3921] Model loading took 61.03 GiB memory and 94.1 seconds
(EngineCore) INFO 01-23 01:45:33 [gpu_worker.py:355] Available KV cache memory: 16.91 GiB
\x1b[0;36m(EngineCore)\x1b[0;0m INFO 01-23 01:45:33 [kv_cache_utils.py:1307] GPU KV cache size: 69,232 tokens
(EngineCore) INFO 01-23 01:45:33 [kv.py:1] Maximum concurrency for 5,000 tokens per request: 13.82x
"""
CPU = (
    "INFO 11-21 [kv_cache_utils.py:2327] CPU KV cache size: 1,398,016 tokens, "
    "Maximum concurrency for 1,536 tokens per request: 910.17x"
)


def test_the_engines_own_lines():
    assert read_log(LINES) == KvLog("GPU", 69232, 16.91)
    assert kv_pool_tokens(LINES + CPU) == 1398016, "the last start counts"
    assert read_log(CPU) == KvLog("CPU", 1398016)
    assert kv_pool_tokens("") is None
    assert kv_pool_tokens("INFO nothing of the kind") is None


@patient
@given(st.text())
def test_any_text_is_read_without_an_error(text):
    assert read_log(text).tokens is None or "KV cache size" in text


def test_the_log_corrects_the_estimate():
    actual_estimate = estimate(
        QWEN32, DraftMemory(2.91, 4096), Served(5000, 93.1, 0.9, 1024), log=read_log(LINES)
    )
    assert "69,232" in actual_estimate.text()


def test_heads_weigh_what_engines_logged():
    assert Head(QWEN32).gib() == pytest.approx(2.91, rel=0.01)
    assert Head(QWEN32, own_embedding=False).params == pytest.approx(0.78e9, rel=0.01)
    assert Head(LLAMA70, own_embedding=False).params == pytest.approx(1.40e9, rel=0.01)


def test_shapes_of_configurations():
    plain = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    assert shape_of(plain) == Shape(2, 64, 4, 4, 16, 100)
    assert shape_of({**plain, "num_key_value_heads": 2, "head_dim": 8}) == Shape(
        2, 64, 4, 2, 8, 100
    )
    assert shape_of({"text_config": plain}) == shape_of(plain)
    assert shape_of({"transformer_layer_config": plain, "num_hidden_layers": 1}).layers == 1
    assert shape_of({**plain, "layer_types": ["full_attention", "sliding_attention"]}).hybrid
    for key in plain:
        assert shape_of({**plain, key: None}) is None
    assert shape_of(json.loads("{}")) is None


@pytest.mark.parametrize(
    ("config", "hybrid"),
    [
        ({}, False),
        ({"layer_types": ["full_attention", "full_attention"]}, False),
        ({"sliding_window": 131072, "use_sliding_window": False}, False),  # Qwen2.5
        ({"sliding_window": None}, False),
        ({"sliding_window": 4096}, True),  # Mistral-7B-v0.1, Gemma 2
        ({"sliding_window": 4096, "use_sliding_window": True}, True),
        ({"sliding_window": 1024, "sliding_window_pattern": 6}, True),  # Gemma 3
        ({"attention_chunk_size": 8192}, True),  # Llama 4
        ({"hybrid_override_pattern": "M-M*-"}, True),  # Nemotron-H
        ({"attn_layer_period": 8, "attn_layer_offset": 4}, True),  # Jamba
        ({"full_attention_interval": 4}, True),  # Qwen3-Next
        ({"kv_lora_rank": 512}, True),  # DeepSeek
    ],
)
def test_windows_and_states_are_seen_in_published_configurations(config, hybrid):
    plain = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "vocab_size": 100,
        **config,
    }
    assert shape_of(plain).hybrid is hybrid
    assert shape_of({"text_config": plain}).hybrid is hybrid


def test_the_table_of_models_and_gpus():
    assert model_shape("qwen/qwen3-32b") == QWEN32
    assert model_shape("nobody/nothing") is None
    assert gpu_gib("NVIDIA L4") == gpu_gib("l4") == 22.5
    assert gpu_gib("NVIDIA H100 80GB HBM3") == 79.1
    assert gpu_gib("abacus") is None


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("H100", "H100-SXM"),
        ("H100-80GB", "H100-SXM"),
        ("A100-40GB", "A100-40GB-SXM"),
        ("RTX 4090", "RTX-4090"),
        ("NVIDIA GeForce RTX 3090", "RTX-3090"),
        ("NVIDIA H200", "H200-SXM"),
    ],
)
def test_gpus_are_found_by_the_names_that_publications_use(name, known):
    assert find_gpu(name).name == known


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-1B-Instruct"),
        ("Qwen/Qwen3-8B-FP8", "Qwen/Qwen3-8B"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B"),
    ],
)
def test_forms_of_a_model_have_its_dimensions(name, same):
    assert model_shape(name) == model_shape(same) is not None
