"""Weights, active parameters and KV bytes that a step of a target and of its draft reads and computes.

The embedding is not read by a step, unless it is the output matrix, too. Heads are sized by the layers they have
(SpecForge's configurations and speculators' documentation; P-EAGLE 4, DFlash and DSpark 5 layers).
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.estimate.shape import Shape
from mpctl.methods import METHODS

# Bytes of a parameter as it is stored; four bits with their scales.
PRECISIONS = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.56, "awq": 0.56, "gptq": 0.56, "mxfp4": 0.56}
PRECISIONS["nvfp4"] = 0.56
DRAFT_VOCAB = 32000  # of EAGLE-3 heads, where their files do not say


@dataclass(frozen=True)
class Weights:
    """Of one model, over all GPUs. GB read per step: ``dense_gb``, and ``expert_gb`` for all experts together.
    ``output_b``: billions of parameters of the output matrix, part of ``active_b``."""

    dense_gb: float
    active_b: float
    kv_bytes: float
    layers: int
    hidden: int
    expert_gb: float = 0.0
    experts: int = 1
    experts_per_token: int = 1
    output_b: float = 0.0

    @property
    def total_gb(self) -> float:
        """GB read by a step that uses every expert."""
        return self.dense_gb + self.expert_gb


def params_of(shape: Shape) -> float:
    """Billions of parameters: as stated, else by the dimensions of a dense model."""
    if shape.params_b is not None:
        return shape.params_b
    embeddings = shape.vocab * shape.hidden * (1 if shape.tied else 2)
    return (shape.layers * _layer(shape) + embeddings) / 1e9


def _layer(shape: Shape) -> float:
    """Parameters of one dense layer."""
    width, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return (
        2 * shape.hidden * width + 2 * shape.hidden * kv + 3 * shape.hidden * (shape.intermediate or 3 * shape.hidden)
    )


def target_weights(shape: Shape, *, bytes_per_param: float = 2.0, kv_element_bytes: float = 2.0) -> Weights:
    """The target's. A mixture of experts without its active parameters counts as dense."""
    total = params_of(shape) * 1e9
    embedding = 0 if shape.tied else shape.vocab * shape.hidden
    kv = 2 * shape.layers * shape.kv_heads * shape.head_dim * kv_element_bytes * (0.5 if shape.hybrid else 1)
    active = (shape.active_params_b or total / 1e9) * 1e9
    expert = 0.0
    if shape.experts and shape.experts_per_token and shape.active_params_b:
        expert = (total - active) / (shape.experts - shape.experts_per_token) * shape.experts
    dense = total - embedding - expert
    return Weights(
        dense_gb=dense * bytes_per_param / 1e9,
        active_b=max(active - embedding, 1.0) / 1e9,
        kv_bytes=kv,
        layers=shape.layers,
        hidden=shape.hidden,
        expert_gb=expert * bytes_per_param / 1e9,
        experts=shape.experts or 1,
        experts_per_token=shape.experts_per_token or 1,
        output_b=min(shape.vocab * shape.hidden, max(active - embedding, 1.0)) / 1e9,
    )


def head_weights(target: Shape, method: str, *, vocab: int | None = None, params_b: float | None = None) -> Weights:
    """A head of ``method`` on ``target``; ``params_b``: without its embedding, where it is known."""
    row = METHODS[method]
    layers, reads_three = row.head_layers or 1, row.head_inputs == 3
    width, kv = target.heads * target.head_dim, target.kv_heads * target.head_dim
    own_vocab = vocab or (DRAFT_VOCAB if reads_three else target.vocab)
    inputs = 3 if reads_three else 2
    body = layers * _layer(target) + inputs * target.hidden**2
    if reads_three and not row.drafts_in_one_pass:  # its layer reads the embedding beside the state
        body += target.hidden * (width + 2 * kv)
    params = params_b * 1e9 if params_b is not None else body + target.hidden * own_vocab
    kv_bytes = 2 * layers * target.kv_heads * target.head_dim * 2
    output = min(target.hidden * own_vocab, params) / 1e9
    return Weights(params * 2 / 1e9, params / 1e9, kv_bytes, layers, target.hidden, output_b=output)
