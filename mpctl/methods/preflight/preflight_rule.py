"""A rule of the preflight: when it applies, which facts it needs, and what it finds.

A rule is judged only when every fact it ``needs`` is known; otherwise its result names what is missing. So an unknown
fact can neither refuse a rollout nor look like a check that passed. A rule that has something to say without a fact,
but more with it, ``asks`` for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from string import Template
from typing import Any, Literal

from mpctl.json_types import Json
from mpctl.methods.method import ReleaseFloor
from mpctl.methods.preflight.nixl import KvEnd
from mpctl.methods.spec import Spec
from mpctl.methods.table import METHODS
from mpctl.methods.versions import show
from mpctl.packaged import packaged, rows_of

Severity = Literal["refuse", "warn", "note"]
CheckVerdict = Literal["ok", "warn", "mismatch", "unknown"]
_SEVERITIES: tuple[Severity, ...] = (
    "refuse",
    "warn",
    "note",
)  # the order in which a person should read them
# Facts that only decide how bad a mismatch is, not whether there is one.
_REFINE = frozenset({"engine_version", "v2_runner"})
# A quantisation format of many schemes: the same name on both sides says nothing of bits.
NAMES_NO_SCHEME = "compressed-tensors"


@dataclass(frozen=True)
class Finding:
    """A finding of the preflight."""

    id: str  # stable: scripts and --accept name it
    severity: Severity
    reason: str  # one sentence with the values that led to it
    source: str  # the document, issue or measurement behind the rule
    todo: str  # the next step


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Refusals first, then warnings, then notes; the rules' own order within each."""
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES.index(finding.severity)))


@dataclass(frozen=True)
class CheckpointFacts:
    """Facts of a target or a draft, read from its files. None means unknown, never "no"."""

    name: str | None = None  # organisation/model
    family: str | None = None  # model_type
    context: int | None = None  # max_position_embeddings, tokens
    params_b: float | None = None  # billions, from the size and dtype of the files
    tokenizer_digest: str | None = None
    added_tokens_digest: str | None = None
    template_digest: str | None = None
    no_text: str | None = None  # its class where that generates no text, empty where it does
    moe: bool | None = None
    quantization: str | None = None  # "none" for unquantised weights
    kv_cache_dtype: str | None = None
    hidden: int | None = None
    vocab: int | None = None  # size of the vocabulary that it reads
    recurrent: str | None = (
        None  # "gdn", "mamba2" or "kda" layers in addition to attention; "none" without any
    )
    mtp_layers: int | None = (
        None  # layers of its own that draft, 0 where the configuration names none
    )
    rope_theta: float | None = None  # base of the rotary positions
    mrope: bool | None = None  # rotary positions of several dimensions (mrope_section)
    verifier: str | None = (
        None  # the model that a speculators checkpoint is to serve; empty where it is none
    )
    # Of a draft:
    draft_kind: str | None = None  # the ``checkpoint`` of a method's row
    draft_vocab: int | None = None  # number of tokens that a head may propose
    expects_hidden: int | None = (
        None  # width of the target's hidden states that a head was built for
    )
    trained_for: str | None = None  # the target that a head's configuration names
    map_rows: int | None = None  # length of the table from a head's tokens to the target's (d2t)
    medusa_heads: int | None = None  # tokens that Medusa's heads can draft
    mask_token: bool | None = (
        None  # the configuration names a token that fills the places drafted in one pass
    )
    architectures: tuple[str, ...] | None = None
    block_size: int | None = None  # tokens of a block that is drafted in one pass


@dataclass(frozen=True)
class ServiceFacts:
    """Facts about a service before anything is changed, from the service, the cluster and the checkpoints. None means
    unknown, never "no"."""

    engine_version: str | None = None  # as found; an image reference will do
    kserve_version: str | None = None
    target: CheckpointFacts = CheckpointFacts()
    draft: CheckpointFacts = CheckpointFacts()
    served_context: int | None = None  # max_model_len
    max_num_seqs: int | None = None
    max_batched_tokens: int | None = None  # tokens of one step
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    thinking: bool | None = None  # the chat template thinks by default
    enable_lora: bool | None = None
    prefix_caching: bool | None = None
    async_scheduling: bool | None = None  # the command line sets it
    kv_cache_dtype: str | None = None
    quantization: str | None = None  # "none" for unquantised weights
    temperature: float | None = None
    v2_runner: bool | None = None
    device: str | None = None  # "CPU" or "GPU"
    gpu: str | None = None  # the GPU's name
    decode_end: KvEnd | None = None  # the engine, as one that exchanges KV cache
    prefill_ends: tuple[KvEnd, ...] = ()  # those that fill its prompts, and get the same setting
    uses_storage_uris: bool | None = None
    argv: tuple[str, ...] | None = None  # the engine's command line
    lines: Mapping[str, int] = field(default_factory=dict)  # of its flags in the manifest
    plain_secrets: tuple[str, ...] = ()  # variables and flags with a secret in plain text
    concurrency: int | None = None

    def value(self, fact: str) -> object:
        """The value of a fact by its name; one of a checkpoint is named like ``draft.context``."""
        return attrgetter(fact)(self)


@dataclass(frozen=True)
class RuleResult:
    """A rule that applies to a spec, as far as what is known of the service lets it be judged."""

    id: str
    finding: Finding | None
    missing: tuple[str, ...]  # facts that it needs or asks for
    is_judged: bool  # every fact that it needs is known

    @property
    def unchecked(self) -> str:
        """What was not checked, or only in part, with the facts that are missing; empty where none is."""
        if not self.missing:
            return ""
        how = "checked in part" if self.is_judged else "not checked"
        return f"{self.id}: {how}, unknown: {', '.join(self.missing)}"

    @property
    def verdict(self) -> CheckVerdict:
        """The result in a word."""
        if self.finding is not None:
            return "mismatch" if self.finding.severity == "refuse" else "warn"
        return "unknown" if self.text else "ok"

    @property
    def text(self) -> str:
        """What was found, or which facts a verdict lacks; empty where all is well."""
        if self.finding is not None:
            return self.finding.reason
        lacking = [
            name.replace("_", " ").replace(".", " ") for name in self.missing if name not in _REFINE
        ]
        return f"not known: {', '.join(lacking)}" if lacking else ""


# Severity, reason and, where it differs from the rule's, the next step; None when nothing is wrong.
RuleOutcome = tuple[Severity, str] | tuple[Severity, str, str] | None
Applies = Callable[[Spec], bool]


@dataclass(frozen=True)
class _RuleRow:
    """A row of rules.yaml, which explains the fields."""

    id: str
    source: str
    todo: str
    applies: tuple[str, ...] = ("speculates",)
    needs: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    severity: Severity | None = None
    reason: str = ""
    when: str = ""
    differ: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreflightRule(_RuleRow):
    """A check; ``source`` and ``todo`` go into its findings. ``function``: a rule without a severity is judged by it,
    another holds where it says so. ``conditions``: on the spec, each as ``applies`` names it."""

    function: Callable[[Spec, ServiceFacts], Any] | None = None
    conditions: tuple[Applies, ...] = ()

    def is_about(self, spec: Spec) -> bool:
        """Return whether every condition on the spec holds."""
        return all(condition(spec) for condition in self.conditions)

    def check(self, spec: Spec, facts: ServiceFacts) -> RuleResult:
        """Judge a spec that the rule is about."""
        missing = tuple(name for name in self.needs + self.asks if facts.value(name) is None)
        is_judged = not set(missing) & set(self.needs)
        finding = self._find(spec, facts) if is_judged else None
        return RuleResult(self.id, finding, missing, is_judged)

    def _find(self, spec: Spec, facts: ServiceFacts) -> Finding | None:
        if self.when and not facts.value(self.when):
            return None
        if self.differ and len({facts.value(name) for name in self.differ}) == 1:
            return None
        outcome: Any = self.function is None or self.function(spec, facts)
        if not outcome:
            return None
        if self.severity is not None:
            outcome = self.severity, self.reason.format(spec=spec, facts=facts)
        severity, reason, *todo = outcome
        return Finding(self.id, severity, reason, self.source, todo[0] if todo else self.todo)


def examine(
    rules: Iterable[PreflightRule], spec: Spec, facts: ServiceFacts
) -> tuple[RuleResult, ...]:
    """Judge every rule that is about the spec, in milliseconds and without a cluster."""
    return tuple(rule.check(spec, facts) for rule in rules if rule.is_about(spec))


# Conditions of rules on the spec that both kinds of rules use.
_TERMS: Mapping[str, Applies] = {
    "any": lambda _spec: True,
    "speculates": lambda spec: not spec.is_none,
    "has-k": lambda spec: spec.k is not None,
    "names-draft": lambda spec: spec.names_draft,
}


@cache
def _rows() -> Mapping[str, list[Json]]:
    parts: Mapping[str, list[Json]] = packaged(__package__, "rules.yaml")
    return parts


def read_rules(
    part: str,
    functions: Mapping[str, Callable[[Spec, ServiceFacts], Any]],
    terms: Mapping[str, Applies],
) -> tuple[PreflightRule, ...]:
    """Return the rules of one part of rules.yaml.

    ``functions``: by the id of a rule, its judge, or the condition of a rule of one case. ``terms``: the part's own
    conditions on the spec.
    """
    rows = rows_of(_rows()[part], _RuleRow)
    return tuple(_rule(row, functions.get(row.id), {**_TERMS, **terms}) for row in rows)


def _rule(
    row: _RuleRow,
    function: Callable[[Spec, ServiceFacts], Any] | None,
    terms: Mapping[str, Applies],
) -> PreflightRule:
    if function is None and row.severity is None:
        raise ValueError(f"rule {row.id} has neither a severity nor a function")
    methods = METHODS.values()
    texts = {
        "methods": ", ".join(METHODS),
        "floors": _releases((row.name, row.floor) for row in methods),
        "ceilings": _releases((row.name, row.ceiling) for row in methods),
    }
    values = vars(row) | {
        "source": Template(row.source).substitute(texts),
        "todo": Template(row.todo).substitute(texts),
        "function": function,
        "conditions": tuple(_condition(text, terms) for text in row.applies),
    }
    return PreflightRule(**values)


def _releases(rows: Iterable[tuple[str, ReleaseFloor | None]]) -> str:
    return "; ".join(f"{name} {show(release.version)}" for name, release in rows if release)


def _condition(text: str, terms: Mapping[str, Applies]) -> Applies:
    """Return a condition of a row; one on the method does not hold for a method we do not know, negated or not."""
    name = text.removeprefix("not ")
    wanted = name == text
    kind, _, field_name = name.partition(".")
    if kind == "method":
        return lambda spec: (
            spec.known is not None
            and not spec.is_none
            and bool(getattr(spec.known, field_name)) is wanted
        )
    if kind == "settings":
        key, _, value = field_name.partition("=")
        if value:
            return lambda spec: (spec.settings.get(key) == value) is wanted
        return lambda spec: (spec.settings.get(key) is not None) is wanted
    return lambda spec: terms[name](spec) is wanted
