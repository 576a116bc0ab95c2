"""The rules of the gate in the order in which they are listed. A thematic file holds its rules and their rows."""

from mpctl.gate.rule import Rule
from mpctl.gate.rules import answers, evidence, figures

RULES: tuple[Rule, ...] = (*evidence.RULES, *answers.RULES, *figures.RULES)
_ROWS = {rule.name: rule for rule in RULES}


def rule_named(name: str) -> Rule | None:
    """Return the row of a rule; None for one that only users' requests have. Of a name that both have, the prompts'."""
    return _ROWS.get(name)
