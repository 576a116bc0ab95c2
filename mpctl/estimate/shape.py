"""The dimensions of a model that decide how much memory it takes, and what it takes.

Sources: Hugging Face ``config.json`` keys; KV bytes per token as in vLLM's full-attention specification (two tensors
per layer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
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


# GPU names in nvidia-smi, DRA's productName and publications, where they differ from the table's
# name; lower case, words joined by hyphens.
_PRODUCTS = {
    "a100": "A100-80GB-SXM",
    "a100-40gb": "A100-40GB-SXM",
    "a100-80gb": "A100-80GB-SXM",
    "tesla-a100": "A100-40GB-SXM",
    "h100-mega-80gb": "H100-SXM",
    "a100-sxm4-40gb": "A100-40GB-SXM",
    "a100-sxm4-80gb": "A100-80GB-SXM",
    "b200": "B200-SXM",
    "b200-hgx": "B200-SXM",
    "geforce-rtx-3090": "RTX-3090",
    "geforce-rtx-4090": "RTX-4090",
    "h100": "H100-SXM",
    "h100-80gb": "H100-SXM",
    "h100-80gb-hbm3": "H100-SXM",
    "h100-80gb-sxm": "H100-SXM",
    "h100-94gb": "H100-SXM-94",
    "h100-nvl": "H100-SXM-94",
    "h100-sxm5": "H100-SXM",
    "h200": "H200-SXM",
    "h200-141gb": "H200-SXM",
}


@cache
def _table() -> dict[str, Any]:
    import yaml

    text = (resources.files("mpctl.estimate") / "models.yaml").read_text(encoding="utf-8")
    table: dict[str, Any] = yaml.safe_load(text)
    return table


# Spellings of a family that has the dimensions of another, and names with and without the fine-tune's suffix.
_SAME = (("meta-llama/meta-llama-", "meta-llama/llama-"), ("meta-llama/llama-3-", "meta-llama/llama-3.1-"))
_SUFFIXES = ("-instruct", "-base", "-fp8", "-instruct-2507", "-instruct-fp8", "-awq")


@dataclass(frozen=True)
class Gpu:
    """One GPU: GiB that tools report, GB/s of its memory, dense TFLOPS; ``fp8_tflops`` None where it computes none."""

    name: str
    usable_gib: float
    bandwidth_gb_s: float
    bf16_tflops: float
    fp8_tflops: float | None = None
    nvlink: bool = False


def model_shape(name: str | None) -> Shape | None:
    """The dimensions of ``organisation/model``, matched without regard to case; None when it is not in the table.

    A model and its instruction-tuned or quantized form have the same dimensions.
    """
    wanted = (name or "").lower()
    known = {row.lower(): fields for row, fields in _table()["models"].items()}
    for old, new in _SAME:
        wanted = new + wanted.removeprefix(old) if wanted.startswith(old) else wanted
    dimensions = known.get(wanted)
    if dimensions is None:
        bare = _bare(wanted)
        dimensions = next((fields for row, fields in known.items() if _bare(row) == bare), None)
    return None if dimensions is None else Shape(**dimensions)


def _bare(name: str) -> str:
    suffix = max((ending for ending in _SUFFIXES if name.endswith(ending)), key=len, default="")
    return name.removesuffix(suffix)


def find_gpu(product: str | None) -> Gpu | None:
    """A GPU by the table's name or the product's own, with or without a remark in brackets; None when it is not in the
    table."""
    plain = (product or "").lower().partition("(")[0].strip().removeprefix("nvidia")
    wanted = "-".join(plain.replace("-", " ").split())
    wanted = _PRODUCTS.get(wanted, wanted).lower()
    for known, fields in _table()["gpus"].items():
        if known.lower() == wanted:
            return Gpu(known, **fields)
    return None


def gpu_gib(product: str | None) -> float | None:
    """Usable GiB of a GPU by the table's name or the product's own; None when it is not in the table."""
    gpu = find_gpu(product)
    return None if gpu is None else gpu.usable_gib


def gpus() -> tuple[str, ...]:
    """The names of the GPUs in the table."""
    return tuple(_table()["gpus"])
