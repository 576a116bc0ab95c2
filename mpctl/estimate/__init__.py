"""What is known before anything is touched."""

from mpctl.estimate.checkpoint import ModelFacts, TokenizerDigests, describe_model, tokenizer_digests
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
