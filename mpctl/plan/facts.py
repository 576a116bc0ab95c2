"""From a service and the model files that can be read, the facts that the preflight judges. What is not known stays
None."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mpctl.service import Service
from mpctl.speculation import Facts, Spec
from mpctl.speculation.facts import DraftKind

_MOE_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True)
class ModelFacts:
    """What a checkpoint says of itself. ``context`` in tokens, ``params_b`` in billions (from the files' size and
    dtype)."""

    family: str | None = None
    context: int | None = None
    params_b: float | None = None
    tokenizer_digest: str | None = None
    moe: bool | None = None
    quantization: str | None = None
    template_thinks: bool | None = None
    draft_kind: DraftKind | None = None


def describe_model(
    config: Mapping[str, Any],
    *,
    weight_bytes: int | None = None,
    tokenizer_digest: str | None = None,
    chat_template: str | None = None,
) -> ModelFacts:
    """Read a Hugging Face ``config.json``; the other arguments are what lies beside it, None where it was not read."""
    quantization = (config.get("quantization_config") or {}).get("quant_method", "none")
    width = {"float32": 4, "bfloat16": 2, "float16": 2}.get(str(config.get("dtype") or config.get("torch_dtype")))
    plain = weight_bytes is not None and width is not None and quantization == "none"
    return ModelFacts(
        family=config.get("model_type"),
        context=config.get("max_position_embeddings"),
        params_b=weight_bytes / width / 1e9 if plain and weight_bytes and width else None,
        tokenizer_digest=tokenizer_digest,
        moe=any(config.get(key) for key in _MOE_KEYS),
        quantization=quantization,
        template_thinks=None if chat_template is None else _template_thinks(chat_template),
        draft_kind=_draft_kind(config),
    )


def facts_of(
    service: Service,
    spec: Spec,
    *,
    engine_version: str | None = None,
    kserve_version: str | None = None,
    target: ModelFacts | None = None,
    draft: ModelFacts | None = None,
    concurrency: int | None = None,
    temperature: float | None = None,
) -> Facts:
    """The facts of one change to one service."""
    command = service.command
    draft_model = spec.settings.get("model")
    target = target or ModelFacts()
    draft = draft or ModelFacts()
    return Facts(
        engine_version=engine_version or service.image,
        kserve_version=kserve_version,
        target_model=service.model,
        draft_model=draft_model if isinstance(draft_model, str) else None,
        draft_kind=draft.draft_kind,
        served_context=_integer(command.get("max-model-len")) or target.context,
        draft_context=draft.context,
        tensor_parallel=_integer(command.get("tensor-parallel-size")) or 1,
        data_parallel=_integer(command.get("data-parallel-size")) or 1,
        target_params_b=target.params_b,
        draft_params_b=draft.params_b,
        target_family=target.family,
        draft_family=draft.family,
        target_tokenizer_digest=target.tokenizer_digest,
        draft_tokenizer_digest=draft.tokenizer_digest,
        target_is_moe=target.moe,
        thinking=_thinking(service, target),
        enable_lora=command.has("enable-lora"),
        prefix_caching=_prefix_caching(tuple(command.argv)),  # vLLM's default is on
        async_scheduling=True if command.has("async-scheduling") else None,
        kv_cache_dtype=command.get("kv-cache-dtype"),
        quantization=command.get("quantization") or target.quantization,
        draft_quantization=draft.quantization,
        temperature=temperature,
        uses_storage_uris=len(service.storage) > 1,
        argv=tuple(command.argv),
        concurrency=concurrency,
    )


def _prefix_caching(argv: tuple[str, ...]) -> bool:
    flags = [word.replace("_", "-") for word in argv]  # vLLM takes both spellings
    said = [flag for flag in flags if flag in ("--enable-prefix-caching", "--no-enable-prefix-caching")]
    return not said or said[-1] == "--enable-prefix-caching"


def _thinking(service: Service, target: ModelFacts) -> bool | None:
    chosen = service.command.get("default-chat-template-kwargs")
    if chosen:
        try:
            value = json.loads(chosen).get("enable_thinking")
        except (ValueError, AttributeError):
            value = None
        if isinstance(value, bool):
            return value
    if target.template_thinks is not None:
        return target.template_thinks
    name = (service.model or "").lower().rstrip("/").rpartition("/")[2]
    # Qwen3's hybrid models think unless told otherwise; its later "Instruct-2507" ones never do (model cards).
    return True if "qwen3-" in name and not any(part in name for part in ("instruct", "coder", "base")) else None


def _template_thinks(template: str) -> bool | None:
    """A template that knows of no think block does not think; one with a switch does unless told otherwise (Qwen3).

    A think block without a switch says nothing: it may be opened always, or only parsed from earlier turns.
    """
    if "<think>" not in template:
        return False
    return True if "enable_thinking" in template else None


def _draft_kind(config: Mapping[str, Any]) -> DraftKind | None:
    names = " ".join(config.get("architectures") or []).lower() + str(config.get("speculators_model_type") or "")
    kinds: tuple[DraftKind, ...] = ("eagle3", "eagle", "medusa", "mlp_speculator", "dflash", "dspark", "mtp")
    for kind in kinds:
        if kind.replace("_", "") in names.replace("_", ""):
            return kind
    return "model" if "causallm" in names else None


def _integer(text: str | None) -> int | None:
    """vLLM's numbers: plain, or with k, m, g for thousands and K, M, G for powers of 1024 (its --max-model-len)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", text or "")
    if match is None:
        return None
    power = "kmg".find(match[2].lower()) + 1 if match[2] else 0
    return int(float(match[1]) * (1024 if match[2].isupper() else 1000) ** power)
