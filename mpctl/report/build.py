"""A report from a run: computed from the raw samples by the gate's own code, so the two cannot disagree."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mpctl.experiment.arm import BASELINE, CANDIDATE, ArmSummary, Spread
from mpctl.experiment.block import Block
from mpctl.experiment.run import Run
from mpctl.gate.analysis import Analysis, Comparison
from mpctl.gate.assess import CellVerdict, Outcome, RuleResult, Verdict
from mpctl.gate.decomposition import Decomposition as Measured
from mpctl.gate.policy import Policy
from mpctl.manifest import redacted
from mpctl.report import words
from mpctl.report.commands import reproduction
from mpctl.report.cost import cost_of
from mpctl.report.prices import Prices
from mpctl.report.values import (
    ArmFacts,
    ArmFigures,
    CellReport,
    ClientFacts,
    Decomposition,
    Figure,
    Part,
    PromptFacts,
    Report,
    Rule,
    finite,
)
from mpctl.stats.interval import Interval

_LAG = 0.05  # of a request's time; more is seen in the curves
_REASONS = 4  # more are in the gate's table


def build_report(
    run: Run,
    analysis: Analysis,
    verdict: Verdict,
    prices: Prices,
    *,
    service: str = "",
) -> Report:
    """Everything that any format shows. ``service``: what was measured, as people call it."""
    judged = {v.cell: v for v in verdict.cells}
    cells = tuple(_cell(run, comparison, judged[comparison.cell]) for comparison in analysis.cells)
    baseline, candidate = _facts(run, BASELINE), _facts(run, CANDIDATE)
    weightiest = max(cells, key=lambda c: c.share or 0.0, default=None)
    return Report(
        run=run.id,
        created=run.created,
        who=run.who,
        mpctl_version=run.mpctl_version,
        service=service or candidate.model or baseline.model or run.id,
        outcome=verdict.outcome.value,
        sentence=_sentence(verdict, cells, candidate.spec),
        reasons=_reasons(verdict),
        crossovers=_crossovers(verdict),
        speedup=weightiest.speedup if weightiest else Figure(),
        cells=cells,
        baseline=baseline,
        candidate=candidate,
        prompts=tuple(PromptFacts(p.name, p.digest, p.count, p.repeated) for p in run.prompts.values()),
        client=_client(run),
        policy={name: value for name, value in analysis.policy.to_record().items() if value is not None},
        cost=cost_of(cells, candidate if candidate.device else baseline, prices),
        commands=reproduction(run),
        decomposition=_decompositions(analysis, weightiest),
        notes=tuple(_notes(analysis)),
    )


def _cell(run: Run, comparison: Comparison, judged: CellVerdict) -> CellReport:
    cell, blocks = comparison.cell, run.of_cell(comparison.cell)
    traffic, _, load = cell.label.partition(", ")
    speedup = _figure(comparison.intervals.get("speedup"))
    throughput = _figure(comparison.intervals.get("throughput"))
    return CellReport(
        traffic=traffic,
        load=load,
        concurrency=cell.concurrency,
        temperature=cell.temperature,
        rate=cell.rate,
        share=finite(judged.share) if run.shares else None,
        outcome=judged.outcome.value,
        reasons=judged.reasons,
        speedup=speedup if speedup.known else Figure(finite(comparison.speedup)),
        throughput=throughput if throughput.known else Figure(finite(comparison.speedup)),
        rules=tuple(_rule(r) for r in judged.rules),
        baseline=_arm(comparison.baseline, [b for b in blocks if b.arm == BASELINE]),
        candidate=_arm(comparison.candidate, [b for b in blocks if b.arm == CANDIDATE]),
    )


def _arm(arm: ArmSummary, blocks: Sequence[Block]) -> ArmFigures:
    window = arm.window
    done = [s for b in blocks for s in b.completed]
    curves = {
        "ttft": _quantiles([s.ttft_ms for s in done]),
        "tpot": _quantiles([s.tpot_ms for s in done]),
        "e2e": _quantiles([s.e2e_ms for s in done]),
    }
    return ArmFigures(
        requests=arm.requests,
        failed=arm.failed,
        output_tokens=arm.output_tokens,
        tokens_per_second=finite(arm.throughput),
        requests_per_second=len(done) / arm.seconds if arm.seconds else None,
        goodput=finite(arm.goodput),
        ttft_ms=_spread(arm.ttft, arm.ttft_ms),
        tpot_ms=_spread(arm.tpot, arm.tpot_ms),
        e2e_ms=_spread(arm.e2e, arm.e2e.mean if arm.e2e else None),
        step_ms=dict(zip(("p50", "p90", "p99"), arm.steps, strict=True)) if arm.steps else {},
        queue_wait_ms=finite(window.queue_wait_ms) if window else None,
        tokens_per_step=finite(window.tokens_per_step) if window else None,
        acceptance_rate=finite(window.acceptance_rate) if window else None,
        acceptance_length=finite(window.acceptance_length) if window else None,
        coverage=finite(window.coverage) if window else None,
        acceptance_by_position=window.position_rates if window else (),
        drafts=window.drafts if window else None,
        draft_tokens=window.draft_tokens if window else None,
        accepted_tokens=window.accepted if window else None,
        preemptions=window.preemptions if window else None,
        quantiles={name: curve for name, curve in curves.items() if curve},
    )


def _spread(spread: Spread | None, mean: float | None) -> dict[str, float | None]:
    """``mean`` by the engine's clock where it has one, the quantiles by the client's."""
    found = {q: finite(getattr(spread, q)) if spread else None for q in ("p50", "p90", "p99")}
    return {"mean": finite(mean), **found}


def _quantiles(values: Sequence[float | None]) -> tuple[float, ...]:
    present = [v for v in values if v is not None and math.isfinite(v)]
    if not present:
        return ()
    import numpy as np

    return tuple(float(f"{v:.5g}") for v in np.percentile(present, range(101)))


def _figure(found: Interval | None, n: int | None = None) -> Figure:
    if found is None:
        return Figure(n=n)
    return Figure(finite(found.value), finite(found.low), finite(found.high), found.n, found.level, found.method)


def _rule(result: RuleResult) -> Rule:
    spread = _figure(result.interval)
    figure = Figure(finite(result.value), spread.low, spread.high, result.n or None, spread.level, spread.method)
    limit = ""
    if result.limit is not None:
        limit = f"{_direction(result.rule)} {words.limit(result.limit, result.unit)}"
    return Rule(result.rule, result.outcome.value, result.message, limit, result.unit, figure, result.needed)


def _direction(rule: str) -> str:
    """``at least`` or ``at most``, from the names of the policy's terms of the rule."""
    terms = [name for name, (_, term) in Policy.terms().items() if term.rule == rule]
    return "at least" if any(name.startswith("min_") for name in terms) else "at most"


def _facts(run: Run, arm: str) -> ArmFacts:
    found = run.arms.get(arm)
    if found is None:
        return ArmFacts("", "", (), "", "", "", None)
    return ArmFacts(
        spec=found.spec,
        engine_version=found.engine_version,
        argv=redacted(found.argv),
        model=found.model,
        model_digest=found.model_digest,
        device=found.device,
        kv_pool_tokens=found.kv_pool_tokens,
    )


def _client(run: Run) -> ClientFacts | None:
    found = run.calibration
    if found is None:
        return None
    return ClientFacts(finite(found.p50_ms), finite(found.p99_ms), found.requests, found.concurrency)


def _sentence(verdict: Verdict, cells: Sequence[CellReport], spec: str) -> str:
    """The verdict in one sentence that stands alone."""
    what = spec or "the candidate"
    if len(cells) != 1:
        return f"{what}: {verdict.summary}"
    cell = cells[0]
    traffic, speed = f"{cell.traffic} ({cell.load})", words.with_interval(cell.speedup)
    match verdict.outcome:
        case Outcome.PROMOTE:
            return f"{what} makes {traffic} {speed} as fast"
        case Outcome.REJECT:
            return f"{what} does not pass for {traffic}: {verdict.cells[0].reasons[0]}"
        case _:
            return f"It is not decided whether {what} pays for {traffic}{_wanted(verdict)}"


def _wanted(verdict: Verdict) -> str:
    if verdict.needed is None:
        return ""
    took = f", about {words.duration(verdict.needed_s)}" if verdict.needed_s is not None else ""
    return f"; about {words.count(verdict.needed)} more requests per arm would tell{took}"


def _reasons(verdict: Verdict) -> tuple[str, ...]:
    """Why not: with one cell its first reasons, with several the first of each cell that decided; the rest stands in
    the gate's table. A promotion's reasons are all its rules."""
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
        f"the crossover is near {c.near:.0f}"
        for c in verdict.crossovers
    )


def _decompositions(analysis: Analysis, first: CellReport | None) -> tuple[Decomposition, ...]:
    """Of every cell that can be taken apart, the weightiest first."""
    found = []
    for comparison in analysis.cells:
        measured = Measured.of(comparison)
        if measured is not None:
            found.append(_decomposition(comparison.cell.label, measured))
    return tuple(sorted(found, key=lambda d: first is None or d.cell != first.label))


def _decomposition(cell: str, measured: Measured) -> Decomposition:
    speedup, promised = words.times(measured.speedup), words.times(measured.promised)
    lost = measured.speedup < measured.promised
    return Decomposition(
        cell=cell,
        title=f"Why {speedup} and not {promised}" if lost else f"Why {speedup}, where the drafts promise {promised}",
        sentence=measured.sentence,
        parts=tuple(Part(p.name, finite(p.factor), finite(p.after), p.text) for p in measured.parts),
    )


def _notes(analysis: Analysis) -> list[str]:
    notes = []
    for comparison in analysis.cells:
        lags = [(a.arm, a.client_lag) for a in (comparison.baseline, comparison.candidate)]
        for arm, lag in lags:
            if lag is not None and lag > _LAG:
                notes.append(
                    f"{comparison.cell.label}, {arm}: the client's mean time to first token is {words.percent(lag, 0)} "
                    "of a request's time away from the engine's own, because chunks reached it merged; the curves of "
                    "its TTFT and TPOT are shifted by that, those of whole answers are not"
                )
    return notes
