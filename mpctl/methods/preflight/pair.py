"""Does this draft fit this target? Every check with its verdict: ok, mismatch, or unknown and why.

The preflight only lists what it found; here what was looked at and fine, and what could not be looked at, is said too,
so that nothing unknown can pass for fine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mpctl.methods.preflight import draft as rules_draft
from mpctl.methods.preflight import match as rules_match
from mpctl.methods.preflight.facts import Facts
from mpctl.methods.preflight.rule import Rule
from mpctl.methods.spec import Spec

Verdict = Literal["ok", "warn", "mismatch", "unknown"]

# The rules for a pair, in the order a person would ask.
CHECKS: tuple[Rule, ...] = (
    rules_match.wrong_target,
    rules_draft.draft_kind,
    rules_draft.parallel_drafting,
    rules_match.tokenizer_mismatch,
    rules_match.added_tokens_mismatch,
    rules_match.hidden_size_mismatch,
    rules_match.vocabulary_mismatch,
    rules_match.draft_vocabulary,
    rules_draft.draft_context,
    rules_draft.quantization_mismatch,
    rules_draft.kv_dtype_mismatch,
    rules_match.chat_template_mismatch,
)
# Facts that only decide how bad a mismatch is, not whether there is one.
_REFINE = frozenset({"engine_version", "v2_runner"})


@dataclass(frozen=True)
class Check:
    """One check of a pair; ``text`` says what was found or which facts are missing."""

    id: str
    verdict: Verdict
    text: str


def match(spec: Spec, facts: Facts) -> tuple[Check, ...]:
    """The checks that apply to this draft; empty for a method without one."""
    return tuple(_check(rule, spec, facts) for rule in CHECKS if rule.applies(spec))


def _check(rule: Rule, spec: Spec, facts: Facts) -> Check:
    finding = rule.check(spec, facts)
    if finding is not None:
        return Check(rule.id, "mismatch" if finding.severity == "refuse" else "warn", finding.reason)
    missing = [name.replace("_", " ") for name in rule.unknown_facts(spec, facts) if name not in _REFINE]
    if missing:
        return Check(rule.id, "unknown", f"not known: {', '.join(missing)}")
    return Check(rule.id, "ok", "")
