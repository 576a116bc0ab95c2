"""The dimensions of a model that decide how much memory it takes, and what it takes.

Sources: Hugging Face ``config.json`` keys; KV bytes per token as in vLLM's full-attention specification (two tensors
per layer).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from mpctl.json_types import Json, JsonView
from mpctl.packaged import packaged

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
    ``experts_per_token``: of a mixture of experts. ``full_layers``: those that keep the whole context; ``window``
    tokens in the others, or ``state_mb`` for each request in all of them together. ``latent``: elements per token and
    layer of a compressed KV (MLA). ``precision`` of the published checkpoint.
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
    full_layers: int | None = None
    window: int | None = None
    latent: int | None = None
    state_mb: float = 0.0
    precision: str | None = None

    def kv_elements(self) -> float:
        """Elements of KV that one token adds, over all layers."""
        # Layers that keep the whole context; half of those of a hybrid whose layers are unknown.
        layers = self.full_layers or self.layers * (
            0.5 if self.hybrid and self.latent is None else 1.0
        )
        return layers * (self.latent or 2 * self.kv_heads * self.head_dim)

    def window_elements(self) -> float:
        """Elements that the windows of one request hold."""
        windowed = 0 if self.full_layers is None else self.layers - self.full_layers
        return windowed * (self.window or 0) * 2 * self.kv_heads * self.head_dim

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


def shape_of(config: JsonView) -> Shape | None:
    """The shape a ``config.json`` describes, None where a dimension is missing or is no whole number.

    A speculators checkpoint keeps its layer's dimensions under ``transformer_layer_config``, a multimodal model the
    language model's under ``text_config``.
    """
    nested = config.get("transformer_layer_config") or config.get("text_config") or config
    if not isinstance(nested, Mapping):
        return None
    layers, hidden, heads = (
        whole_at(nested, key) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads")
    )
    vocab = whole_at(nested, "vocab_size")
    if layers is None or hidden is None or heads is None or vocab is None:
        return None
    if nested is not config and "transformer_layer_config" in config:
        layers = whole_at(config, "num_hidden_layers") or layers
    shape = Shape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=whole_at(nested, "num_key_value_heads") or heads,
        head_dim=whole_at(nested, "head_dim") or hidden // heads,
        vocab=vocab,
        intermediate=whole_at(nested, "intermediate_size"),
        hybrid=_is_hybrid(nested),
        experts=next(filter(None, (whole_at(nested, key) for key in _EXPERTS)), None),
    )
    return _listed_as(shape)


# Keys of config.json that count the experts of a layer.
_EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")


def _listed_as(shape: Shape) -> Shape:
    """The table's row of the same dimensions, which knows what a config.json does not say; else the shape itself."""
    same = ("layers", "hidden", "heads", "kv_heads", "vocab", "experts")
    for fields in _table()["models"].values():
        if all(fields.get(name) == getattr(shape, name) for name in same):
            return replace(Shape(**fields), precision=None)  # how it is stored, its own files say
    return shape


def _is_hybrid(config: JsonView) -> bool:
    """Return whether some layers keep a window or a state. A window counts unless it is off, as in Qwen2."""
    kinds = config.get("layer_types")
    mixed = isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds)
    window = config.get("sliding_window") and config.get("use_sliding_window") is not False
    return mixed or bool(window) or any(config.get(key) for key in _HYBRID_KEYS)


def whole(value: object) -> int | None:
    """Return a whole number above zero; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def whole_at(config: JsonView, key: str) -> int | None:
    """Return a field of a config.json where it is a whole number above zero."""
    return whole(config.get(key))


@cache
def _table() -> Json:
    table: Json = packaged("mpctl.estimate", "models.yaml")
    return table


# Spellings of a family that has the dimensions of another, and names with and without the fine-tune's suffix.
_SAME = (
    ("meta-llama/meta-llama-", "meta-llama/llama-"),
    ("meta-llama/llama-3-", "meta-llama/llama-3.1-"),
)
# Endings that say how a checkpoint was tuned or stored, and prefixes of a republished one.
_SUFFIX = re.compile(
    r"[-_.](instruct|base|it|chat|bf16|fp8|fp8[-_]dynamic|awq|gptq|int4|int8|4bit|bnb|nvfp4|mxfp4|w4a16|w8a8|dynamic|"
    r"quantized|gguf|unsloth|\d{4}|hf)$"
)


@dataclass(frozen=True)
class Gpu:
    """A GPU: GiB that tools report, GB/s of its memory, dense TFLOPS; ``fp8_tflops`` None where it computes none."""

    name: str
    usable_gib: float
    bandwidth_gb_s: float
    bf16_tflops: float
    fp8_tflops: float | None = None
    nvlink: bool = False


def model_shape(name: str | None) -> Shape | None:
    """The dimensions of ``organisation/model``, matched without regard to case; None when it is not in the table.

    A model, its instruction-tuned and its quantized forms, by whoever published them, have the same dimensions.
    """
    wanted = (name or "").lower()
    models = {row.lower(): fields for row, fields in _table()["models"].items()}
    for old, new in _SAME:
        wanted = new + wanted.removeprefix(old) if wanted.startswith(old) else wanted
    dimensions = models.get(wanted)
    if dimensions is None:
        bare = _bare(wanted)
        dimensions = (
            next((fields for row, fields in models.items() if _bare(row) == bare), None)
            if wanted
            else None
        )
    return None if dimensions is None else Shape(**dimensions)


def nearest_models(name: str | None) -> list[str]:
    """Return at most three models of the table whose names resemble one that it does not have."""
    return difflib.get_close_matches(name or "", _table()["models"])


def _bare(name: str) -> str:
    """The model's own name: without its organisation, and without what tuning and quantization append."""
    bare = name.rpartition("/")[2].removeprefix("meta-")
    while (shorter := _SUFFIX.sub("", bare)) != bare:
        bare = shorter
    return bare


def find_gpu(product: str | None) -> Gpu | None:
    """A GPU by the table's name or the product's own, with or without a remark in brackets; None when it is not in the
    table."""
    plain = (
        (product or "")
        .lower()
        .partition("(")[0]
        .strip()
        .removeprefix("nvidia")
        .strip()
        .removeprefix("amd")
    )
    wanted = "-".join(plain.replace("-", " ").split())
    wanted = _table()["products"].get(wanted, wanted).lower()
    for gpu_name, fields in _table()["gpus"].items():
        if gpu_name.lower() == wanted:
            return Gpu(gpu_name, **fields)
    return None


def gpu_gib(product: str | None) -> float | None:
    """Usable GiB of a GPU by the table's name or the product's own; None when it is not in the table."""
    gpu = find_gpu(product)
    return None if gpu is None else gpu.usable_gib


def gpus() -> tuple[str, ...]:
    """The names of the GPUs in the table."""
    return tuple(_table()["gpus"])
