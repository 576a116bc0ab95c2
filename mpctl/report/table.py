"""The measured table: baseline beside candidate, and the gate's rules."""

from __future__ import annotations

from collections.abc import Callable

from mpctl.experiment.arm import ArmSummary
from mpctl.gate.analysis import Comparison, ratio
from mpctl.gate.assess import Verdict

HEADER = ("ARM", "TOK/S", "SPEEDUP", "TPOT", "TTFT", "TOKENS/STEP", "ACCEPTANCE", "COVERAGE", "REQUESTS")
_MARKS = {"pass": "ok", "fail": "NO", "undecided": "?", "missing": "?", "skip": "-"}


def comparison_rows(comparison: Comparison, *, baseline: str, candidate: str) -> list[list[str]]:
    """Header and one row per arm; ``baseline`` and ``candidate`` name the speculation of each."""
    speedup = ratio(comparison.candidate.throughput, comparison.baseline.throughput)
    spread = ""
    if len(comparison.throughput_ratios) > 1:
        spread = f" ({min(comparison.throughput_ratios):.2f}-{max(comparison.throughput_ratios):.2f})"
    return [
        list(HEADER),
        _row(comparison.baseline, f"baseline: {baseline}", show(comparison.baseline.throughput, lambda _: "1.00x")),
        _row(comparison.candidate, f"candidate: {candidate}", show(speedup, lambda v: f"{v:.2f}x") + spread),
    ]


def _row(arm: ArmSummary, name: str, speedup: str) -> list[str]:
    window = arm.window
    speculating = window is not None and window.speculating
    return [
        name,
        show(arm.throughput, lambda v: f"{v:.1f}"),
        speedup,
        show(arm.tpot_ms, lambda v: f"{v:.2f} ms"),
        show(arm.ttft_ms, lambda v: f"{v:.1f} ms"),
        show(window.tokens_per_step if window else None, lambda v: f"{v:.2f}"),
        show(window.acceptance_rate, lambda v: f"{v:.1%}") if window and speculating else "-",
        show(window.coverage, lambda v: f"{v:.1%}") if window and speculating else "-",
        f"{arm.requests - arm.failed}/{arm.requests}",
    ]


def gate_rows(verdict: Verdict) -> list[list[str]]:
    """Header and one row per rule; with several traffic conditions each of them has its rows."""
    rows = [["GATE", "", "REASON"]]
    for cell in verdict.cells:
        if len(verdict.cells) > 1:
            rows.append([cell.cell.label, cell.outcome.value, cell.sentence])
        rows += [[r.rule, _MARKS[r.outcome.value], r.message] for r in cell.rules]
    return rows


def show(value: float | None, form: Callable[[float], str]) -> str:
    """A figure, or ``?`` where there is none: missing is never shown as zero."""
    return "?" if value is None else form(value)
