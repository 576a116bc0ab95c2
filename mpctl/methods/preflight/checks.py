"""The static preflight: every rule over one spec and what is known, in milliseconds and without a cluster.

:func:`preflight_findings` lists what is wrong. :func:`match` also says what was looked at and fine, and what could not
be looked at, so that nothing unknown can pass for fine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mpctl.methods.preflight import draft_rules, engine_rules
from mpctl.methods.preflight.preflight_rule import Finding, PreflightRule, ServiceFacts, ordered
from mpctl.methods.spec import Spec

CheckVerdict = Literal["ok", "warn", "mismatch", "unknown"]

RULES: tuple[PreflightRule, ...] = (
    *engine_rules.RULES,
    *draft_rules.RULES,
    *engine_rules.TRAFFIC_RULES,
)
# Facts that only decide how bad a mismatch is, not whether there is one.
_REFINE = frozenset({"engine_version", "v2_runner"})


def preflight_findings(spec: Spec, facts: ServiceFacts) -> tuple[Finding, ...]:
    """Return the findings about this spec on this service: refusals, then warnings, then notes."""
    outcomes = (rule.check(spec, facts) for rule in RULES)
    return ordered(finding for finding in outcomes if finding is not None)


def unknowns(spec: Spec, facts: ServiceFacts) -> tuple[str, ...]:
    """A line per check that could not be made, or only in part, with the facts it lacks."""
    lines = []
    for rule in RULES:
        missing = rule.unknown_facts(spec, facts)
        if missing:
            how = "not checked" if set(missing) & set(rule.needs) else "checked in part"
            lines.append(f"{rule.id}: {how}, unknown: {', '.join(missing)}")
    return tuple(lines)


@dataclass(frozen=True)
class DraftCheck:
    """A check of a draft with its target; ``text`` says what was found or which facts are missing."""

    id: str
    verdict: CheckVerdict
    text: str


def match(spec: Spec, facts: ServiceFacts) -> tuple[DraftCheck, ...]:
    """The checks whether this draft fits its target; empty for a method without a draft."""
    return tuple(
        _check(rule, spec, facts) for rule in draft_rules.PAIR_RULES if rule.is_about(spec)
    )


def _check(rule: PreflightRule, spec: Spec, facts: ServiceFacts) -> DraftCheck:
    finding = rule.check(spec, facts)
    if finding is not None:
        return DraftCheck(
            rule.id, "mismatch" if finding.severity == "refuse" else "warn", finding.reason
        )
    missing = [
        name.replace("_", " ").replace(".", " ")
        for name in rule.unknown_facts(spec, facts)
        if name not in _REFINE
    ]
    if missing:
        return DraftCheck(rule.id, "unknown", f"not known: {', '.join(missing)}")
    return DraftCheck(rule.id, "ok", "")
