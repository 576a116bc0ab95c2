"""The keys of ``--speculative-config``, their types and their limits.

Taken from vLLM 0.32.0 and 0.33.0 (vllm/config/speculative.py), as the real class of 0.32.0 judged them. We are
stricter where it accepts what nobody means: ``true`` as K 1, "5" as K 5, a dynamic schedule that overlaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeGuard

from mpctl.errors import InputError
from mpctl.methods.method import KeyGroup
from mpctl.methods.table import METHODS
from mpctl.methods.version_limits import REMOVED
from mpctl.methods.versions import Version

Kind = Literal["count", "whole", "number", "share", "bool", "text", "choice", "schedule", "rates", "object"]

# Above this K a warning: the largest K in published drafts is 15 (DFlash blocks of 16), vLLM's suffix example has 32.
LARGE_K = 32


@dataclass(frozen=True)
class Key:
    """A key: its kind, allowed values and the group of methods it acts on; the engine ignores it elsewhere. ``since``:
    the first release that knows it, None where 0.32 does; an older one exits at start-up."""

    name: str
    kind: Kind
    choices: tuple[str, ...] = ()
    group: KeyGroup | None = None
    since: Version | None = None

    @property
    def acts_on(self) -> frozenset[str]:
        """The methods on which it has an effect."""
        return frozenset(row.name for row in METHODS.values() if self.group is None or self.group in row.key_groups)


_NEXT = (0, 33, 0)

_ALL = (
    Key("num_speculative_tokens", "count"),
    Key("model", "text"),
    Key("draft_tensor_parallel_size", "count", group="draft"),
    Key("quantization", "text", group="draft"),
    Key("max_model_len", "count", group="draft"),
    Key("revision", "text", group="draft"),
    Key("code_revision", "text", group="draft"),
    Key("prompt_lookup_min", "count", group="lookup"),
    Key("prompt_lookup_max", "count", group="lookup"),
    Key("parallel_drafting", "bool"),
    Key("num_speculative_tokens_per_batch_size", "schedule"),
    Key("suffix_decoding_max_tree_depth", "count", group="trees"),
    Key("suffix_decoding_max_cached_requests", "whole", group="trees"),
    Key("suffix_decoding_max_spec_factor", "number", group="trees"),
    Key("suffix_decoding_min_token_prob", "share", group="trees"),
    Key("rejection_sample_method", "choice", ("standard", "block", "synthetic", "fly")),
    Key("synthetic_acceptance_rates", "rates"),
    Key("synthetic_acceptance_length", "number"),
    Key("draft_sample_method", "choice", ("greedy", "probabilistic"), "draft"),
    Key("enable_adaptive_verification", "bool"),
    Key("kv_cache_dtype", "text", group="draft"),
    Key("attention_backend", "text", group="draft"),
    Key("moe_backend", "text", group="draft"),
    Key("enforce_eager", "bool"),
    Key("use_heterogeneous_vocab", "bool"),
    Key("disable_padded_drafter_batch", "bool", group="draft"),
    Key("disable_eagle_block_drop", "bool", group="draft"),
    Key("use_local_argmax_reduction", "bool", group="draft"),
    Key("index_share_for_mtp_iteration", "bool"),
    Key("dspark_draft_topk", "count"),
    Key("draft_load_config", "object", group="draft"),
    Key("disable_lookahead_block_hashes", "bool", group="draft", since=_NEXT),
    Key("draft_lm_head_quantization", "choice", ("fp8", "nvfp4"), "draft", _NEXT),
    Key("xpress_topc", "whole", group="draft", since=_NEXT),
    Key("fly_window_size", "count", since=_NEXT),
    Key("fly_entropy_threshold", "number", since=_NEXT),
    Key("fly_entropy_top_k", "count", since=_NEXT),
)

KEYS: Mapping[str, Key] = MappingProxyType({key.name: key for key in _ALL})

# Fields of the class that the engine fills in itself.
INTERNAL = frozenset({"target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config"})


def check_value(key: Key, value: object) -> None:
    """Raise an :class:`InputError` naming the key when the value has the wrong type or is out of range."""
    wanted = _wrong(key, value)
    if wanted:
        raise InputError(f"must be {wanted}, got {_show(value)}", field=key.name, hint=_hint(key, value))


def _wrong(key: Key, value: object) -> str | None:
    """Return the expected kind of value, None when the value fits."""
    if key.kind == "choice":
        return None if value in key.choices else f"one of {', '.join(key.choices)}"
    fits, wanted = _FITS[key.kind]
    return None if fits(value) else wanted


def is_int(value: object) -> TypeGuard[int]:
    """A whole number that is not a truth value: vLLM reads ``true`` as 1."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[int | float]:
    """A finite number that is not a truth value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_rates(value: object) -> bool:
    if not isinstance(value, (list, tuple)) or not value:
        return False
    if not all(is_number(rate) and 0 <= rate <= 1 for rate in value):
        return False
    return all(later <= earlier for earlier, later in pairwise(value))


# A schedule is judged with the other keys (combine.py).
_FITS: Mapping[str, tuple[Callable[[object], bool], str]] = MappingProxyType(
    {
        "count": (lambda value: is_int(value) and value >= 1, "a whole number of at least 1"),
        "whole": (lambda value: is_int(value) and value >= 0, "a whole number of at least 0"),
        "number": (lambda value: is_number(value) and value >= 0, "a number of at least 0"),
        "share": (lambda value: is_number(value) and 0 <= value <= 1, "a number from 0 to 1"),
        "bool": (lambda value: isinstance(value, bool), "true or false"),
        "text": (lambda value: isinstance(value, str) and bool(value.strip()), "a text that is not empty"),
        "rates": (_is_rates, "a list of falling numbers from 0 to 1"),
        "object": (lambda value: isinstance(value, Mapping), "an object"),
        "schedule": (lambda value: True, ""),
    }
)


def _show(value: object) -> str:
    words = {True: "true", False: "false"}
    return words[value] if isinstance(value, bool) else repr(value)


def _hint(key: Key, value: object) -> str | None:
    if key.kind in ("count", "whole", "number", "share") and isinstance(value, str):
        return "vLLM would read the text as a number; write it without quotes"
    if key.kind == "choice" and isinstance(value, str) and value in REMOVED:
        return f"'{value}' was renamed: {REMOVED[value].replacement}"
    if key.kind == "count" and isinstance(value, bool):
        return f"vLLM would read {_show(value)} as {int(value)}; write the number"
    return None
