"""The draft catalogue as a command sees it: the shipped table and the user's file over it."""

from __future__ import annotations

from typing import Any

from mpctl.staging.catalogue import Catalogue, Draft
from mpctl.staging.catalogue_file import read_catalogue, shipped


def load_catalogue(path: str | None) -> Catalogue:
    """The shipped catalogue with the file of ``--drafts`` over it.

    Raises:
        InputError: the file cannot be read or used; with file, line and field.
    """
    base = shipped()
    if path is None:
        return base
    from mpctl.app.files import read_file

    return base.merged(read_catalogue(read_file(path, "--drafts"), path, base.sources))


def record_of(draft: Draft) -> dict[str, Any]:
    """A draft for programs; what is unknown is null."""
    return {
        "target": draft.target,
        "draft": draft.name,
        "method": draft.method,
        "numSpeculativeTokens": draft.k,
        "numSpeculativeTokensFp8Target": draft.k_fp8_target,
        "sizeBillions": draft.size_b,
        "loadedGib": draft.loaded_gib,
        "kvPoolFactor": draft.kv_pool_factor,
        "contextTokens": draft.context,
        "expected": [
            {"k": one.k, "dataset": one.dataset, "temperature": one.temperature, "tokensPerStep": one.tokens}
            for one in draft.expected
        ],
        "perPositionAcceptance": list(draft.per_position),
        "engine": draft.engine,
        "plugin": draft.plugin,
        "minVllm": draft.min_vllm,
        "targetVariant": draft.variant,
        "licence": draft.licence,
        "note": draft.note,
        "warning": draft.warn,
        "sources": list(draft.sources),
    }
