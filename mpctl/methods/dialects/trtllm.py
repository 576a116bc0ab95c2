"""TensorRT-LLM's ``speculative_config``, as ``trtllm-serve --config FILE`` reads it (PyTorch backend)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mpctl.errors import InputError
from mpctl.methods.dialects.refuse import need_draft, need_k, need_keys, need_method
from mpctl.methods.spec import Json, Spec

ENGINE = "TensorRT-LLM"
SOURCE = "TensorRT-LLM docs, Speculative Decoding (NVIDIA/TensorRT-LLM at 04c8822)"
_TYPES = MappingProxyType(
    {"ngram": "NGram", "eagle3": "Eagle3", "mtp": "MTP", "draft_model": "DraftTarget", "dflash": "DFlash"}
)
_PARALLEL = "PARD"  # draft_model with parallel_drafting
_MISSING = MappingProxyType(
    {
        "ngram_gpu": "its n-gram lookup has one form, ngram",
        "suffix": "its suffix automaton (SA) is another algorithm with other settings",
        "eagle": "its Eagle3 cannot load heads of the first generations",
        "p-eagle": "its Eagle3 drafts one token after the other",
        "medusa": "the PyTorch backend has no Medusa heads",
        "dspark": "it has no DSpark",
    }
)
# The documentation's examples turn the overlap scheduler off for drafters outside the target's own graph.
_NO_OVERLAP = ("NGram", "DraftTarget")


def write(spec: Spec) -> dict[str, Any]:
    """The entries of the file for this spec; empty for none.

    Raises:
        InputError: naming the method or the setting that TensorRT-LLM cannot express.
    """
    if spec.is_none:
        return {}
    need_method(spec, ENGINE, _MISSING, _TYPES)
    allowed = {"num_speculative_tokens"}
    allowed |= {"prompt_lookup_max"} if spec.method == "ngram" else {"model"} if spec.method != "mtp" else set()
    allowed |= {"parallel_drafting"} if spec.method == "draft_model" else set()
    need_keys(spec, ENGINE, allowed)
    kind = _TYPES[spec.method]
    if spec.settings.get("parallel_drafting") is True:
        kind = _PARALLEL
    inner: dict[str, Any] = {"decoding_type": kind, "max_draft_len": need_k(spec, ENGINE)}
    if spec.method == "ngram":
        if spec.settings.get("prompt_lookup_max") is not None:
            inner["max_matching_ngram_size"] = spec.settings["prompt_lookup_max"]
        # vLLM looks into the request's own tokens alone; one pool for all requests is another thing.
        inner["is_public_pool"] = False
    elif spec.method != "mtp":
        inner["speculative_model"] = need_draft(spec, ENGINE)
    made: dict[str, Any] = {"speculative_config": inner}
    return {"disable_overlap_scheduler": True, **made} if kind in _NO_OVERLAP else made


def text(spec: Spec) -> str:
    """The same as YAML; empty for none."""
    made = write(spec)
    if not made:
        return ""
    import yaml

    return str(yaml.safe_dump(made, sort_keys=False)).rstrip()


def read(document: Mapping[str, Any]) -> Spec:
    """The spec a configuration file asks for; ``none`` when it asks for none. Other entries are the server's business.

    Raises:
        InputError: it asks for what a spec cannot say.
    """
    inner = document.get("speculative_config")
    if inner is None:
        return Spec("none")
    if not isinstance(inner, Mapping):
        raise InputError("must be a mapping", field="speculative_config")
    left = dict(inner)
    kind = left.pop("decoding_type", None)
    kind = "Eagle3" if kind == "Eagle" else kind  # documented alias
    settings: dict[str, Json] = {}
    method = (
        "draft_model" if kind == _PARALLEL else next((ours for ours, theirs in _TYPES.items() if theirs == kind), "")
    )
    if not method:
        raise InputError(f"{ENGINE}'s {kind} has no equal here", field="speculative_config.decoding_type")
    if kind == _PARALLEL:
        settings["parallel_drafting"] = True
    length = left.pop("max_draft_len", None)
    if length is not None:
        settings["num_speculative_tokens"] = length
    for name in ("speculative_model", "speculative_model_dir"):
        if name in left:
            settings["model"] = left.pop(name)
    if "max_matching_ngram_size" in left:
        settings["prompt_lookup_max"] = left.pop("max_matching_ngram_size")
    if left.pop("is_public_pool", method != "ngram") not in (False, True) or (
        method == "ngram" and inner.get("is_public_pool", True) is not False
    ):
        raise InputError("a pool shared by all requests has no equal here", field="speculative_config.is_public_pool")
    if method == "mtp" and left.get("num_nextn_predict_layers") == length:
        left.pop("num_nextn_predict_layers", None)
    if left:
        raise InputError(
            f"{ENGINE}'s {', '.join(sorted(left))} has no equal here", field=f"speculative_config.{min(left)}"
        )
    return Spec(method, settings)
