"""The results of the preflight's rules, as tests ask for them."""

from __future__ import annotations

from mpctl.methods import Finding, ServiceFacts, Spec
from mpctl.methods.preflight.checks import OF_PAIR, RULES
from mpctl.methods.preflight.preflight_rule import RuleResult, examine, ordered


def preflight_findings(spec: Spec, facts: ServiceFacts) -> tuple[Finding, ...]:
    """What is wrong: refusals, then warnings, then notes."""
    results = examine(RULES, spec, facts)
    return ordered(result.finding for result in results if result.finding is not None)


def unknowns(spec: Spec, facts: ServiceFacts) -> tuple[str, ...]:
    """A line for each check that could not be made, or only in part."""
    return tuple(result.unchecked for result in examine(RULES, spec, facts) if result.missing)


def match(spec: Spec, facts: ServiceFacts) -> tuple[RuleResult, ...]:
    """The checks whether a draft fits its target."""
    return tuple(result for result in examine(RULES, spec, facts) if result.id in OF_PAIR)
