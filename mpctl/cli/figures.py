"""The measured figures of both arms as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mpctl.cli.printer import columns

if TYPE_CHECKING:
    from mpctl.gate.analysis import Comparison


def comparison_tables(cells: Sequence[Comparison], *, baseline: str, candidate: str) -> Iterator[str]:
    """Yield one table per traffic condition in which both arms answered; ``baseline`` and ``candidate`` are specs."""
    from mpctl.report import comparison_rows

    compared = [c for c in cells if c.compared]
    for comparison in compared:
        if len(compared) > 1:
            yield f"\n{comparison.cell.label}"
        yield columns(comparison_rows(comparison, baseline=baseline, candidate=candidate))
