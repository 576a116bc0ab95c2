"""A rule of the preflight: when it applies, which facts it needs, and what it says.

A rule is judged only when every fact it ``needs`` is known; otherwise :func:`unknown_facts` names what is missing.
So an unknown fact can neither refuse a rollout nor look like a check that passed. A rule that has something to say
without a fact, but more with it, ``asks`` for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mpctl.methods.method import Method
from mpctl.methods.preflight.facts import Facts
from mpctl.methods.preflight.findings import Finding, Severity
from mpctl.methods.spec import Spec
from mpctl.methods.table import METHODS

# Severity, reason and, where it differs from the rule's, the next step; None when nothing is wrong.
Outcome = tuple[Severity, str] | tuple[Severity, str, str] | None
Judge = Callable[[Spec, Facts], Outcome]
Applies = Callable[[Spec], bool]


@dataclass(frozen=True)
class Rule:
    """One check; ``reason`` is why it exists, ``source`` and ``todo`` go into its findings."""

    id: str
    reason: str
    source: str
    todo: str
    needs: tuple[str, ...]
    asks: tuple[str, ...]
    applies: Applies
    judge: Judge

    def unknown_facts(self, spec: Spec, facts: Facts) -> tuple[str, ...]:
        """The facts this rule lacks for this spec; empty when it does not apply."""
        if not self.applies(spec):
            return ()
        return tuple(name for name in self.needs + self.asks if getattr(facts, name) is None)

    def check(self, spec: Spec, facts: Facts) -> Finding | None:
        """The finding, or None: not applicable, not known, or nothing wrong."""
        if not self.applies(spec) or any(getattr(facts, name) is None for name in self.needs):
            return None
        outcome = self.judge(spec, facts)
        if outcome is None:
            return None
        severity, reason, *todo = outcome
        return Finding(self.id, severity, reason, self.source, todo[0] if todo else self.todo)


def rule(
    rule_id: str,
    *,
    source: str,
    todo: str,
    needs: tuple[str, ...] = (),
    asks: tuple[str, ...] = (),
    applies: Applies | None = None,
) -> Callable[[Judge], Rule]:
    """Make a rule of a small function; its docstring is the rule's reason."""

    def wrap(judge: Judge) -> Rule:
        reason = " ".join((judge.__doc__ or "").split())
        return Rule(rule_id, reason, source, todo, needs, asks, applies or speculates, judge)

    return wrap


def speculates(spec: Spec) -> bool:
    """Any method but none."""
    return not spec.is_none


def method_of(spec: Spec) -> Method:
    """The method's entry; for a method we do not know, ``none``'s, which promises nothing."""
    return spec.known or METHODS["none"]


def where(test: Callable[[Method], object]) -> Applies:
    """The method's row passes a test."""
    return lambda spec: spec.known is not None and not spec.is_none and bool(test(spec.known))


def drafts_with_weights(spec: Spec) -> bool:
    """A head, a model or layers of the target propose."""
    return method_of(spec).loads_weights


def names_draft(spec: Spec) -> bool:
    """Weights of its own are loaded for the draft."""
    return drafts_with_weights(spec) and spec.draft is not None


def sets_key(*names: str) -> Applies:
    """The configuration carries one of these keys."""
    return lambda spec: any(spec.settings.get(name) is not None for name in names)


def both(first: Applies, second: Applies) -> Applies:
    """Both conditions."""
    return lambda spec: first(spec) and second(spec)
