"""Flags, keys, values and metrics that vLLM no longer has, with their sources.

Guides outlive engines. Most published commands for speculation still carry flags of the V0 engine, which make a
current server exit at start-up, and dashboards query a gauge that no longer exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Kind = Literal["flag", "key", "value", "metric"]


@dataclass(frozen=True)
class Removed:
    """A flag, key of speculative-config, value or metric that is gone.

    ``since``: the first release known to be without it. ``key``: the speculative-config key that took over, if one did.
    """

    name: str
    kind: Kind
    since: str
    why: str
    replacement: str
    source: str
    key: str | None = None


_CONFIG = "one JSON argument, --speculative-config, replaced the flags"
_PR = "vLLM PR #14434, PR #15466"
_V0 = "it belonged to the V0 engine, which is gone"


def _flag(name: str, key: str | None, replacement: str = "") -> Removed:
    then = replacement or f"'{key}' inside --speculative-config"
    return Removed(name, "flag", "0.8.3", _CONFIG, then, _PR, key)


_DYNAMIC = "'num_speculative_tokens_per_batch_size', a schedule of [start, end, K]; K 0 turns speculation off"
_SAMPLER = "'rejection_sample_method': standard or block; typical acceptance has no replacement"

_ALL = (
    _flag("--speculative-model", "model", "'method' and 'model' inside --speculative-config"),
    _flag("--num-speculative-tokens", "num_speculative_tokens"),
    _flag("--speculative-model-quantization", "quantization"),
    _flag("--speculative-draft-tensor-parallel-size", "draft_tensor_parallel_size"),
    _flag("--speculative-max-model-len", "max_model_len"),
    _flag("--ngram-prompt-lookup-max", "prompt_lookup_max"),
    _flag("--ngram-prompt-lookup-min", "prompt_lookup_min"),
    _flag("--speculative-disable-by-batch-size", None, _DYNAMIC),
    _flag("--speculative-disable-mqa-scorer", None, "nothing: remove it"),
    _flag("--spec-decoding-acceptance-method", "rejection_sample_method", _SAMPLER),
    _flag("--typical-acceptance-sampler-posterior-threshold", None, _SAMPLER),
    _flag("--typical-acceptance-sampler-posterior-alpha", None, _SAMPLER),
    _flag("--disable-logprobs-during-spec-decoding", None, "nothing: remove it, logprobs work"),
    Removed("--use-v2-block-manager", "flag", "0.32.0", _V0, "nothing: remove it", "vLLM 0.32.0 arg_utils.py"),
    Removed("--num-lookahead-slots", "flag", "0.32.0", _V0, "nothing: remove it", "vLLM 0.32.0 arg_utils.py"),
    Removed(
        "disable_by_batch_size",
        "key",
        "0.17.0",
        "the V1 engine never read it (without effect since 0.10.0)",
        _DYNAMIC,
        "vLLM PR #35060, issue #25112",
    ),
    Removed("acceptance_method", "key", "0.10.0", _V0, _SAMPLER, "vLLM 0.32.0 refuses it", "rejection_sample_method"),
    Removed("posterior_threshold", "key", "0.10.0", _V0, _SAMPLER, "vLLM PR #20736 review", "rejection_sample_method"),
    Removed("posterior_alpha", "key", "0.10.0", _V0, _SAMPLER, "vLLM PR #20736 review", "rejection_sample_method"),
    Removed("disable_mqa_scorer", "key", "0.10.0", _V0, "nothing: remove it", "vLLM 0.32.0 refuses it"),
    Removed(
        "disable_logprobs",
        "key",
        "0.32.0",
        "logprobs work under speculation",
        "nothing: remove it",
        "vLLM 0.32.0 refuses it; PR #24322 still had it",
    ),
    Removed("speculative_model", "key", "0.8.3", _CONFIG, "'model'", _PR, "model"),
    Removed("ngram_prompt_lookup_max", "key", "0.8.3", "renamed", "'prompt_lookup_max'", "vLLM #24888"),
    Removed("ngram_prompt_lookup_min", "key", "0.8.3", "renamed", "'prompt_lookup_min'", "vLLM #24888"),
    Removed(
        "tensor_parallel_size",
        "key",
        "0.15.0",
        "it was read as the target's size",
        "'draft_tensor_parallel_size'",
        "vLLM PR #24322",
        "draft_tensor_parallel_size",
    ),
    Removed("strict", "value", "0.32.0", "renamed", "rejection_sample_method: standard", "vLLM 0.32.0 refuses it"),
    Removed(
        "vllm:spec_decode_draft_acceptance_rate",
        "metric",
        "0.10.0",
        "V0 exported a gauge; V1 exports counters",
        "vllm:spec_decode_num_accepted_tokens_total / vllm:spec_decode_num_draft_tokens_total over a window",
        "vLLM 0.32.0 /metrics; the DigitalOcean article still quotes the gauge",
    ),
    Removed(
        "vllm:spec_decode_efficiency",
        "metric",
        "0.10.0",
        "V0 exported a gauge; V1 exports counters",
        "tokens per step: vllm:generation_tokens_total / (vllm:inter_token_latency_seconds_count + "
        "vllm:time_to_first_token_seconds_count)",
        "vLLM 0.32.0 /metrics",
    ),
)

REMOVED: Mapping[str, Removed] = MappingProxyType({entry.name: entry for entry in _ALL})


def removed_flags(argv: tuple[str, ...]) -> tuple[Removed, ...]:
    """The removed flags an engine command line still carries, in table order; underscores count as dashes."""
    flags = {part.partition("=")[0].replace("_", "-") for part in argv if part.startswith("--")}
    return tuple(entry for entry in _ALL if entry.kind == "flag" and entry.name in flags)
