"""A measurement's figures and verdict for people and for scripts."""

from __future__ import annotations

from mpctl.cli.outcome import print_cells
from mpctl.cli.printer import columns
from mpctl.cli.terminal import Terminal
from mpctl.errors import GateRejected, Undecided
from mpctl.experiment.arm import BASELINE, CANDIDATE, ArmSummary, Spread
from mpctl.experiment.run import Run
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import Outcome, Verdict
from mpctl.report import comparison_record, gate_rows

_ALONE = ("TRAFFIC", "TOK/S", "TPOT", "TTFT", "TTFT P99", "E2E P50", "E2E P99", "TOKENS/STEP", "REQUESTS")


def show(
    terminal: Terminal, run: Run, analysis: Analysis, verdict: Verdict | None, output: str, file: str | None = None
) -> None:
    """Print figures, and the gate's rules where there are two arms."""
    if output in ("json", "yaml"):
        body = {
            "metadata": {"name": run.id, "createdAt": run.created, "by": run.who, "file": file},
            "status": {
                "gate": verdict.to_record() if verdict else None,
                "measurement": [{"cell": c.cell.to_record(), **comparison_record(c)} for c in analysis.cells],
            },
        }
        terminal.record("Measurement", body, output)
    elif output == "name":
        terminal.result(run.id)
    elif verdict is None:
        terminal.table(_ALONE, [_row(c.cell.label, c.baseline) for c in analysis.cells])
    else:
        specs = {name: arm.spec for name, arm in run.arms.items()}
        print_cells(
            terminal,
            analysis.cells,
            baseline=specs.get(BASELINE, "?"),
            candidate=specs.get(CANDIDATE, "?"),
        )
        terminal.result("")
        terminal.result(columns(gate_rows(verdict)))


def conclude(verdict: Verdict) -> None:
    """Raise unless the gate would promote.

    Raises:
        GateRejected, Undecided: with the reasons.
    """
    reasons = "; ".join(verdict.reasons)
    if verdict.outcome is Outcome.REJECT:
        raise GateRejected(f"the gate would say no: {reasons}", hint="nothing was changed")
    if verdict.outcome is Outcome.UNDECIDED:
        raise Undecided(f"the gate could not decide: {reasons}", hint="measure more: --repeats, --requests")


def _row(label: str, arm: ArmSummary) -> list[str]:
    window = arm.window
    return [
        label,
        _told(arm.throughput, "{:.1f}"),
        _told(arm.tpot_ms, "{:.2f} ms"),
        _told(arm.ttft_ms, "{:.1f} ms"),
        _told(arm.ttft.p99 if arm.ttft else None, "{:.1f} ms"),
        _time(arm.e2e, "p50"),
        _time(arm.e2e, "p99"),
        _told(window.tokens_per_step if window else None, "{:.2f}"),
        f"{arm.requests - arm.failed}/{arm.requests}",
    ]


def _time(spread: Spread | None, quantile: str) -> str:
    return _told(getattr(spread, quantile) if spread else None, "{:.0f} ms")


def _told(value: float | None, form: str) -> str:
    """Missing is never shown as zero."""
    return "?" if value is None else form.format(value)
