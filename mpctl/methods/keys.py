"""The keys of ``--speculative-config``, their types and limits, and the rules between keys.

Taken from vLLM 0.32.0 and 0.33.0 (vllm/config/speculative.py), as the real class of 0.32.0 judged them. We are
stricter where it accepts what nobody means: ``true`` as K 1, "5" as K 5, a dynamic schedule that overlaps. Keys that do
not go together the engine refuses at start-up, minutes later, or accepts and then ignores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeGuard, cast

from mpctl.errors import InputError
from mpctl.methods.method import KeyGroup, Method
from mpctl.methods.spec import JsonValue
from mpctl.methods.table import METHODS
from mpctl.methods.versions import REMOVED, Version, parse_version

Kind = Literal[
    "count", "whole", "number", "share", "bool", "text", "choice", "schedule", "list", "object"
]

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
        return frozenset(
            row.name
            for row in METHODS.values()
            if self.group is None or self.group in row.key_groups
        )


# Name, kind or choices, group of methods, first release that knows it.
_TABLE = """
num_speculative_tokens                count
model                                 text
draft_tensor_parallel_size            count                        draft
quantization                          text                         draft
max_model_len                         count                        draft
revision                              text                         draft
code_revision                         text                         draft
prompt_lookup_min                     count                        lookup
prompt_lookup_max                     count                        lookup
parallel_drafting                     bool
num_speculative_tokens_per_batch_size schedule
suffix_decoding_max_tree_depth        count                        trees
suffix_decoding_max_cached_requests   whole                        trees
suffix_decoding_max_spec_factor       number                       trees
suffix_decoding_min_token_prob        share                        trees
rejection_sample_method               standard|block|synthetic|fly
synthetic_acceptance_rates            list
synthetic_acceptance_length           number
draft_sample_method                   greedy|probabilistic         draft
enable_adaptive_verification          bool
kv_cache_dtype                        text                         draft
attention_backend                     text                         draft
moe_backend                           text                         draft
enforce_eager                         bool
use_heterogeneous_vocab               bool
disable_padded_drafter_batch          bool                         draft
disable_eagle_block_drop              bool                         draft
use_local_argmax_reduction            bool                         draft
index_share_for_mtp_iteration         bool
dspark_draft_topk                     count
draft_load_config                     object                       draft
disable_lookahead_block_hashes        bool                         draft   0.33.0
draft_lm_head_quantization            fp8|nvfp4                    draft   0.33.0
xpress_topc                           whole                        draft   0.33.0
fly_window_size                       count                        -       0.33.0
fly_entropy_threshold                 number                       -       0.33.0
fly_entropy_top_k                     count                        -       0.33.0
"""


def _key(name: str, kind: str, group: str = "-", since: str = "") -> Key:
    choices = tuple(kind.split("|")) if "|" in kind else ()
    return Key(
        name,
        cast(Kind, "choice" if choices else kind),
        choices,
        None if group == "-" else cast(KeyGroup, group),
        parse_version(since),
    )


KEYS: Mapping[str, Key] = MappingProxyType(
    {line.split()[0]: _key(*line.split()) for line in _TABLE.strip().splitlines()}
)

# Fields of the class that the engine fills in itself.
INTERNAL = frozenset(
    {"target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config"}
)


def check_value(key: Key, value: object) -> None:
    """Raise an :class:`InputError` naming the key when the value has the wrong type or is out of range."""
    wanted = _wrong(key, value)
    if wanted:
        raise InputError(
            f"must be {wanted}, got {_show(value)}", field=key.name, hint=_hint(key, value)
        )


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


# A schedule is judged with the other keys, by check_combination.
_FITS: Mapping[str, tuple[Callable[[object], bool], str]] = MappingProxyType(
    {
        "count": (lambda value: is_int(value) and value >= 1, "a whole number of at least 1"),
        "whole": (lambda value: is_int(value) and value >= 0, "a whole number of at least 0"),
        "number": (lambda value: is_number(value) and value >= 0, "a number of at least 0"),
        "share": (lambda value: is_number(value) and 0 <= value <= 1, "a number from 0 to 1"),
        "bool": (lambda value: isinstance(value, bool), "true or false"),
        "text": (
            lambda value: isinstance(value, str) and bool(value.strip()),
            "a text that is not empty",
        ),
        "list": (lambda value: isinstance(value, list | tuple), "a list"),
        "object": (lambda value: isinstance(value, Mapping), "an object"),
        "schedule": (lambda value: True, ""),
    }
)


def _show(value: object) -> str:
    words = {True: "true", False: "false"}
    return words[value] if isinstance(value, bool) else repr(value)


def _hint(key: Key, value: object) -> str | None:
    if key.kind in ("count", "whole", "number", "share") and isinstance(value, str):
        return "write a number without quotes; vLLM would read a text of digits as one"
    if key.kind == "choice" and isinstance(value, str) and value in REMOVED:
        return f"'{value}' was renamed: {REMOVED[value].replacement}"
    if key.kind == "count" and isinstance(value, bool):
        return f"vLLM would read {_show(value)} as {int(value)}; write the number"
    return None


# Rules between keys

_SCHEDULE = "num_speculative_tokens_per_batch_size"


def check_combination(method: Method, settings: Mapping[str, JsonValue]) -> None:
    """Raise an :class:`InputError` for keys that do not go together."""
    low, high = settings.get("prompt_lookup_min"), settings.get("prompt_lookup_max")
    if "lookup" in method.key_groups and is_int(low) and is_int(high) and low > high:
        raise InputError(
            f"is {low}, above prompt_lookup_max={high}",
            field="prompt_lookup_min",
            hint="set both, for example prompt_lookup_min=2 and prompt_lookup_max=4",
        )
    _parallel(method, settings)
    _only(method, settings)
    _adaptive(method, settings)
    _needs_k(method, settings)
    if _SCHEDULE in settings:
        _schedule(settings[_SCHEDULE], settings.get("num_speculative_tokens"))


def _parallel(method: Method, settings: Mapping[str, JsonValue]) -> None:
    """vLLM 0.32.0: "only compatible with EAGLE and draft model methods"; methods that draft in one pass imply it."""
    wanted, name = settings.get("parallel_drafting"), "parallel_drafting"
    if wanted is True and method.parallel_drafting == "never":
        others = sorted(row.name for row in METHODS.values() if row.parallel_drafting != "never")
        raise InputError(
            f"has no meaning with {method.name}; vLLM accepts and ignores it",
            field=name,
            hint=f"remove it; it goes with {', '.join(others)}",
        )
    if method.parallel_drafting == "required" and wanted is not True:
        raise InputError(
            f"must be true for {method.name}",
            field=name,
            hint=f"use --spec {method.engine_method} instead",
        )
    if method.parallel_drafting == "implied" and wanted is False:
        raise InputError(f"is always on for {method.name}", field=name, hint="remove it")


def _only(method: Method, settings: Mapping[str, JsonValue]) -> None:
    for row in METHODS.values():
        for key in row.own_keys:
            if settings.get(key) not in (None, False) and method.name != row.name:
                raise InputError(
                    f"works with {row.name} only, not with {method.name}",
                    field=key,
                    hint="remove it",
                )
    if (
        settings.get("use_heterogeneous_vocab") is True
        and settings.get("draft_sample_method") == "probabilistic"
    ):
        raise InputError(
            "must be greedy with use_heterogeneous_vocab",
            field="draft_sample_method",
            hint="remove it: greedy is default",
        )


def _adaptive(method: Method, settings: Mapping[str, JsonValue]) -> None:
    """vLLM sizes verification by the draft's confidence or by acceptance that it estimates from the draft's logits."""
    if settings.get("enable_adaptive_verification") is not True:
        return
    if method.adaptive_since is None:
        others = sorted(row.name for row in METHODS.values() if row.adaptive_since)
        raise InputError(
            f"has no meaning with {method.name}, whose drafts have no probabilities on Model Runner V2",
            field="enable_adaptive_verification",
            hint=f"remove it; it goes with {', '.join(others)}",
        )
    if not method.own_confidence and settings.get("use_local_argmax_reduction") is True:
        raise InputError(
            "leaves no logits to estimate acceptance from, which enable_adaptive_verification does",
            field="use_local_argmax_reduction",
            hint="set one of the two",
        )


def _needs_k(method: Method, settings: Mapping[str, JsonValue]) -> None:
    """Some methods have a limit of their own; a draft's checkpoint may carry n_predict or a block size."""
    decided = method.k_from == "method" or (method.k_from == "draft" and "model" in settings)
    if decided or "num_speculative_tokens" in settings:
        return
    raise InputError(
        f"is needed for {method.name}: nothing else decides how many tokens are proposed",
        field="num_speculative_tokens",
        hint=f"the default is {dict(method.defaults).get('num_speculative_tokens')}",
    )


def _schedule(value: JsonValue, k: JsonValue) -> None:
    """[[start, end, K], ...]: whole numbers, the first range from 1, none overlapping, no K above the static one."""
    if not isinstance(value, (list, tuple)) or not value:
        raise _bad(
            "must be a list of [start, end, K]",
            "for example [[1, 16, 3], [17, 64, 1], [65, 256, 0]]",
        )
    ranges = sorted(_range(entry) for entry in value)
    if ranges[0][0] != 1:
        raise _bad(f"must start at batch size 1, starts at {ranges[0][0]}")
    for (_, end, _k), (start, last, _next) in pairwise(ranges):
        if start <= end:
            raise _bad(f"overlaps: [{start}, {last}] begins before {end} has ended")
    highest = max(entry[2] for entry in ranges)
    if is_int(k) and highest > k:
        raise _bad(
            f"has K={highest} above num_speculative_tokens={k}; the engine would cut it",
            f"raise K to {highest}",
        )
    if highest == 0:
        raise _bad("turns speculation off at every batch size", "use --spec none")


def _range(entry: JsonValue) -> tuple[int, int, int]:
    if not isinstance(entry, (list, tuple)) or len(entry) != 3:
        raise _bad(f"has an entry that is not [start, end, K]: {entry!r}")
    start, end, k = entry
    if not (is_int(start) and is_int(end) and is_int(k)):
        raise _bad(f"has an entry that is not of whole numbers: {entry!r}")
    if not 1 <= start <= end or k < 0:
        raise _bad(
            f"has an impossible entry: {entry!r}",
            "start at 1 or more, end not before start, K 0 or more",
        )
    return start, end, k


def _bad(reason: str, hint: str | None = None) -> InputError:
    return InputError(reason, field=_SCHEDULE, hint=hint)
