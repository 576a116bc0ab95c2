"""Build a report from a run: computed from the raw samples by the gate's own code, so the two cannot disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mpctl import formatting
from mpctl.experiment.arm import ArmSummary, client_unfit, tail_of
from mpctl.experiment.block import BASELINE, CANDIDATE, Block
from mpctl.experiment.pairing import MUCH
from mpctl.experiment.run import ArmConditions, Run
from mpctl.experiment.users import Placement
from mpctl.experiment.workload import WARM_UP
from mpctl.gate.advice import MoreData, more_to_decide
from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.decomposition import Decomposition
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.manifest import redacted
from mpctl.report.values import METRICS, CellReport, Deciding, Report, price_text
from mpctl.stats.numerics import np
from mpctl.stats.sequential import MOST_LOOKS


def deciding(run: Run, needed: MoreData | None, command: str = "") -> Deciding | None:
    """Return the measurement that would probably decide an undecided one; None where the verdict stands or no number
    of rounds may decide. ``command``: that measures again with more rounds; empty where it is unknown."""
    if needed is None or needed.repeats > MOST_LOOKS:
        return None
    repeats = needed.repeats
    lacking = tuple(
        f"{name} takes {count} distinct prompts and has {run.prompts[name].count}: add some with --prompts {name}=FILE"
        for name, count in _asked(run, repeats).items()
        if name in run.prompts and run.prompts[name].count < count
    )
    return Deciding(repeats, command, lacking)


def _asked(run: Run, repeats: int) -> dict[str, int]:
    """Return the distinct prompts of each class that so many rounds take."""
    prompts_taken: dict[str, int] = {}
    for cell in run.cells:
        size = max(len(b.samples) for b in run.of_cell(cell))
        prompts_taken[cell.traffic] = prompts_taken.get(cell.traffic, WARM_UP) + repeats * size
    return prompts_taken


_ARMS = (BASELINE, CANDIDATE)
_REASONS = 4  # the others are in the gate's table
_UNKNOWN = ArmConditions("", "", (), "", "", "", None)


def build_report(
    run: Run,
    analysis: Analysis,
    verdict: Verdict,
    *,
    service: str = "",
    price_per_hour: float | None = None,
) -> Report:
    """Return everything that any format shows. ``service``: its name in sentences; ``price_per_hour`` of one engine,
    USD."""
    price = () if price_per_hour is None else (price_text(analysis.cells, price_per_hour),)
    judged = {v.cell: v for v in verdict.cells}
    cells = tuple(_cell(run, comparison, judged[comparison.cell]) for comparison in analysis.cells)
    needed = more_to_decide(analysis, verdict)
    baseline, candidate = _conditions(run, BASELINE), _conditions(run, CANDIDATE)
    return Report(
        run=run.id,
        created=run.created,
        who=run.who,
        mpctl_version=run.mpctl_version,
        service=service or candidate.model or baseline.model or run.id,
        verdict=verdict,
        sentence=_sentence(verdict, cells, candidate.spec, needed),
        reasons=_reasons(verdict),
        crossovers=tuple(
            f"{c.traffic}: speculation pays up to {c.pays} requests at once and no longer at {c.costs}; "
            f"the crossover is near {formatting.count(c.near)}"
            for c in verdict.crossovers
        ),
        cells=cells,
        baseline=baseline,
        candidate=candidate,
        prompts=tuple(run.prompts.values()),
        client=run.calibration,
        policy=analysis.policy,
        notes=(*_notes(run, analysis), *price),
        deciding=deciding(run, needed),
    )


def _cell(run: Run, comparison: Comparison, judged: CellVerdict) -> CellReport:
    blocks = run.of_cell(comparison.cell)
    arms = _arms(run, comparison)
    return CellReport(
        comparison=comparison,
        verdict=judged,
        share=judged.share if run.shares else None,
        curves={  # of the times that the load client could measure
            arm: _curves(
                [b for b in blocks if b.arm == arm],
                ("e2e",) if client_unfit(summary, argv) else METRICS,
            )
            for arm, (summary, argv) in arms.items()
        },
        tails={
            arm: {name: tail_of(summary, name, run.calibration, argv) for name in METRICS}
            for arm, (summary, argv) in arms.items()
        },
        decomposition=Decomposition.of(comparison),
    )


def _arms(run: Run, comparison: Comparison) -> dict[str, tuple[ArmSummary, tuple[str, ...]]]:
    """The summary and the engine's arguments of each arm."""
    return {arm: (getattr(comparison, arm), run.arms.get(arm, _UNKNOWN).argv) for arm in _ARMS}


def _curves(blocks: Sequence[Block], metrics: Sequence[str]) -> dict[str, tuple[float, ...]]:
    """Return 101 quantiles of every time that was measured."""
    done = [s for b in blocks for s in b.completed]
    curves = {metric: _quantiles([getattr(s, f"{metric}_ms") for s in done]) for metric in metrics}
    return {metric: curve for metric, curve in curves.items() if curve}


def _quantiles(values: Sequence[float | None]) -> tuple[float, ...]:
    present = [v for v in values if formatting.is_known(v)]
    if not present:
        return ()
    return tuple(float(f"{v:.5g}") for v in np.percentile(present, range(101)))


def _conditions(run: Run, arm: str) -> ArmConditions:
    conditions = run.arms.get(arm, _UNKNOWN)
    return replace(conditions, argv=redacted(conditions.argv))


def _sentence(
    verdict: Verdict, cells: Sequence[CellReport], spec: str, needed: MoreData | None
) -> str:
    """Return the verdict in one sentence that stands alone."""
    what = spec or "the candidate"
    if len(cells) != 1:
        return f"{what}: {verdict.summary}"
    cell = cells[0]
    traffic = f"{cell.traffic} ({cell.load})"
    match verdict.outcome:
        case Outcome.PROMOTE:
            slower, _, count = cell.comparison.much_slower
            return (
                f"{what} pays for {traffic}: throughput ratio "
                f"{formatting.estimate(cell.comparison.throughput_ratio)}; prompts that take more than {MUCH:g}x as "
                f"long: {slower} of {count}"
            )
        case Outcome.REJECT:
            return f"{what} is rejected for {traffic}: {verdict.cells[0].reasons[0]}"
        case _:
            wanted = needed and (
                f"; about {formatting.count(needed.requests)} more requests per arm would decide, about "
                f"{formatting.duration(needed.seconds)}"
            )
            return f"Undecided whether {what} pays for {traffic}{wanted or ''}"


def _reasons(verdict: Verdict) -> tuple[str, ...]:
    """Return the first reasons of a single cell, or the first reason of each deciding cell. A promotion has none beside
    its rules."""
    if verdict.outcome is Outcome.PROMOTE:
        return ()
    deciding = [c for c in verdict.cells if c.outcome is verdict.outcome]
    if len(verdict.cells) == 1:
        reasons = list(deciding[0].reasons)
        if verdict.outcome is Outcome.REJECT:
            reasons = reasons[1:]  # the first is in the sentence
    else:
        reasons = [f"{c.cell.label}: {c.reasons[0]}" for c in deciding if c.reasons]
    omitted = len(reasons) - _REASONS
    return (*reasons[:_REASONS], *([f"and {omitted} more, below"] if omitted > 0 else []))


_MEASURED_ON = {
    Placement.SERVICE: "Measured on the serving baseline",
    Placement.PAIR: "Measured on a copy of the baseline",
    Placement.TURNS: "Measured on a copy of the baseline and the candidate in turns",
    Placement.MIRROR: "Measured on copies of users' requests",
    Placement.SPLIT: "Measured on users' requests",
}


def _notes(run: Run, analysis: Analysis) -> Iterator[str]:
    if run.users is not None:
        yield f"{_MEASURED_ON[run.placement]}; before that, {run.users.in_words}"
        sent, users = analysis.most_at_once, run.users.at_once
        if run.placement.copies_baseline and 0 < sent < users:
            yield (
                f"Users keep about {users} requests in flight on each pod, the prompts were sent {sent} at once: "
                f"--concurrency {users} judges the candidate at the users' load"
            )
    for comparison in analysis.cells:
        for arm, (summary, argv) in _arms(run, comparison).items():
            if why := client_unfit(summary, argv):
                yield (
                    f"{comparison.cell.label}, {arm}: TTFT and TPOT of single requests are not measurable by this "
                    f"client: {why}. Their means and p99 are the engine's own; whole answers are timed correctly"
                )
