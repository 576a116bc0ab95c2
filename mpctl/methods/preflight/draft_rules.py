"""Rules about the draft: is it there, is it of the right kind, was it made for this target. A wrong one starts, serves,
and is hardly ever accepted.

Their rows are in rules.yaml; here are the functions of rules that take more than a comparison.
"""

from __future__ import annotations

import re

from mpctl.methods.keys import is_int
from mpctl.methods.preflight.preflight_rule import (
    NAMES_NO_SCHEME,
    RuleOutcome,
    ServiceFacts,
    read_rules,
)
from mpctl.methods.spec import Spec, method_by_name
from mpctl.methods.table import METHODS
from mpctl.methods.versions import parse_version

# vLLM's short name of one of its dtypes (MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP, CacheConfig.cache_dtype).
_FP8: dict[object, str] = {"fp8": "fp8_e4m3"}
# Ends of a repository's name that say how its weights are stored, not which model it is.
_STORED = re.compile(
    r"[-_.](?:fp8|fp4|nvfp4(?:a16)?|mxfp4|mxfp8|awq|gptq|auto-?round|int4|int8|bf16|fp16|bnb|gguf|mlx|unsloth|4bit|8bit"
    r"|w\d+a\d+|g\d+|quantized|dynamic|block|kv)(?=$|[-_.])",
    re.IGNORECASE,
)
# Words and dates at the end of a name that mean other weights, not the same ones stored in another way.
_RETRAINED = re.compile(
    r"[-_](?:base|chat|coder|distill|instruct|it|math|thinking|vl|\d{4})(?=$|[-_.])"
)
# A path into the hub's cache, whose last part is a commit.
_CACHED = re.compile(r"models--[^/]+?--([^/]+)/snapshots/")


def plain_name(name: str) -> str:
    """``llama-3.1-8b-instruct`` of ``org/Meta-Llama-3.1-8B-Instruct-FP8``: without case, quantisation or Meta's old
    prefix, so that two names of one model are the same."""
    cached = _CACHED.search(name)
    last = (cached[1] if cached else name.strip().rstrip("/").rpartition("/")[2]).lower()
    while (shorter := _STORED.sub("", last)) != last:
        last = shorter
    return last.removeprefix("meta-")


def _extends(name: str, other: str) -> bool:
    """Return whether ``name`` is ``other`` with a suffix that is not known to mean another training."""
    long, short = plain_name(name), plain_name(other)
    suffix = long.removeprefix(short)
    return suffix != long and suffix.startswith(("-", "_")) and not _RETRAINED.search(suffix)


def _draft_missing(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A head or draft model has to come from somewhere."""
    needs = spec.row.needs_draft
    if spec.draft is not None or needs == "optional":
        return None
    what = (
        "a head trained for the target"
        if needs == "head"
        else "a smaller model with the target's tokenizer"
    )
    return "refuse", f"{spec.method} needs {what}, and no draft is named"


def _method_taken_from_name(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """The engine overrides the method when the draft's path contains eagle-, eagle3, dflash or dspark."""
    taken = method_by_name(spec.draft or "")
    return (
        ("warn", f"the engine will run '{spec.draft}' as {taken}, not as {spec.method}")
        if taken
        else None
    )


def _draft_kind(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """The engine does not check that a checkpoint is the kind of draft the method needs."""
    wanted = spec.row.checkpoint
    if facts.draft.draft_kind == wanted:
        return None
    return (
        "refuse",
        f"{spec.method} loads a checkpoint of kind {wanted}, '{spec.draft}' is of kind {facts.draft.draft_kind}",
    )


def _in_one_pass(spec: Spec) -> bool:
    """Return whether the method drafts in one pass, by itself or by its setting."""
    return (
        spec.row.parallel_drafting == "required" or spec.settings.get("parallel_drafting") is True
    )


# Families whose configuration has mrope_section (vLLM 0.32.0, models with SupportsMRoPE).
_MROPE = re.compile(
    r"qwen[-_]?3[._][5-9](?![\d.]*b)|qwen[\d.]*[-_.]?(?:vl|omni|5[-_]vl|5[-_]omni)|glm[-_]?(?:4(?:[._]\d)?v|ocr)"
    r"|ernie[-_]?4[._]5[-_.]?(?:moe[-_])?vl|keye|paddleocr",
    re.IGNORECASE,
)


def _mrope(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """Draft models, and heads that draft in one pass, take positions of one dimension; by the draft's configuration,
    else a draft model by its family."""
    mrope = facts.draft.mrope
    by_family = (
        mrope is None
        and spec.row.drafts_with_model
        and _MROPE.search(facts.draft.family or spec.draft or "")
    )
    if not (mrope or by_family):
        return None
    how = "" if mrope else ", as its family does"
    reason = f"'{spec.draft}' uses M-RoPE{how}, which vLLM supports neither in a draft model nor in parallel drafting"
    if facts.v2_runner:
        return "warn", f"{reason}: Model Runner V2 gives it positions of one dimension"
    return "refuse", f"{reason}: the engine exits at start-up"


def _has_parallel_form(spec: Spec) -> bool:
    """Return whether a head of this kind may have been trained for the method that drafts in one pass."""
    engine_method = spec.row.engine_method
    return any(
        row.parallel_drafting == "required" and row.engine_method == engine_method
        for row in METHODS.values()
    )


def _parallel_drafting(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A pass fills its places with a mask token that the draft's configuration names; without, the engine exits."""
    if _in_one_pass(spec):
        names = "mask_token_id, pard_token or ptd_token_id"
        reason = f"'{spec.draft}' names no mask token ({names}), and the engine exits at start-up without one"
        return None if facts.draft.mask_token else ("refuse", reason)
    reason = f"'{spec.draft}' names a mask token: it was trained to draft in one pass, {spec.method} asks one by one"
    return ("warn", reason) if facts.draft.mask_token else None


def _draft_context(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """Requests longer than the draft's context index past its position table and take the whole engine down."""
    served, context = facts.served_context, facts.draft.context
    if served is None or context is None or context >= served:
        return None
    reason = f"the draft's context is {context}, {served} are served"
    version = parse_version(facts.engine_version)
    stretched = spec.row.positions_stretched_since
    if stretched is not None and version is not None and version >= stretched:
        return (
            "warn",
            f"{reason}: this engine stretches the head's positions, but it was not trained beyond {context}",
        )
    if facts.v2_runner is False:
        return "warn", f"{reason}: Model Runner V1 stops speculating on longer requests"
    return "refuse", f"{reason}: longer requests crash the engine (illegal memory access)"


def _draft_max_model_len(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """max_model_len inside the configuration is a test hook: above either context the engine exits."""
    limit = spec.settings["max_model_len"]
    if not is_int(limit):
        return None
    for name, context in (("served", facts.served_context), ("draft's", facts.draft.context)):
        if context is not None and limit > context:
            return (
                "refuse",
                f"max_model_len is {limit} in the configuration, above the {name} context of {context}",
            )
    if spec.row.max_model_len_fails:
        return (
            "warn",
            f"max_model_len={limit} with an {spec.method} head stopped the engine in published runs",
        )
    return None


def _family_mismatch(spec: Spec, facts: ServiceFacts) -> bool:
    """A draft model of another family starts and serves, with acceptance too low to pay. A head's own type says
    nothing: most are written as llama, whatever their target."""
    tokenizer = facts.target.tokenizer_digest
    alike = tokenizer is not None and tokenizer == facts.draft.tokenizer_digest
    return not alike and _family(facts.target.family) != _family(facts.draft.family)


def _family(kind: str | None) -> str:
    """``qwen3`` of ``qwen3_moe``: the forms of one family share its tokenizer and its training."""
    return re.sub(r"(_(moe|vl|text))+$", "", kind or "")


def _draft_size(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """Too large a draft costs what it saves; too small a one is refused too often."""
    target, draft = facts.target.params_b or 0.0, facts.draft.params_b or 0.0
    if target <= 0 or draft <= 0 or 8 <= target / draft <= 12:
        return None
    ratio = f"the draft is 1:{target / draft:.1f} of the target ({draft:g}B of {target:g}B)"
    if spec.draft == facts.target.name or draft > target:
        return "refuse", f"{ratio}: a draft that costs as much as the target or more saves nothing"
    if target / draft < 8:
        return "warn", f"{ratio}, larger than 1:8"
    return (
        "warn",
        f"{ratio}, smaller than 1:12; published pairs gained at 1:19 and 1:57 all the same",
    )


def _kv_dtype_mismatch(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A draft that sees other KV values than it was trained on is accepted less."""
    dtype = spec.settings.get("kv_cache_dtype") or facts.draft.kv_cache_dtype
    if dtype is None or _FP8.get(dtype, dtype) == _FP8.get(
        facts.kv_cache_dtype, facts.kv_cache_dtype
    ):
        return None
    return "warn", f"the draft's KV cache is {dtype}, the target's {facts.kv_cache_dtype}"


def _quantization_mismatch(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A head trained on one precision's hidden states is accepted less on another's."""
    configured = spec.settings.get("quantization")
    scheme = configured if configured not in (None, NAMES_NO_SCHEME) else facts.draft.quantization
    if scheme is None or scheme == facts.quantization:
        return None
    return "warn", f"the draft's weights are {scheme}, the target's {facts.quantization}"


def _mtp_layers(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """Without a checkpoint of its own, mtp takes the layers from the target's; the engine exits where it has none."""
    layers, k = facts.target.mtp_layers or 0, spec.k or 0
    if layers == 0:
        return (
            "refuse",
            "the target has no MTP layers, and the engine exits at start-up without them",
        )
    if k > layers and k % layers:
        reason = f"K={k} is no multiple of the target's {layers} MTP layers, and the engine exits at start-up"
        return "refuse", reason, f"set num_speculative_tokens to {layers} or a multiple of it"
    return None


def _wrong_target(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A head reads one model's hidden states; another's mean nothing to it."""
    ours, trained_for = facts.target.name or "", facts.draft.trained_for or ""
    if plain_name(ours) == plain_name(trained_for):
        return None
    reason = f"the head was trained for {trained_for}"
    if _extends(ours, trained_for) or _extends(trained_for, ours):
        return "warn", f"{reason}, the target is {ours}, which may be made of other weights"
    if trained_for.startswith(("/", ".", "~")):
        return "warn", f"{reason}, a path of its trainer's machine; the target is {ours}"
    return "refuse", f"{reason}, the target is {ours}"


def _draft_vocabulary(spec: Spec, facts: ServiceFacts) -> RuleOutcome:
    """A head that proposes part of the vocabulary needs a table from its tokens to the target's."""
    count, rows, whole = facts.draft.draft_vocab, facts.draft.map_rows, facts.target.vocab
    if count is not None and whole is not None and count > whole:
        return "refuse", f"the head proposes {count} tokens, the target knows {whole}"
    if rows is not None and rows != count:
        return (
            "refuse",
            f"the head proposes {count} tokens, its table to the target's tokens has {rows} rows",
        )
    return None


def _tokens_differ(spec: Spec, target: str | None, draft: str | None) -> bool:
    """Return whether two digests differ where this method needs the same tokens."""
    key = "use_heterogeneous_vocab"
    may_differ = key in spec.row.own_keys and spec.settings.get(key) is True
    return target != draft and not may_differ


def _keeps_method(spec: Spec) -> bool:
    """Return whether vLLM does not pick this method by the draft's name."""
    method = METHODS.get(str(spec.row.engine_method))
    return method is not None and method.name_marker is None


# Conditions on the spec, by the words of rules.yaml.
_TERMS = {
    "may-draft-in-one-pass": lambda spec: _has_parallel_form(spec) or _in_one_pass(spec),
    "not-by-name": _keeps_method,
    # A draft runs over more tokens than the target verified: a model, or a head in one pass.
    "takes-slots": lambda spec: (
        spec.row.drafts_with_model or _in_one_pass(spec) or spec.row.drafts_in_one_pass
    ),
}

# The rules for a pair of draft and target, in the order a person would ask.
PAIR_RULES = read_rules(
    "pair",
    {
        "added-tokens-mismatch": lambda spec, facts: _tokens_differ(
            spec, facts.target.added_tokens_digest, facts.draft.added_tokens_digest
        ),
        "draft-context": _draft_context,
        "draft-kind": _draft_kind,
        "draft-vocabulary": _draft_vocabulary,
        "kv-dtype-mismatch": _kv_dtype_mismatch,
        "parallel-drafting": _parallel_drafting,
        "quantization-mismatch": _quantization_mismatch,
        "tokenizer-mismatch": lambda spec, facts: _tokens_differ(
            spec, facts.target.tokenizer_digest, facts.draft.tokenizer_digest
        ),
        "vocabulary-mismatch": lambda spec, facts: (
            facts.target.vocab != facts.draft.vocab
            and spec.settings.get("use_heterogeneous_vocab") is not True
        ),
        "wrong-target": _wrong_target,
    },
    _TERMS,
)

RULES = (
    *read_rules(
        "draft",
        {
            "draft-max-model-len": _draft_max_model_len,
            "draft-missing": _draft_missing,
            "draft-mrope": _mrope,
            "draft-size": _draft_size,
            "family-mismatch": _family_mismatch,
            "medusa-heads": lambda spec, facts: (spec.k or 0) > (facts.draft.medusa_heads or 0),
            "method-taken-from-name": _method_taken_from_name,
            "mtp-layers": _mtp_layers,
            "mtp-repeated-layer": lambda spec, facts: (
                0 < (facts.target.mtp_layers or 0) < (spec.k or 0)
            ),
        },
        _TERMS,
    ),
    *PAIR_RULES,
)
