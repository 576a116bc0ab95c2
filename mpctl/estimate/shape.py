"""The dimensions of a model that decide how much memory it takes, and what it takes.

Sources: Hugging Face ``config.json`` keys; KV bytes per token as in vLLM's full-attention specification (two tensors
per layer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIB = 2**30
# Keys of config.json that say that some layers keep a window, a state or a compressed form instead of all keys and
# values (vLLM 0.32.0, its model classes): windows, Llama 4's chunks, Mamba and linear attention beside attention, MLA.
_HYBRID_KEYS = (
    "use_sliding_window",
    "sliding_window_pattern",
    "sliding_window_size",
    "swa_window_size",
    "attention_chunk_size",
    "hybrid_layer_pattern",
    "hybrid_override_pattern",
    "layers_block_type",
    "layer_group_size",
    "attn_type_list",
    "attn_layer_indices",
    "attn_layer_period",
    "full_attention_interval",
    "linear_attn_config",
    "mamba_d_state",
    "kv_lora_rank",
)


@dataclass(frozen=True)
class Shape:
    """``layers`` with a KV cache; sizes are counts of elements; ``params_b`` billions of parameters, None if unknown.

    ``hybrid``: some layers keep a sliding window or a state instead of the whole context, so bytes per token are an
    upper bound. ``tied``: input and output embeddings are one matrix. ``active_params_b``, ``experts`` and
    ``experts_per_token``: of a mixture of experts.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    intermediate: int | None = None
    params_b: float | None = None
    hybrid: bool = False
    tied: bool = False
    active_params_b: float | None = None
    experts: int | None = None
    experts_per_token: int | None = None

    @property
    def bf16_gib(self) -> float | None:
        """GiB of all weights in bf16, None where the number of parameters is unknown."""
        return None if self.params_b is None else self.params_b * 1e9 * 2 / GIB

    def kv_bytes_per_token(self, *, tensor_parallel: int = 1, element_bytes: int = 2) -> int:
        """Bytes of keys and values of one token on one GPU.

        2 * layers * kv_heads * head_dim * element_bytes; under tensor parallelism every GPU holds its share of the
        heads, at least one.
        """
        heads = max(self.kv_heads // tensor_parallel, 1)
        return 2 * self.layers * heads * self.head_dim * element_bytes


def shape_of(config: Mapping[str, Any]) -> Shape | None:
    """The shape a ``config.json`` describes, None where a dimension is missing or is no whole number.

    A speculators checkpoint keeps its layer's dimensions under ``transformer_layer_config``, a multimodal model the
    language model's under ``text_config``.
    """
    nested = config.get("transformer_layer_config") or config.get("text_config") or config
    if not isinstance(nested, Mapping):
        return None
    layers, hidden, heads = (_whole(nested, key) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    vocab = _whole(nested, "vocab_size")
    if layers is None or hidden is None or heads is None or vocab is None:
        return None
    if nested is not config and "transformer_layer_config" in config:
        layers = _whole(config, "num_hidden_layers") or layers
    return Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_whole(nested, "num_key_value_heads") or heads,
        head_dim=_whole(nested, "head_dim") or hidden // heads,
        vocab=vocab,
        intermediate=_whole(nested, "intermediate_size"),
        hybrid=_is_hybrid(nested),
    )


def _is_hybrid(config: Mapping[str, Any]) -> bool:
    """Return whether some layers keep a window or a state. A window counts unless it is off, as in Qwen2."""
    kinds = config.get("layer_types")
    mixed = isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds)
    window = config.get("sliding_window") and config.get("use_sliding_window") is not False
    return mixed or bool(window) or any(config.get(key) for key in _HYBRID_KEYS)


def _whole(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
