"""Sweep a cycle and print the table; with 1 where a case ends wrong, or the ledger's states are not as placed.

python -m tests.sweep                     every call with every fault (minutes)
python -m tests.sweep --every 60          one call of 60, and no trips
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.sweep.clock import install, real_monotonic

install()
sys.path.append(str(Path(__file__).parents[1] / "unit" / "support"))

from tests.sweep.ledger_states import REACHED, UNREACHED, enumerated  # noqa: E402
from tests.sweep.sweep import cases, swept, undisturbed  # noqa: E402
from tests.sweep.table import Table, states_table  # noqa: E402
from tests.sweep.trips import TRIPS, states_of_trip  # noqa: E402

HEAD = """\
# A fault at every call of a cycle

Last output of `scripts/sweep-table`.

The cycle is a rollout with its promotion, a fallback by the watch, a rollback and a prune, on an API server,
controllers and engines in memory (`tests/sweep`). Each call meets each fault once; then the same command runs again, or
a rollback. A cell counts the cases that ended with the expected manifest, no orphan, every operation ended and a
readable history. A read counts as stale where it shows the state before the last change, if that is another one.
"""


def misplaced(reached: dict[str, set[str]]) -> list[str]:
    """States of the ledger that are not reached where ``ledger_states`` says."""
    every = set().union(*reached.values())
    missing = [
        (state, by)
        for by, states in REACHED.items()
        for state in states
        if state not in reached[by]
    ]
    faults = [f"{state} is not reached by {by}" for state, by in missing]
    faults += [f"{state} is reached: place it" for state in sorted(every & {*UNREACHED})]
    return faults + [f"{state} has no place" for state in sorted(every - enumerated())]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="one call of N; 1: all, and the trips"
    )
    parser.add_argument(
        "--write", metavar="FILE", help="write the table of a whole sweep there, too"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    options = parser.parse_args()
    began, failures = real_monotonic(), []
    with tempfile.TemporaryDirectory(prefix="sweep-") as name:
        folder = Path(name).resolve()
        reference = undisturbed(folder)
        table, by_fault = Table(reference), set()
        chosen = list(cases(reference, options.every))
        for number, (case, outcome) in enumerate(
            swept(folder, reference, chosen, options.jobs), start=1
        ):
            table.add(case, outcome)
            if number % 100 == 0:
                sys.stderr.write(f"{number} of {len(chosen)} cases\n")
            by_fault |= {*outcome.states}
            if not outcome.good:
                failures.append(f"{case}: {'; '.join(outcome.wrong())}")
                sys.stderr.write(f"{failures[-1]}\n")
        reached = {"cycle": reference.states, "a fault": by_fault}
        if options.every == 1:
            reached |= {trip: states_of_trip(folder, trip) for trip in TRIPS}
    text = table.text(real_monotonic() - began)
    if options.every == 1:
        text += f"\n{states_table()}"
        failures += misplaced(reached)
    sys.stdout.write(f"{text}\n")
    if options.write is not None and options.every == 1:
        Path(options.write).write_text(f"{HEAD}\n{text}\n", encoding="utf-8")
    sys.stderr.writelines(f"{failure}\n" for failure in failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
