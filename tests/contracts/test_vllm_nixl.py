"""The NIXL compatibility hash of prefill and decode pods, computed from manifests, is that of vLLM's own function."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest

from mpctl.estimate.checkpoint import describe_model
from mpctl.estimate.facts import facts_of
from mpctl.manifest import load_one
from mpctl.manifest.speculation.setting import needs_both_ends
from mpctl.methods import build, from_config
from mpctl.methods.preflight.nixl import KvEnd, factors
from mpctl.methods.table import METHODS
from tests.preflight import preflight_findings

BACKEND = "CPU_ATTN"
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 256,
    "max_position_embeddings": 512, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5,
}  # fmt: skip
HALF = LLAMA | {
    "torch_dtype": "float16",
    "num_key_value_heads": 8,
    "num_hidden_layers": 2,
    "head_dim": 16,
}
GLM = LLAMA | {
    "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "num_nextn_predict_layers": 1, "head_dim": 8,
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
}  # fmt: skip
EAGLE = LLAMA | {"num_hidden_layers": 1, "num_key_value_heads": 8}
EAGLE3 = EAGLE | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 64}
AUXILIARY = EAGLE3 | {"eagle_aux_hidden_state_layer_ids": [1, 2]}
DFLASH = EAGLE | {
    "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "block_size": 4, "head_dim": 8,
    "dflash_config": {"mask_token_id": 255, "target_layer_ids": [1, 2]},
}  # fmt: skip
MODELS = {
    "llama": LLAMA, "half": HALF, "glm": GLM, "eagle": EAGLE, "eagle3": EAGLE3, "aux": AUXILIARY, "dflash": DFLASH,
}  # fmt: skip
PUSH = '{"kv_connector":"NixlPushConnector","kv_role":"kv_both"}'
E3 = ("eagle3", "eagle3")

# The target; method and draft of both ends; what the decode and the prefill pods have besides.
PAIRS = [
    ("llama", ("none", None), (), ()),
    ("llama", ("ngram", None), (), ()),
    ("llama", ("ngram", None), ("--dtype=half",), ()),
    ("llama", ("eagle", "eagle"), (), ()),
    ("llama", E3, (), ()),
    ("llama", ("eagle3", "aux"), (), ()),
    ("llama", ("p-eagle", "eagle3"), (), ()),
    ("llama", ("draft_model", "llama"), (), ()),
    ("glm", ("mtp", None), (), ()),
    ("glm", ("mtp", None), ("--kv-cache-dtype=fp8",), ()),
    ("llama", ("dflash", "dflash"), (), ()),
    ("half", ("none", None), (), ()),
    ("half", E3, ("--dtype=bfloat16",), ()),
    ("half", E3, ("--dtype", "half"), ("--dtype=auto",)),
    ("llama", E3, ("--dtype=half",), ("--dtype=float16",)),
    ("llama", E3, ("--dtype=float16",), ()),
    ("llama", E3, ("--kv-cache-dtype=fp8",), ()),
    ("llama", E3, ("--kv_cache_dtype", "fp8"), ("--kv-cache-dtype=fp8",)),
    ("llama", E3, ("--kv-cache-dtype", "auto"), ()),
    ("llama", E3, ("--disable-hybrid-kv-cache-manager",), ()),
    ("llama", E3, ("--disable-hybrid-kv-cache-manager",), ("--disable_hybrid_kv_cache_manager",)),
    ("llama", E3, ("--kv-transfer-config", PUSH), ()),
    ("llama", E3, ("--kv-transfer-config", PUSH), ("--kv-transfer-config", PUSH)),
    ("llama", E3, ("--max-num-seqs=4", "--enforce-eager"), ("--max-model-len=256", "--block-size=32")),
    ("half", ("eagle", "eagle"), ("--no-enable-prefix-caching",), ("--max-num-batched-tokens=1024",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The configurations as folders, by name."""
    pytest.importorskip("vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata")
    home = tmp_path_factory.mktemp("models")
    for name, config in MODELS.items():
        (home / name).mkdir()
        (home / name / "config.json").write_text(json.dumps(config))
    return {name: str(home / name) for name in MODELS}


def hash_by_vllm(argv: list[str], config: dict | None) -> str:
    """vLLM's own hash of an engine with these arguments, read by its own parser."""
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import (
        compute_nixl_compatibility_hash,
    )
    from vllm.engine.arg_utils import EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    setting = [] if config is None else ["--speculative-config", json.dumps(config)]
    known = parser.parse_args([*argv, "--skip-tokenizer-init", *setting])
    engine = EngineArgs.from_cli_args(known).create_engine_config()
    push = "NixlPushConnector" in engine.kv_transfer_config.kv_connector
    return compute_nixl_compatibility_hash(
        engine, BACKEND, transfer_mode="push" if push else "pull"
    )


def manifest(model: str, ends: dict[str, tuple[str, ...]]) -> str:
    return "---\n".join(
        json.dumps(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": f"chat-{role}"},
                "spec": {"template": {"spec": {"containers": [{
                    "name": "vllm", "command": ["vllm", "serve"], "image": "vllm/vllm-openai:v0.32.0",
                    "args": ["--model", model, *words],
                }]}}},
            }
        ) + "\n"
        for role, words in ends.items()
    )  # fmt: skip


def digest(end: KvEnd, config: dict | None, auxiliary: tuple[int, ...] | None) -> str:
    """The hash of an engine's factors and of its draft's, which both ends have alike."""
    settings = config or {}
    method, draft = from_config(config).known, None
    if method is not None and method.prompt_states:
        draft = {
            "method": method.engine_method,
            "model": settings.get("model") or end.model,
            "revision": settings.get("revision"),
            "code_revision": settings.get("code_revision"),
            "parallel_drafting": bool(settings.get("parallel_drafting"))
            or method.parallel_drafting == "implied",
            "kv_cache_dtype": settings.get("kv_cache_dtype") or end.cache_dtype,
            "auxiliary_layer_ids": auxiliary,
        }
    known = factors(end) | {"speculative_config": draft}
    assert len(known) == 12, known
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


@pytest.mark.parametrize(("model", "method", "decode", "prefill"), PAIRS)
def test_the_hash_of_both_ends_is_vllms(folders, model, method, decode, prefill):
    name, draft = method
    sets = () if name == "none" else ("num_speculative_tokens=3",)
    config = build(name, draft=None if draft is None else folders[draft], sets=sets)[0].config()
    nixl = ("--kv-transfer-config", '{"kv_connector":"NixlConnector","kv_role":"kv_both"}')
    ends = {"decode": (*nixl, *decode), "prefill": (*nixl, *prefill)}
    facts = facts_of(
        load_one(manifest(folders[model], ends), None), target=describe_model(MODELS[model])
    )
    (of_prefill,) = facts.prefill_ends
    layers = MODELS[draft or model].get("eagle_aux_hidden_state_layer_ids")
    auxiliary = None if layers is None else tuple(layers)
    hashes = []
    for role, end in (("decode", facts.decode_end), ("prefill", of_prefill)):
        ours = digest(replace(end, backend=BACKEND), config, auxiliary)
        assert ours == hash_by_vllm(["--model", folders[model], *ends[role]], config)
        hashes.append(ours)
    refused = "prefill-differs" in {
        finding.id for finding in preflight_findings(from_config(config), facts)
    }
    assert refused == (hashes[0] != hashes[1])


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("none", "medusa")])
def test_a_draft_that_the_hash_holds_is_edited_at_both_ends(method):
    from vllm.config.speculative import SpeculativeConfig

    class Config:
        pass

    config = Config()
    config.method = METHODS[method].engine_method
    draft = "org/draft" if METHODS[method].needs_draft in ("head", "model") else None
    wanted = build(method, draft=draft)[0].config()
    # A draft model is in no hash, but the engines compare their number of layers with KV cache.
    assert needs_both_ends(wanted) == (
        SpeculativeConfig.use_eagle(config) or method == "draft_model"
    )
