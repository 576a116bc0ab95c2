"""The figures and the verdict of a measurement, printed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpctl.cli.context import CliContext
from mpctl.cli.figures import comparison_tables
from mpctl.cli.printer import columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mpctl.experiment.arm import ArmSummary
    from mpctl.experiment.run import Run
    from mpctl.gate.analysis import Analysis
    from mpctl.gate.assess import Verdict

_ONE_ARM = ("TRAFFIC", "TOK/S", "TPOT", "TTFT", "TTFT P99", "E2E P50", "E2E P99", "TOKENS/STEP", "REQUESTS")


def emit_measurement(
    context: CliContext, run: Run, analysis: Analysis, verdict: Verdict | None, file: str | None = None
) -> None:
    """Print a measurement; ``verdict`` is None for one arm, ``file`` the file it was written to."""
    context.emit(
        "Measurement",
        record=lambda: _record(run, analysis, verdict, file),
        names=lambda: [run.id],
        table=lambda _wide: "\n".join(_lines(run, analysis, verdict)),
    )


def _record(run: Run, analysis: Analysis, verdict: Verdict | None, file: str | None) -> dict[str, Any]:
    from mpctl.report import comparison_record

    return {
        "metadata": {"name": run.id, "createdAt": run.created, "by": run.who, "file": file},
        "status": {
            "gate": verdict.to_record() if verdict else None,
            "measurement": [{"cell": c.cell.to_record(), **comparison_record(c)} for c in analysis.cells],
        },
    }


def _lines(run: Run, analysis: Analysis, verdict: Verdict | None) -> Iterator[str]:
    from mpctl.experiment.arm import BASELINE, CANDIDATE
    from mpctl.report import gate_rows

    if verdict is None:
        yield columns([_ONE_ARM, *(_row(c.cell.label, c.baseline) for c in analysis.cells)])
        return
    specs = {name: arm.spec for name, arm in run.arms.items()}
    yield from comparison_tables(analysis.cells, baseline=specs.get(BASELINE, "?"), candidate=specs.get(CANDIDATE, "?"))
    yield ""
    yield columns(gate_rows(verdict))


def _row(label: str, arm: ArmSummary) -> list[str]:
    from mpctl.report.table import show

    window, ttft, e2e = arm.window, arm.ttft, arm.e2e
    return [
        label,
        show(arm.throughput, "{:.1f}".format),
        show(arm.tpot_ms, "{:.2f} ms".format),
        show(arm.ttft_ms, "{:.1f} ms".format),
        show(ttft.p99 if ttft else None, "{:.1f} ms".format),
        show(e2e.p50 if e2e else None, "{:.0f} ms".format),
        show(e2e.p99 if e2e else None, "{:.0f} ms".format),
        show(window.tokens_per_step if window else None, "{:.2f}".format),
        f"{arm.requests - arm.failed}/{arm.requests}",
    ]
