"""The table of ``scripts/aa-rounds``: what the gate and a naive rule say of arms that are equal, or of a gain.

Every measurement is judged as a rollout judges it: after each round, with intervals that hold for all looks together,
until the gate has decided or the rounds are over. The naive rule beside it is the usual one: after each round, fail
where the candidate's p99 of the time per token is more than 10 % above the baseline's.

    python scripts/aa_table.py [--gain] PLANNED-ROUNDS SECONDS=RUN...
"""

from __future__ import annotations

import math
import statistics
import sys
from dataclasses import replace

from mpctl.app.bench.recorded import read_run
from mpctl.experiment.run import Run
from mpctl.gate.assess import judge_run
from mpctl.gate.rule import Outcome

NAIVE_LIMIT = 1.10


def looks_of(run: Run, repeats: int, planned: int) -> list[Outcome]:
    """Outcomes of the gate after each round, up to its decision."""
    outcomes = []
    for look in range(1, repeats + 1):
        part = replace(run, blocks=tuple(b for b in run.blocks if b.repeat < look))
        _, verdict = judge_run(part, rounds=look, planned=planned)
        outcomes.append(verdict.outcome)
        if verdict.outcome is not Outcome.UNDECIDED:
            break
    return outcomes


def naive_alarms(run: Run, repeats: int) -> int:
    """In how many rounds the naive rule fires."""
    alarms = 0
    for repeat in range(repeats):
        p99 = {}
        for arm in ("baseline", "candidate"):
            blocks = [b for b in run.blocks if b.repeat == repeat and b.arm == arm]
            times = sorted(s.tpot_ms for b in blocks for s in b.samples if s.tpot_ms is not None)
            p99[arm] = times[math.ceil(0.99 * len(times)) - 1]
        alarms += p99["candidate"] > NAIVE_LIMIT * p99["baseline"]
    return alarms


def main(planned: int, measured: list[str], *, gain: bool = False) -> int:
    """Print the table; 1 when the gate decided on equal arms too often, or did not promote a gain."""
    outcomes_of: list[list[Outcome]] = []
    times: list[float] = []
    fired = 0
    print(
        "MEASUREMENT           SECONDS  ROUNDS   GATE                 NAIVE P99 RULE   TOK/S RATIO BY ROUND"
    )
    for item in measured:
        seconds, _, path = item.partition("=")
        run = read_run(path)
        repeats = len({b.repeat for b in run.blocks})
        outcomes, alarms = looks_of(run, repeats, planned), naive_alarms(run, repeats)
        analysis, _ = judge_run(run)
        ratios = [r for c in analysis.cells for r in c.round_ratios]
        decision = f"{outcomes[-1].value} at look {len(outcomes)}"
        print(
            f"{run.id:<22}{seconds:<9}{repeats:<9}{decision:<21}{f'{alarms} of {repeats} rounds':<17}"
            f"{min(ratios):.2f} to {max(ratios):.2f}"
        )
        outcomes_of.append(outcomes)
        times.append(float(seconds))
        fired += alarms > 0
    count, looks = len(measured), sum(map(len, outcomes_of))
    print(
        f"\n{statistics.median(times):.1f} s in the median, {min(times):.1f} to {max(times):.1f} s"
    )
    if gain:
        promoted = sum(outcomes[-1] is Outcome.PROMOTE for outcomes in outcomes_of)
        print(f"gate: {promoted} of {count} measurements promoted, over {looks} looks")
        return int(promoted < count)
    false, allowed = (
        sum(outcomes[-1] is not Outcome.UNDECIDED for outcomes in outcomes_of),
        math.ceil(0.05 * count),
    )
    print(
        f"gate: {false} of {count} measurements of equal arms decided, over {looks} looks (at most {allowed})"
    )
    print(f"naive rule: fired in {fired} of {count} measurements")
    return int(false > allowed)


if __name__ == "__main__":
    arguments = [word for word in sys.argv[1:] if word != "--gain"]
    sys.exit(main(int(arguments[0]), arguments[1:], gain="--gain" in sys.argv))
