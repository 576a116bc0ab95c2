"""The figures and the verdict of a measurement, printed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mpctl import commands
from mpctl.app.bench.recorded import RunComparison
from mpctl.cli.context import CliContext, Conclusion
from mpctl.cli.figures import comparison_tables, ratios_text
from mpctl.cli.printer import columns, paragraph
from mpctl.errors import GateRejected, Undecided
from mpctl.experiment.arm import ArmSummary, tail_of
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.run import Run
from mpctl.formatting import milliseconds, number
from mpctl.gate.advice import more_to_decide
from mpctl.gate.analysis import Analysis
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.report import deciding, gate_rows, measurement_record, price_text, tail_text
from mpctl.report.values import Deciding
from mpctl.rollout.measurement import figures_of

if TYPE_CHECKING:
    from mpctl.app.bench.measure import BenchMeasurement

_ONE_ARM = (
    "TRAFFIC",
    "TOK/S",
    "TPOT",
    "TTFT",
    "TTFT P99",
    "E2E P50",
    "E2E P99",
    "TOKENS/STEP",
    "REQUESTS",
)


def print_bench(
    context: CliContext, measured: BenchMeasurement, price_per_hour: float | None
) -> None:
    """Print a measurement that was made now, where it was written, and the command that reads it again."""
    _emit(context, measured.run, measured.analysis, measured.verdict, measured.file)
    terminal = context.terminal
    if price_per_hour is not None:
        terminal.note(price_text(measured.analysis.cells, price_per_hour))
    terminal.note(
        f"measured {measured.rounds} rounds ({measured.ended}); written to {measured.file}"
    )
    if measured.verdict is not None:
        terminal.note(_verdict_text(measured.verdict))
    context.conclusion = _conclusion(measured)
    terminal.next_command(commands.line("report", str(measured.file)))


def _verdict_text(verdict: Verdict) -> str:
    if verdict.outcome is Outcome.UNDECIDED:
        return "gate is undecided"
    return f"gate would {verdict.outcome.value} the candidate"


def _conclusion(measured: BenchMeasurement) -> Conclusion:
    if measured.verdict is None:
        return Conclusion("measured")
    return Conclusion(
        _verdict_text(measured.verdict), ratios_text(figures_of(measured.analysis)[:1])
    )


def print_comparison(context: CliContext, compared: RunComparison) -> None:
    """Print a comparison of measurements.

    Raises:
        GateRejected, Undecided: the gate would not promote the candidate.
    """
    for difference in compared.differences:
        context.terminal.warn(f"measured differently: {difference}")
    _emit(context, compared.run, compared.analysis, compared.verdict)
    reasons = "; ".join(compared.verdict.reasons)
    if compared.verdict.outcome is Outcome.REJECT:
        raise GateRejected(f"gate would reject the candidate: {reasons}")
    if compared.verdict.outcome is Outcome.UNDECIDED:
        raise Undecided(
            f"gate is undecided: {reasons}",
            hint="measure more rounds or prompts: --repeats, --requests",
        )


def _emit(
    context: CliContext,
    run: Run,
    analysis: Analysis,
    verdict: Verdict | None,
    file: str | None = None,
) -> None:
    """Print a measurement; ``verdict`` is None for one arm, ``file`` the file it was written to."""
    needed = more_to_decide(analysis, verdict) if verdict else None
    decision_hint = deciding(run, needed, context.again(needed.repeats) if file and needed else "")
    context.emit(
        "Measurement",
        record=lambda: {
            "metadata": {"name": run.id, "createdAt": run.created, "by": run.who, "file": file},
            "status": measurement_record(analysis.cells, verdict, decision_hint),
        },
        names=lambda: [run.id],
        table=lambda _wide: "\n".join(_lines(run, analysis, verdict, decision_hint)),
    )


def _lines(
    run: Run, analysis: Analysis, verdict: Verdict | None, decision_hint: Deciding | None
) -> Iterator[str]:
    if verdict is None:
        yield columns([_ONE_ARM, *(_row(run, c.cell.label, c.baseline) for c in analysis.cells)])
        return
    specs = {name: arm.spec for name, arm in run.arms.items()}
    yield from comparison_tables(
        analysis.cells, baseline=specs.get(BASELINE, "?"), candidate=specs.get(CANDIDATE, "?")
    )
    yield ""
    yield columns(gate_rows(verdict))
    if decision_hint is not None:
        yield paragraph(f"\nto decide: {decision_hint.text}", "", "  ")


def _row(run: Run, label: str, arm: ArmSummary) -> list[str]:
    conditions = run.arms.get(arm.arm)
    argv = conditions.argv if conditions else ()
    window, e2e = arm.window, arm.e2e
    return [
        label,
        number(arm.throughput, 1),
        milliseconds(arm.tpot_ms),
        milliseconds(arm.ttft_ms),
        tail_text(tail_of(arm, "ttft", run.calibration, argv)),
        milliseconds(e2e.p50 if e2e else None),
        tail_text(tail_of(arm, "e2e", run.calibration, argv)),
        number(window.tokens_per_step if window else None),
        f"{arm.requests - arm.failed}/{arm.requests}",
    ]
