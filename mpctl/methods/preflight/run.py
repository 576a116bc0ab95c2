"""The static preflight: every rule over one spec and what is known, in milliseconds and without a cluster."""

from __future__ import annotations

from mpctl.methods.preflight import draft as rules_draft
from mpctl.methods.preflight import engine as rules_engine
from mpctl.methods.preflight import match as rules_match
from mpctl.methods.preflight import releases as rules_releases
from mpctl.methods.preflight import traffic as rules_traffic
from mpctl.methods.preflight.facts import Facts
from mpctl.methods.preflight.findings import Finding, ordered
from mpctl.methods.preflight.rule import Rule
from mpctl.methods.spec import Spec

RULES: tuple[Rule, ...] = (
    rules_engine.RULES + rules_releases.RULES + rules_draft.RULES + rules_match.RULES + rules_traffic.RULES
)


def preflight_findings(spec: Spec, facts: Facts) -> tuple[Finding, ...]:
    """Return the findings about this spec on this service: refusals, then warnings, then notes."""
    outcomes = (rule.check(spec, facts) for rule in RULES)
    return ordered(finding for finding in outcomes if finding is not None)


def asks_for(spec: Spec, fact: str) -> bool:
    """Return whether a rule about this spec decides by a fact, named as the field of ``Facts``."""
    return any(rule.applies(spec) and fact in rule.needs + rule.asks for rule in RULES)


def unknowns(spec: Spec, facts: Facts) -> tuple[str, ...]:
    """One line per check that could not be made, or only in part, with the facts it lacks."""
    lines = []
    for rule in RULES:
        missing = rule.unknown_facts(spec, facts)
        if missing:
            how = "not checked" if set(missing) & set(rule.needs) else "checked in part"
            lines.append(f"{rule.id}: {how}, unknown: {', '.join(missing)}")
    return tuple(lines)
