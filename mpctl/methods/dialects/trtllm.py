"""TensorRT-LLM's ``speculative_config``, as ``trtllm-serve --config FILE`` reads it (PyTorch backend)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mpctl.errors import InputError
from mpctl.methods.dialects.refuse import names_in, need_draft, need_k, need_keys, need_method
from mpctl.methods.spec import Json, Spec
from mpctl.methods.table import METHODS, TENSORRT_LLM

ENGINE = "TensorRT-LLM"
SOURCE = "TensorRT-LLM docs, Speculative Decoding (NVIDIA/TensorRT-LLM at 04c8822)"
# The documentation spells the second one without the underscore that llm_args.py asks for.
_ALIASES = {"Eagle": "Eagle3", "DraftTarget": "Draft_Target"}
_PARALLEL = "PARD"  # draft_model with parallel_drafting
# The documentation's examples turn the overlap scheduler off for drafters outside the target's own graph.
_NO_OVERLAP = ("NGram", "Draft_Target")


def write(spec: Spec) -> dict[str, Any]:
    """The entries of the file for this spec; empty for none.

    Raises:
        InputError: naming the method or the setting that TensorRT-LLM cannot express.
    """
    if spec.is_none:
        return {}
    kind, method = need_method(spec, TENSORRT_LLM, ENGINE), METHODS[spec.method]
    names_draft = method.loads_weights and not method.target_layers
    allowed = {
        "num_speculative_tokens",
        "model" if names_draft else "" if method.loads_weights else "prompt_lookup_max",
    }
    allowed |= {"parallel_drafting"} if method.needs_draft == "model" else set()
    need_keys(spec, ENGINE, allowed)
    if spec.settings.get("parallel_drafting") is True:
        kind = _PARALLEL
    inner: dict[str, Any] = {"decoding_type": kind, "max_draft_len": need_k(spec, ENGINE)}
    if not method.loads_weights:
        if spec.settings.get("prompt_lookup_max") is not None:
            inner["max_matching_ngram_size"] = spec.settings["prompt_lookup_max"]
        # vLLM looks into the request's own tokens alone; one pool for all requests is another thing.
        inner["is_public_pool"] = False
    elif names_draft:
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
    unread = dict(inner)
    kind = unread.pop("decoding_type", None)
    kind = _ALIASES.get(kind, kind)
    settings: dict[str, Json] = {}
    names = {theirs: METHODS[ours] for ours, theirs in names_in(TENSORRT_LLM).items()}
    names[_PARALLEL] = next(row for row in METHODS.values() if row.needs_draft == "model")
    method = names.get(kind)
    if method is None:
        raise InputError(f"{ENGINE}'s {kind} has no equal here", field="speculative_config.decoding_type")
    if kind == _PARALLEL:
        settings["parallel_drafting"] = True
    length = unread.pop("max_draft_len", None)
    if length is not None:
        settings["num_speculative_tokens"] = length
    for name in ("speculative_model", "speculative_model_dir"):
        if name in unread:
            settings["model"] = unread.pop(name)
    if "max_matching_ngram_size" in unread:
        settings["prompt_lookup_max"] = unread.pop("max_matching_ngram_size")
    if unread.pop("is_public_pool", method.loads_weights) not in (False, True) or (
        not method.loads_weights and inner.get("is_public_pool", True) is not False
    ):
        raise InputError("a pool shared by all requests has no equal here", field="speculative_config.is_public_pool")
    if method.target_layers and unread.get("num_nextn_predict_layers") == length:
        unread.pop("num_nextn_predict_layers", None)
    if unread:
        raise InputError(
            f"{ENGINE}'s {', '.join(sorted(unread))} has no equal here", field=f"speculative_config.{min(unread)}"
        )
    return Spec(method.name, settings)
