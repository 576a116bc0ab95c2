"""Estimates before anything is changed: memory, capacity, payoff, and the facts of a service and its checkpoints."""

from mpctl.estimate.checkpoint import (
    ModelFacts,
    TokenizerDigests,
    describe_model,
    tokenizer_digests,
)
from mpctl.estimate.facts import facts_of, runs_v2, target_name_of

__all__ = [
    "ModelFacts",
    "TokenizerDigests",
    "describe_model",
    "facts_of",
    "runs_v2",
    "target_name_of",
    "tokenizer_digests",
]
