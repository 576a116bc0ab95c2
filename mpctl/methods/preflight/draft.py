"""Rules about the draft: is it there, is it the right kind, does it fit its target."""

from __future__ import annotations

import re

from mpctl.methods.keys import is_int
from mpctl.methods.preflight.facts import NAMES_NO_SCHEME, Facts
from mpctl.methods.preflight.rule import (
    Outcome,
    both,
    drafts_with_weights,
    method_of,
    names_draft,
    rule,
    sets_key,
    where,
)
from mpctl.methods.spec import Spec, method_by_name
from mpctl.methods.table import METHODS
from mpctl.methods.versions import parse_version

# vLLM's short name of one of its dtypes (MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP, CacheConfig.cache_dtype).
_FP8: dict[object, str] = {"fp8": "fp8_e4m3"}
_CONTEXT = "vLLM #57941 (fix PR #57964 open), #48894, #21986, PR #22935, PR #24662"


@rule(
    "draft-missing",
    source="vLLM 0.32.0: num_speculative_tokens was provided but without speculative model",
    todo="name it with --draft, a path or repository made for this target",
    applies=drafts_with_weights,
)
def draft_missing(spec: Spec, facts: Facts) -> Outcome:
    """A head or draft model has to come from somewhere."""
    needs = method_of(spec).needs_draft
    if spec.draft is not None or needs == "optional":
        return None
    what = "a head trained for the target" if needs == "head" else "a smaller model with the target's tokenizer"
    return "refuse", f"{spec.method} needs {what}, and no draft is named"


@rule(
    "method-taken-from-name",
    source="vLLM 0.32.0, SpeculativeConfig: for these methods the draft's name decides",
    todo="use the method the name says, or rename the directory",
    applies=both(names_draft, where(lambda method: METHODS[str(method.engine_method)].name_marker is None)),
)
def method_taken_from_name(spec: Spec, facts: Facts) -> Outcome:
    """The engine overrides the method when the draft's path contains eagle-, eagle3, dflash or dspark."""
    taken = method_by_name(spec.draft or "")
    return ("warn", f"the engine will run '{spec.draft}' as {taken}, not as {spec.method}") if taken else None


@rule(
    "draft-kind",
    source="vLLM 0.32.0 accepts a plain model as an eagle3 head (seen); acceptance is then near 0 or loading fails",
    todo="name a checkpoint of the method's kind, or the method of the checkpoint",
    needs=("draft_kind",),
    applies=names_draft,
)
def draft_kind(spec: Spec, facts: Facts) -> Outcome:
    """The engine does not check that a checkpoint is the kind of draft the method needs."""
    wanted = method_of(spec).checkpoint
    if facts.draft_kind == wanted:
        return None
    return "refuse", f"{spec.method} loads a checkpoint of kind {wanted}, '{spec.draft}' is of kind {facts.draft_kind}"


def _in_one_pass(spec: Spec) -> bool:
    """Return whether the method drafts in one pass, by itself or by its setting."""
    return method_of(spec).parallel_drafting == "required" or spec.settings.get("parallel_drafting") is True


def _has_parallel_form(spec: Spec) -> bool:
    """Return whether a head of this kind may have been trained for the method that drafts in one pass."""
    engine_method = method_of(spec).engine_method
    return any(row.parallel_drafting == "required" and row.engine_method == engine_method for row in METHODS.values())


@rule(
    "parallel-drafting",
    source="vLLM 0.32.0, _init_parallel_drafting_params: the draft model config must have a mask token",
    todo="p-eagle for a head that was trained for it, eagle3 for any other",
    needs=("draft_mask_token",),
    applies=both(names_draft, lambda spec: _has_parallel_form(spec) or _in_one_pass(spec)),
)
def parallel_drafting(spec: Spec, facts: Facts) -> Outcome:
    """One pass fills its places with a mask token that the draft's configuration names; without, the engine exits."""
    if _in_one_pass(spec):
        names = "mask_token_id, pard_token or ptd_token_id"
        reason = f"'{spec.draft}' names no mask token ({names}), and the engine exits at start-up without one"
        return None if facts.draft_mask_token else ("refuse", reason)
    reason = (
        f"'{spec.draft}' names a mask token: it was trained to draft in one pass, and {spec.method} asks one by one"
    )
    return ("warn", reason) if facts.draft_mask_token else None


@rule(
    "draft-context",
    source=_CONTEXT,
    todo="lower --max-model-len to the draft's context, or choose a longer draft; max_model_len inside the"
    " configuration does not protect the engine, and with eagle3 it crashed at start-up in published runs",
    needs=("served_context", "draft_context"),
    asks=("engine_version", "v2_runner"),
    applies=both(names_draft, where(lambda method: method.draft_positions)),
)
def draft_context(spec: Spec, facts: Facts) -> Outcome:
    """Requests longer than the draft's context index past its position table and take the whole engine down."""
    served, context = facts.served_context, facts.draft_context
    if served is None or context is None or context >= served:
        return None
    reason = f"the draft's context is {context}, {served} are served"
    version = parse_version(facts.engine_version)
    stretched = method_of(spec).positions_stretched_since
    if stretched is not None and version is not None and version >= stretched:
        return "warn", f"{reason}: this engine stretches the head's positions, but it was not trained beyond {context}"
    if facts.v2_runner is False:
        return "warn", f"{reason}: Model Runner V1 stops speculating on longer requests"
    return "refuse", f"{reason}: longer requests crash the engine (illegal memory access)"


@rule(
    "draft-max-model-len",
    source="vLLM 0.32.0, _maybe_override_draft_max_model_len; Ruiz runs (eagle3 with max_model_len: validation error)",
    todo="leave max_model_len out of the configuration",
    asks=("served_context", "draft_context"),
    applies=both(names_draft, sets_key("max_model_len")),
)
def draft_max_model_len(spec: Spec, facts: Facts) -> Outcome:
    """max_model_len inside the configuration is a test hook: above either context the engine exits."""
    limit = spec.settings["max_model_len"]
    if not is_int(limit):
        return None
    for name, context in (("served", facts.served_context), ("draft's", facts.draft_context)):
        if context is not None and limit > context:
            return "refuse", f"max_model_len is {limit} in the configuration, above the {name} context of {context}"
    if method_of(spec).max_model_len_fails:
        return "warn", f"max_model_len={limit} with an {spec.method} head stopped the engine in published runs"
    return None


@rule(
    "family-mismatch",
    source="Alauda guide, prerequisites: architecture, tokenizer and base version must match; mismatch is silent",
    todo="choose a draft made for this target; first-position acceptance under 30 % confirms a mismatch",
    needs=("target_family", "draft_family"),
    asks=("target_tokenizer_digest", "draft_tokenizer_digest"),
    applies=both(names_draft, where(lambda method: method.needs_draft == "model")),
)
def family_mismatch(spec: Spec, facts: Facts) -> Outcome:
    """A draft model of another family starts and serves, with acceptance too low to pay. A head's own type says
    nothing: most are written as llama, whatever their target.
    """
    if _family(facts.target_family) == _family(facts.draft_family):
        return None
    if facts.target_tokenizer_digest is not None and facts.target_tokenizer_digest == facts.draft_tokenizer_digest:
        return None
    return "warn", f"the draft is of family {facts.draft_family}, the target of {facts.target_family}"


def _family(kind: str | None) -> str:
    """``qwen3`` of ``qwen3_moe``: the forms of one family share its tokenizer and its training."""
    return re.sub(r"(_(moe|vl|text))+$", "", kind or "")


@rule(
    "draft-size",
    source="DigitalOcean guide (1:8 to 1:12); Ruiz logs: 1:8 lost to 1:19 in all 102 cells, 1:57 gained on a 70B",
    todo="compare sizes with a bench of each --draft; a larger draft accepts more and leaves less KV",
    needs=("target_params_b", "draft_params_b"),
    applies=both(names_draft, where(lambda method: method.needs_draft == "model")),
)
def draft_size(spec: Spec, facts: Facts) -> Outcome:
    """Too large a draft costs what it saves; too small a one is refused too often."""
    target, draft = facts.target_params_b or 0.0, facts.draft_params_b or 0.0
    if target <= 0 or draft <= 0 or 8 <= target / draft <= 12:
        return None
    ratio = f"the draft is 1:{target / draft:.1f} of the target ({draft:g}B of {target:g}B)"
    if target / draft < 8:
        return "warn", f"{ratio}, larger than 1:8"
    return "warn", f"{ratio}, smaller than 1:12; published pairs gained at 1:19 and 1:57 all the same"


@rule(
    "kv-dtype-mismatch",
    source="vLLM PR #24505, vllm-ascend #5974",
    todo="leave kv_cache_dtype out of the configuration: the draft inherits the target's",
    needs=("kv_cache_dtype",),
    asks=("draft_kv_cache_dtype",),
    applies=drafts_with_weights,
)
def kv_dtype_mismatch(spec: Spec, facts: Facts) -> Outcome:
    """A draft that sees other KV values than it was trained on is accepted less."""
    own = spec.settings.get("kv_cache_dtype") or facts.draft_kv_cache_dtype
    if own is None or _FP8.get(own, own) == _FP8.get(facts.kv_cache_dtype, facts.kv_cache_dtype):
        return None
    return "warn", f"the draft's KV cache is {own}, the target's {facts.kv_cache_dtype}"


@rule(
    "quantization-mismatch",
    source="vLLM PR #24505, vllm-ascend #5974",
    todo="measure acceptance against the unquantised target before trusting published figures",
    needs=("quantization",),
    asks=("draft_quantization",),
    applies=names_draft,
)
def quantization_mismatch(spec: Spec, facts: Facts) -> Outcome:
    """A head trained on one precision's hidden states is accepted less on another's."""
    configured = spec.settings.get("quantization")
    own = configured if configured not in (None, NAMES_NO_SCHEME) else facts.draft_quantization
    if own is None or own == facts.quantization:
        return None
    return "warn", f"the draft's weights are {own}, the target's {facts.quantization}"


@rule(
    "mtp-layers",
    source="vLLM 0.32.0, SpeculativeConfig: Unsupported speculative method: 'mtp'; must be divisible by n_predict",
    todo="use eagle3 with a head for this target, or ngram; of some models a release with MTP layers is published",
    needs=("target_mtp_layers",),
    applies=both(where(lambda method: method.target_layers), lambda spec: spec.draft is None),
)
def mtp_layers(spec: Spec, facts: Facts) -> Outcome:
    """Without a checkpoint of its own, mtp takes the layers from the target's; the engine exits where it has none."""
    layers, k = facts.target_mtp_layers or 0, spec.k or 0
    if layers == 0:
        return "refuse", "the target's configuration names no MTP layers, and the engine exits at start-up without them"
    if k > layers and k % layers:
        reason = f"K={k} is no multiple of the target's {layers} MTP layers, and the engine exits at start-up"
        return "refuse", reason, f"set num_speculative_tokens to {layers} or a multiple of it"
    return None


@rule(
    "medusa-heads",
    source="vLLM 0.32.0 (seen): Following weights were not initialized from checkpoint",
    todo="set num_speculative_tokens to the number of heads, or below",
    needs=("medusa_heads",),
    applies=both(names_draft, where(lambda method: method.one_head_per_token)),
)
def medusa_heads(spec: Spec, facts: Facts) -> Outcome:
    """Each head drafts one place. The engine makes K heads, and exits at start-up where the draft holds fewer."""
    heads, k = facts.medusa_heads or 0, spec.k or 0
    return ("refuse", f"K={k}, and the draft holds {heads} heads") if k > heads else None


@rule(
    "mtp-repeated-layer",
    source="vLLM 0.32.0 warns: multiple forwards on the same MTP layer; recipes use K 1 to 5",
    todo="start at K=1 and let measurement raise it",
    needs=("target_mtp_layers",),
    applies=both(where(lambda method: method.target_layers), lambda spec: spec.draft is None),
)
def mtp_repeated_layer(spec: Spec, facts: Facts) -> Outcome:
    """Most checkpoints carry one MTP layer; a larger K runs it again on its own guess."""
    layers, k = facts.target_mtp_layers or 0, spec.k or 0
    return ("note", f"K={k} runs the target's {layers} MTP layers more than once") if 0 < layers < k else None


RULES = (
    draft_missing,
    method_taken_from_name,
    draft_kind,
    parallel_drafting,
    draft_context,
    draft_max_model_len,
    family_mismatch,
    draft_size,
    kv_dtype_mismatch,
    quantization_mismatch,
    mtp_layers,
    medusa_heads,
    mtp_repeated_layer,
)
