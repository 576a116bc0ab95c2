"""The rules of the gate in the order in which they are listed. A thematic file holds its rules and their table."""

from mpctl.gate.case import Rule
from mpctl.gate.rules import caches, drafts, evidence, speed, tails

RULES: tuple[Rule, ...] = (*evidence.RULES, *caches.RULES, *drafts.RULES, *speed.RULES, *tails.RULES)
