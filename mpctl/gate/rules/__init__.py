"""The rules of the gate in the order in which they are listed. A thematic file holds its rules and their table."""

from mpctl.gate.case import Rule
from mpctl.gate.rules import drafts, evidence, speed, tails

RULES: tuple[Rule, ...] = (*evidence.RULES, *drafts.RULES, *speed.RULES, *tails.RULES)
