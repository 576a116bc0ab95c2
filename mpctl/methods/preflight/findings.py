"""The finding of a check: refuse, warn or note, with its reason, its source and the next step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["refuse", "warn", "note"]

# The order in which a person should read them.
SEVERITIES: tuple[Severity, ...] = ("refuse", "warn", "note")


@dataclass(frozen=True)
class Finding:
    """A finding of the preflight.

    ``id`` is stable: scripts and ``--ignore`` name it. ``reason`` is one sentence with the values that led to it,
    ``source`` the document, issue or measurement behind the rule, ``todo`` what to do next.
    """

    id: str
    severity: Severity
    reason: str
    source: str
    todo: str


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Refusals first, then warnings, then notes; the rules' own order within each."""
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))
