"""All rules of the preflight, in the order in which a person would ask."""

from __future__ import annotations

from mpctl.methods.preflight import draft_rules, engine_rules
from mpctl.methods.preflight.preflight_rule import PreflightRule

RULES: tuple[PreflightRule, ...] = (
    *engine_rules.RULES,
    *draft_rules.RULES,
    *engine_rules.TRAFFIC_RULES,
)
OF_PAIR = frozenset(rule.id for rule in draft_rules.PAIR_RULES)  # whether a draft fits its target
