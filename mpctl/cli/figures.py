"""Measured figures and the gate's rules as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mpctl.cli.printer import columns
from mpctl.gate.analysis import Comparison
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.report import comparison_rows, gate_rows


def ratios_text(figures: Sequence[tuple[str, str, str]]) -> str:
    """Ratios by name with their confidence intervals; empty where nothing was measured."""
    return ", ".join(f"{name} {estimate} ({interval})" for name, estimate, interval in figures)


def comparison_tables(
    cells: Sequence[Comparison], *, baseline: str, candidate: str
) -> Iterator[str]:
    """Yield one table per traffic condition in which both arms answered; ``baseline`` and ``candidate`` are specs."""
    compared = [c for c in cells if c.compared]
    for comparison in compared:
        if len(compared) > 1:
            yield f"\n{comparison.cell.label}"
        yield columns(comparison_rows(comparison, baseline=baseline, candidate=candidate))


def rules_table(verdict: Verdict, *, every_rule: bool) -> str:
    """The gate's rules that failed or could not decide, or every one; empty when there is none."""
    rows = gate_rows(verdict)
    if not every_rule:
        settled = (Outcome.PASS, Outcome.SKIP)
        open_messages = {r.message for r in verdict.rules if r.outcome not in settled}
        rows = [rows[0], *(row for row in rows[1:] if row[2] in open_messages)]
    return columns(rows) if len(rows) > 1 else ""
