"""Build a report from a run: computed from the raw samples by the gate's own code, so the two cannot disagree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mpctl import formatting
from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.experiment.block import Block
from mpctl.experiment.run import ArmConditions, Run
from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.assess import CellVerdict, Outcome, Verdict
from mpctl.gate.decomposition import Decomposition
from mpctl.manifest import redacted
from mpctl.report.commands import reproduction
from mpctl.report.cost import cost_of
from mpctl.report.prices import Prices
from mpctl.report.values import METRICS, CellReport, Report

_LAG = 0.05  # of a request's time; more is visible in the curves
_REASONS = 4  # the others are in the gate's table
_UNKNOWN = ArmConditions("", "", (), "", "", "", None)


def build_report(
    run: Run,
    analysis: Analysis,
    verdict: Verdict,
    prices: Prices,
    *,
    service: str = "",
) -> Report:
    """Return everything that any format shows. ``service``: its name in sentences."""
    judged = {v.cell: v for v in verdict.cells}
    cells = tuple(_cell(run, comparison, judged[comparison.cell]) for comparison in analysis.cells)
    baseline, candidate = _conditions(run, BASELINE), _conditions(run, CANDIDATE)
    return Report(
        run=run.id,
        created=run.created,
        who=run.who,
        mpctl_version=run.mpctl_version,
        service=service or candidate.model or baseline.model or run.id,
        verdict=verdict,
        sentence=_sentence(verdict, cells, candidate.spec),
        reasons=_reasons(verdict),
        crossovers=_crossovers(verdict),
        cells=cells,
        baseline=baseline,
        candidate=candidate,
        prompts=tuple(run.prompts.values()),
        client=run.calibration,
        policy=analysis.policy,
        cost=cost_of(cells, baseline, candidate, prices),
        commands=reproduction(run),
        notes=tuple(_notes(analysis)),
    )


def _cell(run: Run, comparison: Comparison, judged: CellVerdict) -> CellReport:
    blocks = run.of_cell(comparison.cell)
    return CellReport(
        comparison=comparison,
        verdict=judged,
        share=judged.share if run.shares else None,
        curves={arm: _curves([b for b in blocks if b.arm == arm]) for arm in (BASELINE, CANDIDATE)},
        decomposition=Decomposition.of(comparison),
    )


def _curves(blocks: Sequence[Block]) -> dict[str, tuple[float, ...]]:
    """Return 101 quantiles of every time that was measured."""
    done = [s for b in blocks for s in b.completed]
    curves = {metric: _quantiles([getattr(s, f"{metric}_ms") for s in done]) for metric in METRICS}
    return {metric: curve for metric, curve in curves.items() if curve}


def _quantiles(values: Sequence[float | None]) -> tuple[float, ...]:
    present = [v for v in values if v is not None and math.isfinite(v)]
    if not present:
        return ()
    import numpy as np

    return tuple(float(f"{v:.5g}") for v in np.percentile(present, range(101)))


def _conditions(run: Run, arm: str) -> ArmConditions:
    found = run.arms.get(arm, _UNKNOWN)
    return replace(found, argv=redacted(found.argv))


def _sentence(verdict: Verdict, cells: Sequence[CellReport], spec: str) -> str:
    """Return the verdict in one sentence that stands alone."""
    what = spec or "the candidate"
    if len(cells) != 1:
        return f"{what}: {verdict.summary}"
    cell = cells[0]
    traffic = f"{cell.traffic} ({cell.load})"
    match verdict.outcome:
        case Outcome.PROMOTE:
            return (
                f"{what} pays for {traffic}: throughput ratio {formatting.estimate(cell.comparison.throughput_ratio)}"
            )
        case Outcome.REJECT:
            return f"{what} is rejected for {traffic}: {verdict.cells[0].reasons[0]}"
        case _:
            return f"Undecided whether {what} pays for {traffic}{_wanted(verdict)}"


def _wanted(verdict: Verdict) -> str:
    if verdict.needed is None:
        return ""
    took = f", about {formatting.duration(verdict.needed_s)}" if verdict.needed_s is not None else ""
    return f"; about {formatting.count(verdict.needed)} more requests per arm would decide{took}"


def _reasons(verdict: Verdict) -> tuple[str, ...]:
    """Return the first reasons of a single cell, or the first reason of each deciding cell. A promotion has none beside
    its rules."""
    if verdict.outcome is Outcome.PROMOTE:
        return ()
    deciding = [c for c in verdict.cells if c.outcome is verdict.outcome]
    if len(verdict.cells) == 1:
        found = list(deciding[0].reasons)
        if verdict.outcome is Outcome.REJECT:
            found = found[1:]  # the first is in the sentence
    else:
        found = [f"{c.cell.label}: {c.reasons[0]}" for c in deciding if c.reasons]
    more = len(found) - _REASONS
    return (*found[:_REASONS], *([f"and {more} more, below"] if more > 0 else []))


def _crossovers(verdict: Verdict) -> tuple[str, ...]:
    return tuple(
        f"{c.traffic}: speculation pays up to {c.pays} requests at once and no longer at {c.costs}; "
        f"the crossover is near {formatting.count(c.near)}"
        for c in verdict.crossovers
    )


def _notes(analysis: Analysis) -> Iterator[str]:
    for comparison in analysis.cells:
        for arm in (comparison.baseline, comparison.candidate):
            if arm.client_lag is not None and arm.client_lag > _LAG:
                yield (
                    f"{comparison.cell.label}, {arm.arm}: the client's mean time to first token differs from the "
                    f"engine's by {formatting.share(arm.client_lag, 0)} of a request's time, because chunks reached it "
                    "merged; its TTFT and TPOT curves are shifted by that, those of whole answers are not"
                )
