"""Facts of a checkpoint, from the small files beside its weights. Pure: parsed files in, facts out.

What a file does not say stays None. Digests are over canonical JSON, so that the same vocabulary written in another
order or with other white space is the same.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mpctl.estimate.shape import GIB, Shape, shape_of, whole, whole_at
from mpctl.json_types import JsonView
from mpctl.methods import METHODS
from mpctl.methods.preflight.preflight_rule import NAMES_NO_SCHEME, CheckpointFacts

_MOE_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")
_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2, "F32": 4, "BF16": 2, "F16": 2}
# Keys under which a head's configuration names the model it was trained for, the most explicit first.
_TARGETS = (
    "target_model_name_or_path",
    "base_model_name_or_path",
    "verifier_name_or_path",
    "target_model",
)
# The kinds of checkpoint that are no complete model; the longest name first, as eagle3 holds eagle.
_KINDS = sorted(
    {row.checkpoint for row in METHODS.values() if row.checkpoint not in (None, "model")}, key=len
)[::-1]
# Method names in speculators' configurations that differ from the kind of the checkpoint.
_SPECULATORS = {row.name.replace("-", ""): row.checkpoint for row in METHODS.values()}
_SPECULATORS |= {
    variant.name.lower(): row.checkpoint for row in METHODS.values() for variant in row.variants
}
_VARIANTS = {
    name: row.checkpoint
    for row in METHODS.values()
    for variant in row.variants
    for name in variant.architectures
}
# Keys under which a target's configuration counts its MTP layers (vLLM 0.32.0, SpeculativeConfig.hf_config_override).
_MTP_KEYS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
# Keys under which a draft's configuration names its mask token (vLLM 0.32.0, _init_parallel_drafting_params).
_MASK_KEYS = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")
# Families whose configuration may leave the count out though the layers are there.
_MTP_UNSAID = ("longcat", "mimo_v2", "minimax_m3", "step3p")


@dataclass(frozen=True)
class ModelFacts(CheckpointFacts):
    """Facts of a checkpoint, with those that only an estimate needs."""

    weight_bytes: int | None = None  # on disk
    template_thinks: bool | None = None  # the chat template thinks by default
    shape: Shape | None = None  # the dimensions, None where incomplete
    dtype: str | None = None  # of the weights

    @property
    def weight_gib(self) -> float | None:
        """Size of the weights in GiB."""
        return None if self.weight_bytes is None else self.weight_bytes / GIB


@dataclass(frozen=True)
class TokenizerDigests:
    """SHA-256 of a tokenizer's vocabulary with its merges, and of its added tokens."""

    vocabulary: str
    added: str


def tokenizer_digests(tokenizer: JsonView) -> TokenizerDigests | None:
    """Digests of a parsed ``tokenizer.json``; None when it holds no vocabulary."""
    model = tokenizer.get("model")
    if not isinstance(model, Mapping) or not model.get("vocab"):
        return None
    added = tokenizer.get("added_tokens") or []
    plain = sorted(
        (int(token["id"]), str(token["content"]), bool(token.get("special")))
        for token in added
        if isinstance(token, Mapping) and "id" in token and "content" in token
    )
    # Merges as pairs: written as "a b" or as ["a", "b"], depending on the library's age.
    merges = [
        merge.split(" ", 1) if isinstance(merge, str) else [str(part) for part in merge]
        for merge in model.get("merges") or []
    ]
    return TokenizerDigests(_digest([model.get("type"), model["vocab"], merges]), _digest(plain))


def _digest(value: object) -> str:
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def describe_model(
    config: JsonView,
    *,
    weight_bytes: int | None = None,
    tokenizer: TokenizerDigests | None = None,
    chat_template: str | None = None,
    tensors: Mapping[str, tuple[int, ...]] | None = None,
) -> ModelFacts:
    """Read a Hugging Face ``config.json``; the other arguments are what lies beside it, None where it was not read.

    ``tensors``: shapes by name, from the headers of the safetensors files.
    """
    quantized = config.get("quantization_config") or {}
    quantization = _quantization(quantized)
    kind = _draft_kind(config, tensors)
    layer = config.get("transformer_layer_config")
    inner = layer if isinstance(layer, Mapping) else config.get("text_config") or config
    # Bytes of a parameter, by which the weights are counted in billions of them.
    width = _WIDTHS.get(str(config.get("dtype") or config.get("torch_dtype")))
    facts = ModelFacts(
        name=_name(config),
        family=config.get("model_type"),
        context=whole_at(inner, "max_position_embeddings"),
        params_b=weight_bytes / width / 1e9
        if weight_bytes and width and quantization == "none"
        else None,
        weight_bytes=weight_bytes,
        tokenizer_digest=None if tokenizer is None else tokenizer.vocabulary,
        added_tokens_digest=None if tokenizer is None else tokenizer.added,
        template_digest=None if chat_template is None else _digest(chat_template.strip()),
        moe=any(inner.get(key) for key in _MOE_KEYS),
        quantization=quantization,
        kv_cache_dtype=_kv_dtype(quantized),
        template_thinks=None if chat_template is None else _template_thinks(chat_template),
        draft_kind=kind,
        hidden=whole_at(inner, "hidden_size"),
        vocab=whole_at(inner, "vocab_size"),
        draft_vocab=whole_at(config, "draft_vocab_size"),
        map_rows=_map_rows(tensors),
        recurrent=_recurrent(inner),
        mtp_layers=_mtp_layers(config),
        mask_token=_names_mask_token(config),
        block_size=_block_size(config),
        shape=shape_of(config),
        no_text=_no_text(config),
        rope_theta=_rope_theta(inner),
        mrope=_mrope(config),
        # The model that vLLM serves in place of a speculators checkpoint; empty for any other.
        verifier=(_trained_for(config) or "the model that it was trained for")
        if config.get("speculators_config")
        else "",
        dtype=next((value for value in map(_dtype, (config, inner)) if value is not None), None),
    )
    return facts if kind in (None, "model") else _with_head(facts, config)


def _with_head(facts: ModelFacts, config: JsonView) -> ModelFacts:
    """Add what the configuration of a head says of the target that it was made for."""
    heads = config.get("medusa_num_heads") or config.get("num_heads")
    return replace(
        facts,
        expects_hidden=whole_at(config, "target_hidden_size") or facts.hidden,
        trained_for=_trained_for(config),
        architectures=tuple(map(str, config.get("architectures") or [])) or None,
        medusa_heads=whole(heads) if facts.draft_kind == "medusa" else None,
    )


def _rope_theta(inner: JsonView) -> float | None:
    """The base where transformers 5 writes it, else where earlier ones did; None where layers have several."""
    parameters = inner.get("rope_parameters")
    theta = (parameters if isinstance(parameters, Mapping) else inner).get("rope_theta")
    return (
        float(theta)
        if isinstance(theta, int | float) and not isinstance(theta, bool) and theta > 0
        else None
    )


def _mrope(config: JsonView) -> bool:
    """Return whether positions have several dimensions, by vLLM's own test (0.32.0, uses_mrope)."""
    thinker = config.get("thinker_config")
    parts = [
        config,
        *(config.get(key) for key in ("text_config", "transformer_layer_config")),
        thinker,
    ]
    parts.append(thinker.get("text_config") if isinstance(thinker, Mapping) else None)
    ropes = [
        part.get(key)
        for part in parts
        if isinstance(part, Mapping)
        for key in ("rope_parameters", "rope_scaling")
    ]
    return any(isinstance(rope, Mapping) and "mrope_section" in rope for rope in ropes)


def _name(config: JsonView) -> str | None:
    """``_name_or_path`` where it is a repository; training scripts often leave a path of their own machine there."""
    name = config.get("_name_or_path")
    return name if isinstance(name, str) and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) else None


def _quantization(quantized: JsonView) -> str | None:
    """``none``, or the method named; compressed-tensors with its schemes, as in ``compressed-tensors float w8a8``, and
    None where it says none.
    """
    method: str = quantized.get("quant_method", "none")
    if method != NAMES_NO_SCHEME:
        return method
    groups = quantized.get("config_groups")
    schemes = (
        {_scheme(group) for group in groups.values()} if isinstance(groups, Mapping) else set()
    )
    recognised = sorted(scheme for scheme in schemes if scheme is not None)
    return (
        " ".join((method, *recognised)) if recognised and len(recognised) == len(schemes) else None
    )


def _scheme(group: object) -> str | None:
    """``int w4a16``: type and bits of a group's weights, bits of its activations."""
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(group, Mapping) or not isinstance(weights, Mapping):
        return None
    inputs = group.get("input_activations")
    activations = inputs.get("num_bits") if isinstance(inputs, Mapping) else 16
    return f"{weights.get('type')} w{weights.get('num_bits')}a{activations}"


# Classes of transformers and diffusers that embed, rank, transcribe or draw, or encode and decode.
_NO_TEXT = re.compile(
    r".*For(?:SequenceClassification|TokenClassification|MaskedLM|\w*RewardModel|Embedding|Ranking|CTC|SpeechSeq2Seq)"
    r"|(?:\w*Bert|\w*Roberta\w*?|MPNet|Deberta\w*?|Gte\w*?|\w*CLIP|Siglip\w*?|M?T5|UMT5|T5Gemma|M?Bart|Whisper|Jina\w*?)"
    r"(?:Model|ForConditionalGeneration)|(?:Llama|Mistral|Qwen2|Qwen3|Gemma2|Gemma3Text)Model|.*Pipeline|.*Transformer2DModel"
)


def _no_text(config: JsonView) -> str | None:
    """The class of a configuration that generates no text; empty for another, None where it names none."""
    names = config.get("architectures") or config.get("_class_name")
    classes = (
        [str(name) for name in names]
        if isinstance(names, list)
        else [names]
        if isinstance(names, str)
        else []
    )
    return next((name for name in classes if _NO_TEXT.fullmatch(name)), "") if classes else None


def _dtype(config: JsonView) -> str | None:
    value = config.get("dtype") or config.get("torch_dtype")
    return value.removeprefix("torch.") if isinstance(value, str) else None


def _kv_dtype(quantized: JsonView) -> str | None:
    """The KV cache's dtype a quantised checkpoint brings: compressed-tensors' scheme, or ModelOpt's name."""
    scheme = quantized.get("kv_cache_scheme")
    if (
        isinstance(scheme, Mapping)
        and scheme.get("type") == "float"
        and scheme.get("num_bits") == 8
    ):
        return "fp8"
    name = quantized.get("kv_cache_quant_algo")
    return name.lower() if isinstance(name, str) else None


def _trained_for(config: JsonView) -> str | None:
    """The target a head's configuration names: speculators' verifier, or one of the keys other trainers write."""
    verifier = (config.get("speculators_config") or {}).get("verifier") or {}
    named = [verifier.get("name_or_path"), *(config.get(key) for key in _TARGETS)]
    return next((name for name in named if isinstance(name, str) and name), None)


def _map_rows(tensors: Mapping[str, tuple[int, ...]] | None) -> int | None:
    """Rows of the table from draft tokens to target tokens: ``d2t``, under whatever prefix it is stored."""
    for name, shape in (tensors or {}).items():
        if name.rpartition(".")[2] in ("d2t", "draft_id_to_target_id") and shape:
            return shape[0]
    return None


def _names_mask_token(config: JsonView) -> bool:
    part = config.get("dflash_config")
    inside = isinstance(part, Mapping) and "mask_token_id" in part
    return inside or any(config.get(key) is not None for key in _MASK_KEYS)


def _block_size(config: JsonView) -> int | None:
    part = config.get("dflash_config")
    inside = part.get("block_size") if isinstance(part, Mapping) else None
    return whole(inside) or whole_at(config, "block_size") or whole_at(config, "dspark_block_size")


def _mtp_layers(config: JsonView) -> int | None:
    """Return the number of MTP layers that the configuration names, at the top or in a part; None when unknown."""
    parts = (config, config.get("text_config"), config.get("mtp_config"))
    named = [part.get(key) for part in parts if isinstance(part, Mapping) for key in _MTP_KEYS]
    if counts := [count for count in named if count is not None]:
        return max(whole(count) or 0 for count in counts)
    family = config.get("model_type")
    return 0 if isinstance(family, str) and not family.startswith(_MTP_UNSAID) else None


# Keys of a configuration by the recurrent layers that they describe (vLLM 0.32.0, the model classes of Kimi Linear,
# Qwen3-Next and 3.5, and of Nemotron-H, Falcon-H1, Granite 4, Bamba and Zamba2).
_RECURRENT = {
    "kda": ("linear_attn_config",),
    "gdn": ("linear_num_value_heads",),
    "mamba2": (
        "mamba_d_state",
        "mamba_d_ssm",
        "ssm_state_size",
        "hybrid_override_pattern",
        "mamba_ngroups",
    ),
}


def _recurrent(config: JsonView) -> str:
    """Return ``kda``, ``gdn`` or ``mamba2`` by the keys of the layers that keep a state, else ``none``."""
    layers = config.get("layer_types")
    if isinstance(layers, list) and all(
        "attention" in str(layer) and layer != "linear_attention" for layer in layers
    ):
        return "none"  # Granite 4 has models of the hybrid's type without a recurrent layer
    return next(
        (kind for kind, keys in _RECURRENT.items() if any(config.get(key) for key in keys)), "none"
    )


def _template_thinks(template: str) -> bool | None:
    """A template that knows of no think block does not think; one with a switch does unless told otherwise (Qwen3).

    A think block without a switch says nothing: it may be opened always, or only parsed from earlier turns.
    """
    if "<think>" not in template:
        return False
    return True if "enable_thinking" in template else None


def _draft_kind(
    config: JsonView, tensors: Mapping[str, tuple[int, ...]] | None = None
) -> str | None:
    declared = str(config.get("speculators_model_type") or "")
    variant = next(
        (_VARIANTS[str(n)] for n in config.get("architectures") or [] if str(n) in _VARIANTS), None
    )
    if variant is not None:
        return variant
    names = " ".join(config.get("architectures") or []).lower() + (
        _SPECULATORS.get(declared) or declared
    )
    for kind in _KINDS:
        if kind.replace("_", "") in names.replace("_", ""):
            return kind
    if config.get("draft_vocab_size") and config.get("num_hidden_layers") == 1:
        return "eagle3"  # one layer with a vocabulary of its own, whatever it calls itself
    if any(str(key).startswith("medusa_num_") for key in config):
        return "medusa"  # published heads name no architecture
    if "causallm" not in names:
        return None
    if config.get("num_hidden_layers") != 1:
        return "model"
    # One layer under the name of a whole model: EAGLE's first generation is published like that, and only its weights
    # tell, by the layer that joins a token's embedding with the target's hidden state.
    return _one_layer_kind(tensors)


def _one_layer_kind(tensors: Mapping[str, tuple[int, ...]] | None) -> str | None:
    """``model``, or ``eagle`` by its ``fc`` of hidden x 2 hidden; None where the weights cannot be looked at."""
    if not tensors:
        return None
    joins = [shape for name, shape in tensors.items() if name in ("fc.weight", "model.fc.weight")]
    if not joins:
        return "model"
    return "eagle" if len(joins[0]) == 2 and joins[0][1] == 2 * joins[0][0] else None
