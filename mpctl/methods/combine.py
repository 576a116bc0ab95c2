"""Rules between keys of one speculative-config, where each key alone is fine.

The engine refuses some of these at start-up, minutes later; others it accepts and then ignores or breaks on.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from mpctl.errors import InputError
from mpctl.methods.keys import is_int
from mpctl.methods.method import Method
from mpctl.methods.spec import Json
from mpctl.methods.table import METHODS

_SCHEDULE = "num_speculative_tokens_per_batch_size"


def check_combination(method: Method, settings: Mapping[str, Json]) -> None:
    """Raise an :class:`InputError` for keys that do not go together."""
    _lookup(method, settings)
    _parallel(method, settings)
    _only(method, settings)
    _adaptive(method, settings)
    _needs_k(method, settings)
    _synthetic(settings)
    if _SCHEDULE in settings:
        _schedule(settings[_SCHEDULE], settings.get("num_speculative_tokens"))


def _lookup(method: Method, settings: Mapping[str, Json]) -> None:
    low, high = settings.get("prompt_lookup_min"), settings.get("prompt_lookup_max")
    if "lookup" in method.key_groups and is_int(low) and is_int(high) and low > high:
        raise InputError(
            f"is {low}, above prompt_lookup_max={high}",
            field="prompt_lookup_min",
            hint="set both, for example prompt_lookup_min=2 and prompt_lookup_max=4",
        )


def _parallel(method: Method, settings: Mapping[str, Json]) -> None:
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
            f"must be true for {method.name}", field=name, hint=f"use --spec {method.engine_method} instead"
        )
    if method.parallel_drafting == "implied" and wanted is False:
        raise InputError(f"is always on for {method.name}", field=name, hint="remove it")


def _only(method: Method, settings: Mapping[str, Json]) -> None:
    for row in METHODS.values():
        for key in row.own_keys:
            if settings.get(key) not in (None, False) and method.name != row.name:
                raise InputError(f"works with {row.name} only, not with {method.name}", field=key, hint="remove it")
    if settings.get("use_heterogeneous_vocab") is True and settings.get("draft_sample_method") == "probabilistic":
        raise InputError(
            "must be greedy with use_heterogeneous_vocab",
            field="draft_sample_method",
            hint="remove it: greedy is default",
        )


def _adaptive(method: Method, settings: Mapping[str, Json]) -> None:
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


def _needs_k(method: Method, settings: Mapping[str, Json]) -> None:
    """Some methods have a limit of their own; a draft's checkpoint may carry n_predict or a block size."""
    decided = method.k_from == "method" or (method.k_from == "draft" and "model" in settings)
    if decided or "num_speculative_tokens" in settings:
        return
    raise InputError(
        f"is needed for {method.name}: nothing else decides how many tokens are proposed",
        field="num_speculative_tokens",
        hint=f"the default is {dict(method.defaults).get('num_speculative_tokens')}",
    )


def _synthetic(settings: Mapping[str, Json]) -> None:
    rates, length = settings.get("synthetic_acceptance_rates"), settings.get("synthetic_acceptance_length")
    if settings.get("rejection_sample_method") != "synthetic":
        for key, value in (("synthetic_acceptance_rates", rates), ("synthetic_acceptance_length", length)):
            if value is not None:
                raise InputError("needs rejection_sample_method=synthetic", field=key, hint="it is for tests only")
        return
    if (rates is None) == (length is None):
        raise InputError(
            "synthetic needs exactly one of synthetic_acceptance_rates and synthetic_acceptance_length",
            field="rejection_sample_method",
        )
    k = settings.get("num_speculative_tokens")
    if not is_int(k):
        return
    if isinstance(rates, (list, tuple)) and len(rates) != k:
        raise InputError(f"has {len(rates)} rates for K={k}", field="synthetic_acceptance_rates")
    if isinstance(length, (int, float)) and not 1 <= length <= k + 1:
        raise InputError(f"must be from 1 to {k + 1} for K={k}, got {length}", field="synthetic_acceptance_length")


def _schedule(value: Json, k: Json) -> None:
    """[[start, end, K], ...]: whole numbers, the first range from 1, none overlapping, no K above the static one."""
    if not isinstance(value, (list, tuple)) or not value:
        raise _bad("must be a list of [start, end, K]", "for example [[1, 16, 3], [17, 64, 1], [65, 256, 0]]")
    ranges = sorted(_range(entry) for entry in value)
    if ranges[0][0] != 1:
        raise _bad(f"must start at batch size 1, starts at {ranges[0][0]}")
    for (_, end, _k), (start, last, _next) in pairwise(ranges):
        if start <= end:
            raise _bad(f"overlaps: [{start}, {last}] begins before {end} has ended")
    highest = max(entry[2] for entry in ranges)
    if is_int(k) and highest > k:
        raise _bad(
            f"has K={highest} above num_speculative_tokens={k}; the engine would cut it", f"raise K to {highest}"
        )
    if highest == 0:
        raise _bad("turns speculation off at every batch size", "use --spec none")


def _range(entry: Json) -> tuple[int, int, int]:
    if not isinstance(entry, (list, tuple)) or len(entry) != 3:
        raise _bad(f"has an entry that is not [start, end, K]: {entry!r}")
    start, end, k = entry
    if not (is_int(start) and is_int(end) and is_int(k)):
        raise _bad(f"has an entry that is not of whole numbers: {entry!r}")
    if not 1 <= start <= end or k < 0:
        raise _bad(f"has an impossible entry: {entry!r}", "start at 1 or more, end not before start, K 0 or more")
    return start, end, k


def _bad(reason: str, hint: str | None = None) -> InputError:
    return InputError(reason, field=_SCHEDULE, hint=hint)
