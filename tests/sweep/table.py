"""The table of a sweep: calls by their kind, and what became of each fault."""

from __future__ import annotations

from collections import Counter

from tests.sweep.cycle import CYCLE
from tests.sweep.ledger_states import REACHED, UNREACHED, enumerated
from tests.sweep.process import Fault
from tests.sweep.sweep import Case, Outcome, Reference


class Table:
    """Counts of the cases by step, kind of call and fault."""

    def __init__(self, reference: Reference):
        self._calls = Counter(
            (step, call.text) for step, calls in enumerate(reference.calls) for call in calls
        )
        self._covered: set[tuple[int, int]] = set()
        self._cases: Counter[tuple[int, str, Fault]] = Counter()
        self._good: Counter[tuple[int, str, Fault]] = Counter()
        self._totals: Counter[str] = Counter()

    def add(self, case: Case, outcome: Outcome) -> None:
        """Count a case."""
        key = case.step, case.call, case.fault
        self._covered.add((case.step, case.at))
        self._cases[key] += 1
        self._good[key] += outcome.good
        self._totals += Counter(
            cases=1,
            exact=outcome.exact,
            went_on=outcome.went_on,
            orphans=len(outcome.orphans),
            problems=len(outcome.problems),
            left=len(outcome.left),
        )

    def text(self, seconds: float) -> str:
        """Markdown."""
        totals, lines = self._totals, []
        lines += [
            f"calls covered: {len(self._covered)} of {self._calls.total()}  ",
            f"cases: {totals['cases']}, of which the command itself went on in {totals['went_on']}  ",
            f"manifest exact, byte for byte: {totals['exact']} of {totals['cases']}  ",
            f"orphans: {totals['orphans']}; other problems: {totals['problems']}  ",
            f"load Jobs that ended when idle, Leases of ended processes: {totals['left']}  ",
            f"seconds: {seconds:.0f}",
            "",
            f"| step | call | calls | {' | '.join(Fault)} |",
            f"|---|---|---|{'---|' * len(Fault)}",
        ]
        for (step, call), count in sorted(self._calls.items()):
            cells = " | ".join(self._cell(step, call, fault) for fault in Fault)
            lines.append(f"| {CYCLE[step].name} | {call} | {count} | {cells} |")
        return "\n".join(lines)

    def _cell(self, step: int, call: str, fault: Fault) -> str:
        key = step, call, fault
        return f"{self._good[key]} of {self._cases[key]}" if self._cases[key] else ""


def states_table() -> str:
    """Where each state of the ledger is reached, or why it is not."""
    count = len(enumerated()) - len(UNREACHED)
    lines = ["", f"States of the ledger reached: {count} of {len(enumerated())}", ""]
    lines += ["| state | reached by, or why not |", "|---|---|"]
    placed = {state: by for by, states in REACHED.items() for state in states}
    lines += [f"| {state} | {by} |" for state, by in sorted({**placed, **UNREACHED}.items())]
    return "\n".join(lines)
