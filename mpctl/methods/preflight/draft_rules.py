"""Rules about the draft: is it there, is it of the right kind, was it made for this target. A wrong one starts, serves,
and is hardly ever accepted.

The comment above a row or the docstring of its function says why the rule exists.
"""

from __future__ import annotations

import re

from mpctl.methods.keys import is_int
from mpctl.methods.preflight.preflight_rule import (
    NAMES_NO_SCHEME,
    Fires,
    PreflightRule,
    RuleOutcome,
    ServiceFacts,
    both,
    drafts_with_weights,
    method_of,
    names_draft,
    setting,
    where,
)
from mpctl.methods.spec import Spec, method_by_name
from mpctl.methods.table import METHODS
from mpctl.methods.versions import parse_version

# vLLM's short name of one of its dtypes (MODELOPT_TO_VLLM_KV_CACHE_DTYPE_MAP, CacheConfig.cache_dtype).
_FP8: dict[object, str] = {"fp8": "fp8_e4m3"}
_OTHER = "choose a draft made for this target; the drafts command lists those that are known"
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
_OWN_HEAD = both(names_draft, where(lambda method: method.for_one_target))
_SMALL_MODEL = both(names_draft, where(lambda method: method.needs_draft == "model"))
_TARGET_LAYERS = both(where(lambda method: method.target_layers), lambda spec: spec.draft is None)


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
    needs = method_of(spec).needs_draft
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
    wanted = method_of(spec).checkpoint
    if facts.draft.draft_kind == wanted:
        return None
    return (
        "refuse",
        f"{spec.method} loads a checkpoint of kind {wanted}, '{spec.draft}' is of kind {facts.draft.draft_kind}",
    )


def _in_one_pass(spec: Spec) -> bool:
    """Return whether the method drafts in one pass, by itself or by its setting."""
    return (
        method_of(spec).parallel_drafting == "required"
        or spec.settings.get("parallel_drafting") is True
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
        and _SMALL_MODEL(spec)
        and _MROPE.search(facts.draft.family or spec.draft or "")
    )
    if not (mrope or by_family):
        return None
    how = "" if mrope else ", as its family does"
    reason = f"'{spec.draft}' uses M-RoPE{how}, which vLLM supports neither in a draft model nor in parallel drafting"
    if facts.v2_runner:
        return "warn", f"{reason}: Model Runner V2 gives it positions of one dimension"
    return "refuse", f"{reason}: the engine exits at start-up"


def _takes_slots(spec: Spec) -> bool:
    """Return whether a draft runs over more tokens than the target verified: a model, or a head in one pass."""
    return _SMALL_MODEL(spec) or _in_one_pass(spec) or method_of(spec).drafts_in_one_pass


def _has_parallel_form(spec: Spec) -> bool:
    """Return whether a head of this kind may have been trained for the method that drafts in one pass."""
    engine_method = method_of(spec).engine_method
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
    stretched = method_of(spec).positions_stretched_since
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
    if method_of(spec).max_model_len_fails:
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
    may_differ = key in method_of(spec).own_keys and spec.settings.get(key) is True
    return target != draft and not may_differ


# The rules for a pair of draft and target, in the order a person would ask.
PAIR_RULES = (
    PreflightRule(
        "wrong-target",
        _wrong_target,
        source="Alauda guide: a head that does not match its target starts and serves, and silently lowers acceptance",
        todo=_OTHER,
        needs=("target.name", "draft.trained_for"),
        applies=_OWN_HEAD,
    ),
    PreflightRule(
        "draft-kind",
        _draft_kind,
        source="vLLM 0.32.0 accepts a plain model as an eagle3 head (seen); acceptance is then near 0 or loading fails",
        todo="name a checkpoint of the method's kind, or the method of the checkpoint",
        needs=("draft.draft_kind",),
        applies=names_draft,
    ),
    PreflightRule(
        "parallel-drafting",
        _parallel_drafting,
        source="vLLM 0.32.0, _init_parallel_drafting_params: the draft model config must have a mask token",
        todo="p-eagle for a head that was trained for it, eagle3 for any other",
        needs=("draft.mask_token",),
        applies=both(names_draft, lambda spec: _has_parallel_form(spec) or _in_one_pass(spec)),
    ),
    # Another tokenizer means other token ids: an error at start-up at best, nonsense proposals at worst.
    PreflightRule(
        "tokenizer-mismatch",
        Fires(
            "refuse",
            "the draft's tokenizer ({facts.draft.tokenizer_digest:.12}) is not the target's "
            "({facts.target.tokenizer_digest:.12})",
            lambda spec, facts: _tokens_differ(
                spec, facts.target.tokenizer_digest, facts.draft.tokenizer_digest
            ),
        ),
        source="vLLM 0.32.0, verify_equal_vocab_size_if_draft_model; PR #24322",
        todo="choose a draft with the target's tokenizer; a draft model may also set use_heterogeneous_vocab=true",
        needs=("target.tokenizer_digest", "draft.tokenizer_digest"),
        applies=names_draft,
    ),
    # Added tokens carry the turns of a chat; a draft with others proposes them wrongly at every turn.
    PreflightRule(
        "added-tokens-mismatch",
        Fires(
            "refuse",
            "the draft's added tokens ({facts.draft.added_tokens_digest:.12}) are not the target's "
            "({facts.target.added_tokens_digest:.12})",
            lambda spec, facts: _tokens_differ(
                spec, facts.target.added_tokens_digest, facts.draft.added_tokens_digest
            ),
        ),
        source="same vocabulary, other special tokens: turns end elsewhere and think blocks open elsewhere",
        todo="choose a draft of the same release of the target's family",
        needs=("target.added_tokens_digest", "draft.added_tokens_digest"),
        applies=names_draft,
    ),
    # A head built for hidden states of another width cannot be loaded, or reads them wrongly.
    PreflightRule(
        "hidden-size-mismatch",
        Fires(
            "refuse",
            "the head expects hidden states {facts.draft.expects_hidden} wide, the target's are {facts.target.hidden}",
            lambda spec, facts: facts.target.hidden != facts.draft.expects_hidden,
        ),
        source="vLLM 0.32.0, llama_eagle3.py: the head's first layer takes the target's hidden states by their width",
        todo=_OTHER,
        needs=("target.hidden", "draft.expects_hidden"),
        applies=_OWN_HEAD,
    ),
    # The draft reads the target's token ids, so both need a vocabulary of the same size.
    PreflightRule(
        "vocabulary-mismatch",
        Fires(
            "refuse",
            "the draft reads {facts.draft.vocab} tokens, the target's vocabulary has {facts.target.vocab}",
            lambda spec, facts: (
                facts.target.vocab != facts.draft.vocab
                and spec.settings.get("use_heterogeneous_vocab") is not True
            ),
        ),
        source="vLLM 0.32.0: verify_equal_vocab_size_if_draft_model; heads share the target's embedding",
        todo=_OTHER,
        needs=("target.vocab", "draft.vocab"),
        applies=names_draft,
    ),
    PreflightRule(
        "draft-vocabulary",
        _draft_vocabulary,
        source="vLLM 0.32.0, llama_eagle3.py: draft ids become target ids by the d2t table of draft_vocab_size rows",
        todo="use the checkpoint as it was published; one with half its table proposes other tokens than it means",
        needs=("draft.draft_vocab",),
        asks=("target.vocab", "draft.map_rows"),
        applies=_OWN_HEAD,
    ),
    # Libraries moved the base of rotary positions to another key, and a converter that reads the old one writes 10000
    # for it. Some published heads were trained with 10000 for targets with another base, so this refuses nothing.
    PreflightRule(
        "rope-theta",
        Fires(
            "warn",
            "the head's rope_theta is {facts.draft.rope_theta:g}, the target's {facts.target.rope_theta:g}: unless it "
            "was trained so, its conversion lost the value, and few of its tokens are accepted",
            lambda spec, facts: facts.target.rope_theta != facts.draft.rope_theta,
        ),
        source="speculators 0.9.0's converter reads rope_theta at the top level alone (seen); NeMo Automodel PR #2920",
        todo="compare with the configuration of the head it was converted from",
        needs=("target.rope_theta", "draft.rope_theta"),
        applies=both(_OWN_HEAD, where(lambda method: method.draft_positions)),
    ),
    PreflightRule(
        "draft-context",
        _draft_context,
        source="vLLM #57941 (fix PR #57964 open), #48894, #21986, PR #22935, PR #24662",
        todo="lower --max-model-len to the draft's context, or choose a longer draft; max_model_len inside the"
        " configuration does not protect the engine, and with eagle3 it crashed at start-up in published runs",
        needs=("served_context", "draft.context"),
        asks=("engine_version", "v2_runner"),
        applies=both(names_draft, where(lambda method: method.draft_positions)),
    ),
    PreflightRule(
        "quantization-mismatch",
        _quantization_mismatch,
        source="vLLM PR #24505, vllm-ascend #5974",
        todo="measure acceptance against the unquantised target before trusting published figures",
        needs=("quantization",),
        asks=("draft.quantization",),
        applies=names_draft,
    ),
    PreflightRule(
        "kv-dtype-mismatch",
        _kv_dtype_mismatch,
        source="vLLM PR #24505, vllm-ascend #5974",
        todo="leave kv_cache_dtype out of the configuration: the draft inherits the target's",
        needs=("kv_cache_dtype",),
        asks=("draft.kv_cache_dtype",),
        applies=drafts_with_weights,
    ),
    # A head learns the wrapping of prompts too; another chat template makes every prompt new to it.
    PreflightRule(
        "chat-template-mismatch",
        Fires(
            "warn",
            "the chat template beside the head is not the one this target is served with",
            lambda spec, facts: facts.target.template_digest != facts.draft.template_digest,
        ),
        source="Alauda guide: acceptance 51 % on the traffic a head was trained for, 6 % on other traffic",
        todo="serve with the template the head was trained on, or let the warm-up's acceptance decide",
        needs=("target.template_digest", "draft.template_digest"),
        applies=_OWN_HEAD,
    ),
)

RULES = (
    PreflightRule(
        "draft-missing",
        _draft_missing,
        source="vLLM 0.32.0: num_speculative_tokens was provided but without speculative model",
        todo="name it with --draft, a path or repository made for this target",
        applies=drafts_with_weights,
    ),
    PreflightRule(
        "method-taken-from-name",
        _method_taken_from_name,
        source="vLLM 0.32.0, SpeculativeConfig: for these methods the draft's name decides",
        todo="use the method the name says, or rename the directory",
        applies=both(
            names_draft,
            where(lambda method: METHODS[str(method.engine_method)].name_marker is None),
        ),
    ),
    PreflightRule(
        "draft-max-model-len",
        _draft_max_model_len,
        source="vLLM 0.32.0, _maybe_override_draft_max_model_len; Ruiz runs (eagle3: validation error)",
        todo="leave max_model_len out of the configuration",
        asks=("served_context", "draft.context"),
        applies=both(names_draft, setting("max_model_len")),
    ),
    PreflightRule(
        "family-mismatch",
        Fires(
            "warn",
            "the draft is of family {facts.draft.family}, the target of {facts.target.family}",
            _family_mismatch,
        ),
        source="Alauda guide, prerequisites: architecture, tokenizer and base version must match; mismatch is silent",
        todo="choose a draft made for this target; first-position acceptance under 30 % confirms a mismatch",
        needs=("target.family", "draft.family"),
        asks=("target.tokenizer_digest", "draft.tokenizer_digest"),
        applies=_SMALL_MODEL,
    ),
    PreflightRule(
        "draft-no-text",
        Fires(
            "refuse",
            "the draft is no model that generates text: {facts.draft.no_text}",
            lambda spec, facts: facts.draft.no_text,
        ),
        source="vLLM 0.32.0, SpeculativeConfig: a draft model is loaded to generate",
        todo="choose a small model of the target's family",
        needs=("draft.no_text",),
        applies=_SMALL_MODEL,
    ),
    PreflightRule(
        "draft-mrope",
        _mrope,
        source="vLLM 0.32.0, llm_base_proposer.py, _raise_if_mrope; vllm-ascend #14453, #14666; speculators #570",
        todo="use the target's MTP layers or an eagle3 head, or a draft without mrope_section in its config.json",
        asks=("draft.mrope",),
        applies=both(
            where(lambda method: method.v1_runner),
            lambda spec: names_draft(spec) and _takes_slots(spec),
        ),
    ),
    PreflightRule(
        "draft-size",
        _draft_size,
        source="DigitalOcean guide (1:8 to 1:12); Ruiz logs: 1:8 lost to 1:19 in all 102 cells, 1:57 gained on a 70B",
        todo="compare sizes with a bench of each --draft; a larger draft accepts more and leaves less KV",
        needs=("target.params_b", "draft.params_b"),
        applies=_SMALL_MODEL,
    ),
    PreflightRule(
        "mtp-layers",
        _mtp_layers,
        source="vLLM 0.32.0, SpeculativeConfig: Unsupported speculative method: 'mtp'; must be divisible by n_predict",
        todo="use eagle3 with a head for this target, or ngram; of some models a release with MTP layers is published",
        needs=("target.mtp_layers",),
        applies=_TARGET_LAYERS,
    ),
    # Each head drafts one token. The engine makes K heads, and exits at start-up where the draft holds fewer.
    PreflightRule(
        "medusa-heads",
        Fires(
            "refuse",
            "K={spec.k}, and the draft holds {facts.draft.medusa_heads} heads",
            lambda spec, facts: (spec.k or 0) > (facts.draft.medusa_heads or 0),
        ),
        source="vLLM 0.32.0 (seen): Following weights were not initialized from checkpoint",
        todo="set num_speculative_tokens to the number of heads, or below",
        needs=("draft.medusa_heads",),
        applies=both(names_draft, where(lambda method: method.one_head_per_token)),
    ),
    # Most checkpoints carry one MTP layer; a larger K runs it again on its own guess.
    PreflightRule(
        "mtp-repeated-layer",
        Fires(
            "note",
            "K={spec.k} runs the target's {facts.target.mtp_layers} MTP layers more than once",
            lambda spec, facts: 0 < (facts.target.mtp_layers or 0) < (spec.k or 0),
        ),
        source="vLLM 0.32.0 warns: multiple forwards on the same MTP layer; recipes use K 1 to 5",
        todo="start at K=1 and let measurement raise it",
        needs=("target.mtp_layers",),
        applies=_TARGET_LAYERS,
    ),
    *PAIR_RULES,
)
