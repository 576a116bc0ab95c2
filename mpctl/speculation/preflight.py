"""The static preflight: every rule over one spec and what is known, in milliseconds and without a cluster."""

from __future__ import annotations

from mpctl.speculation import rules_draft, rules_engine, rules_match, rules_traffic
from mpctl.speculation.facts import Facts
from mpctl.speculation.findings import Finding, ordered
from mpctl.speculation.rule import Rule
from mpctl.speculation.spec import Spec

RULES: tuple[Rule, ...] = rules_engine.RULES + rules_draft.RULES + rules_match.RULES + rules_traffic.RULES


def preflight(spec: Spec, facts: Facts) -> tuple[Finding, ...]:
    """What speaks against this spec on this service: refusals, then warnings, then notes."""
    found = (rule.check(spec, facts) for rule in RULES)
    return ordered(finding for finding in found if finding is not None)


def unknowns(spec: Spec, facts: Facts) -> tuple[str, ...]:
    """One line per check that could not be made, or only in part, with the facts it lacks."""
    lines = []
    for rule in RULES:
        missing = rule.unknown_facts(spec, facts)
        if missing:
            how = "not checked" if set(missing) & set(rule.needs) else "checked in part"
            lines.append(f"{rule.id}: {how}, unknown: {', '.join(missing)}")
    return tuple(lines)
