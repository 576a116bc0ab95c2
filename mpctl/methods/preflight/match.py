"""Rules that tell whether a draft was made for this target: a wrong one starts, serves, and is hardly ever accepted."""

from __future__ import annotations

import re

from mpctl.methods.preflight.facts import Facts
from mpctl.methods.preflight.rule import Outcome, both, method_of, names_draft, rule, where
from mpctl.methods.spec import Spec

_HEADS = where(lambda method: method.for_one_target)
_OTHER = "choose a draft made for this target; the drafts command lists those that are known"
# Ends of a repository's name that say how its weights are stored, not which model it is.
_STORED = re.compile(
    r"[-_.](?:fp8|fp4|nvfp4(?:a16)?|mxfp4|mxfp8|awq|gptq|auto-?round|int4|int8|bf16|fp16|bnb|gguf|mlx|unsloth|4bit|8bit"
    r"|w\d+a\d+|g\d+|quantized|dynamic|block|kv)(?=$|[-_.])",
    re.IGNORECASE,
)
# Words and dates at the end of a name that mean other weights, not the same ones stored in another way.
_RETRAINED = re.compile(r"[-_](?:base|chat|coder|distill|instruct|it|math|thinking|vl|\d{4})(?=$|[-_.])")
# A path into the hub's cache, whose last part is a commit.
_CACHED = re.compile(r"models--[^/]+?--([^/]+)/snapshots/")


def same_model(name: str, other: str) -> bool:
    """Return whether two names mean one model: by the last part, without case, quantisation or Meta's old prefix."""
    return plain_name(name) == plain_name(other)


def extends(name: str, other: str) -> bool:
    """Return whether ``name`` is ``other`` with a suffix that is not known to mean another training."""
    long, short = plain_name(name), plain_name(other)
    suffix = long.removeprefix(short)
    return suffix != long and suffix.startswith(("-", "_")) and not _RETRAINED.search(suffix)


def plain_name(name: str) -> str:
    """``llama-3.1-8b-instruct`` of ``org/Meta-Llama-3.1-8B-Instruct-FP8``."""
    cached = _CACHED.search(name)
    last = (cached[1] if cached else name.strip().rstrip("/").rpartition("/")[2]).lower()
    while (shorter := _STORED.sub("", last)) != last:
        last = shorter
    return last.removeprefix("meta-")


@rule(
    "wrong-target",
    source="Alauda guide: a head that does not match its target starts and serves, and silently lowers acceptance",
    todo=_OTHER,
    needs=("target_name", "draft_trained_for"),
    applies=both(names_draft, _HEADS),
)
def wrong_target(spec: Spec, facts: Facts) -> Outcome:
    """A head reads one model's hidden states; another's mean nothing to it."""
    ours, named = facts.target_name or "", facts.draft_trained_for or ""
    if same_model(ours, named):
        return None
    if extends(ours, named) or extends(named, ours):
        return "warn", f"the head was trained for {named}, the target is {ours}, which may be made of other weights"
    if named.startswith(("/", ".", "~")):
        return "warn", f"the head was trained for {named}, a path of its trainer's machine; the target is {ours}"
    return "refuse", f"the head was trained for {named}, the target is {ours}"


@rule(
    "hidden-size-mismatch",
    source="vLLM 0.32.0, llama_eagle3.py: the head's first layer takes the target's hidden states by their width",
    todo=_OTHER,
    needs=("target_hidden", "draft_expects_hidden"),
    applies=both(names_draft, _HEADS),
)
def hidden_size_mismatch(spec: Spec, facts: Facts) -> Outcome:
    """A head built for hidden states of another width cannot be loaded, or reads them wrongly."""
    if facts.target_hidden == facts.draft_expects_hidden:
        return None
    return "refuse", f"the head expects hidden states {facts.draft_expects_hidden} wide, the target's are " + str(
        facts.target_hidden
    )


@rule(
    "vocabulary-mismatch",
    source="vLLM 0.32.0: verify_equal_vocab_size_if_draft_model; heads share the target's embedding",
    todo=_OTHER,
    needs=("target_vocab", "draft_reads_vocab"),
    applies=names_draft,
)
def vocabulary_mismatch(spec: Spec, facts: Facts) -> Outcome:
    """The draft reads the target's token ids, so both need a vocabulary of the same size."""
    if facts.target_vocab == facts.draft_reads_vocab or spec.settings.get("use_heterogeneous_vocab") is True:
        return None
    return "refuse", f"the draft reads {facts.draft_reads_vocab} tokens, the target's vocabulary has " + str(
        facts.target_vocab
    )


@rule(
    "draft-vocabulary",
    source="vLLM 0.32.0, llama_eagle3.py: draft ids become target ids through the d2t table of draft_vocab_size rows",
    todo="use the checkpoint as it was published; one with half its table proposes other tokens than it means",
    needs=("draft_vocab",),
    asks=("target_vocab", "draft_map_rows"),
    applies=both(names_draft, _HEADS),
)
def draft_vocabulary(spec: Spec, facts: Facts) -> Outcome:
    """A head that proposes part of the vocabulary needs a table from its tokens to the target's."""
    own, rows, whole = facts.draft_vocab, facts.draft_map_rows, facts.target_vocab
    if own is not None and whole is not None and own > whole:
        return "refuse", f"the head proposes {own} tokens, the target knows {whole}"
    if rows is not None and rows != own:
        return "refuse", f"the head proposes {own} tokens, its table to the target's tokens has {rows} rows"
    return None


@rule(
    "tokenizer-mismatch",
    source="vLLM 0.32.0, verify_equal_vocab_size_if_draft_model; PR #24322",
    todo="choose a draft with the target's tokenizer; a draft model may also set use_heterogeneous_vocab=true",
    needs=("target_tokenizer_digest", "draft_tokenizer_digest"),
    applies=names_draft,
)
def tokenizer_mismatch(spec: Spec, facts: Facts) -> Outcome:
    """Another tokenizer means other token ids: an error at start-up at best, nonsense proposals at worst."""
    target, draft = facts.target_tokenizer_digest or "", facts.draft_tokenizer_digest or ""
    if target == draft or _may_differ(spec):
        return None
    return "refuse", f"the draft's tokenizer ({draft[:12]}) is not the target's ({target[:12]})"


@rule(
    "added-tokens-mismatch",
    source="same vocabulary, other special tokens: turns end elsewhere and think blocks open elsewhere",
    todo="choose a draft of the same release of the target's family",
    needs=("target_added_tokens_digest", "draft_added_tokens_digest"),
    applies=names_draft,
)
def added_tokens_mismatch(spec: Spec, facts: Facts) -> Outcome:
    """Added tokens carry the turns of a chat; a draft with others proposes them wrongly at every turn."""
    target, draft = facts.target_added_tokens_digest or "", facts.draft_added_tokens_digest or ""
    if target == draft or _may_differ(spec):
        return None
    return "refuse", f"the draft's added tokens ({draft[:12]}) are not the target's ({target[:12]})"


def _may_differ(spec: Spec) -> bool:
    key = "use_heterogeneous_vocab"
    return key in method_of(spec).own_keys and spec.settings.get(key) is True


@rule(
    "chat-template-mismatch",
    source="Alauda guide: acceptance 51 % on the traffic a head was trained for, 6 % on other traffic",
    todo="serve with the template the head was trained on, or let the warm-up's acceptance decide",
    needs=("target_template_digest", "draft_template_digest"),
    applies=both(names_draft, _HEADS),
)
def chat_template_mismatch(spec: Spec, facts: Facts) -> Outcome:
    """A head learns the wrapping of prompts too; another chat template makes every prompt new to it."""
    if facts.target_template_digest == facts.draft_template_digest:
        return None
    return "warn", "the chat template beside the head is not the one this target is served with"


RULES = (
    wrong_target,
    hidden_size_mismatch,
    vocabulary_mismatch,
    draft_vocabulary,
    tokenizer_mismatch,
    added_tokens_mismatch,
    chat_template_mismatch,
)
