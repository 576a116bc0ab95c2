"""The measured table, baseline beside candidate; the gate's rules; the conditions of both arms side by side."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Sequence

from mpctl import formatting
from mpctl.experiment.arm import ArmSummary, Tail
from mpctl.gate.analysis import Comparison
from mpctl.gate.verdict import Verdict
from mpctl.json_types import Json
from mpctl.report.values import Report

HEADER = (
    "ARM",
    "TOK/S",
    "THROUGHPUT RATIO",
    "TPOT",
    "TTFT",
    "TOKENS/STEP",
    "ACCEPTANCE",
    "COVERAGE",
    "REQUESTS",
)
_MARKS = {"pass": "ok", "fail": "NO", "undecided": "?", "missing": "?", "skip": "-"}


def comparison_rows(comparison: Comparison, *, baseline: str, candidate: str) -> list[list[str]]:
    """Return a header and one row per arm; ``baseline`` and ``candidate`` name the specs."""
    ratio = comparison.throughput_ratio
    bounds = formatting.bounds(ratio)
    shown = formatting.ratio(ratio.value if ratio else None) + (f" ({bounds})" if bounds else "")
    return [
        list(HEADER),
        _row(
            comparison.baseline,
            f"baseline: {baseline}",
            "1.00x" if comparison.baseline.throughput else "?",
        ),
        _row(comparison.candidate, f"candidate: {candidate}", shown),
    ]


def _row(arm: ArmSummary, name: str, ratio: str) -> list[str]:
    window = arm.window
    speculating = window is not None and window.speculating
    return [
        name,
        formatting.number(arm.throughput, 1),
        ratio,
        formatting.milliseconds(arm.tpot_ms),
        formatting.milliseconds(arm.ttft_ms),
        formatting.number(window.tokens_per_step if window else None),
        formatting.share(window.acceptance_rate) if window and speculating else "-",
        formatting.share(window.coverage) if window and speculating else "-",
        f"{arm.requests - arm.failed}/{arm.requests}",
    ]


def tail_text(tail: Tail | None) -> str:
    """A 99th percentile with the load client's own error: ``52 ms ± 9.1 ms``."""
    if tail is None or tail.value_ms is None:
        return formatting.milliseconds(None)
    value = formatting.milliseconds(tail.value_ms)
    return value if tail.error_ms is None else f"{value} ± {formatting.milliseconds(tail.error_ms)}"


def gate_rows(verdict: Verdict) -> list[list[str]]:
    """Return a header and one row per rule; with several cells each has its rows below its name."""
    rows = [["GATE", "", "REASON"]]
    for cell in verdict.cells:
        if len(verdict.cells) > 1:
            rows.append([cell.cell.label, cell.outcome.value, cell.sentence])
        rows += [[r.rule, _MARKS[r.outcome.value], r.message] for r in cell.rules]
    return rows


_STARTED = "Engine started"


def condition_rows(report: Report) -> list[Json]:
    """A row per condition: its name, both values, and whether they are the same."""
    rows: list[Json] = []
    for name, of in (
        ("Speculation", lambda arm: arm.spec),
        ("Engine", lambda arm: arm.engine_version),
        ("Device", lambda arm: arm.device),
        ("Model", lambda arm: arm.model),
        ("Model digest", lambda arm: arm.model_digest),
        ("KV cache, tokens", lambda arm: formatting.count(arm.kv_pool_tokens)),
        (_STARTED, lambda arm: arm.started),
    ):
        base, cand = _known(of(report.baseline)), _known(of(report.candidate))
        same = base == cand or name == _STARTED  # no two engines start at once
        rows.append({"name": name, "baseline": base, "candidate": cand, "same": same})
    return rows


def _known(text: str) -> str:
    return text or "?"


def argument_lines(baseline: Sequence[str], candidate: Sequence[str]) -> Json:
    """The arguments of both arms, a flag and its values to a line; ``new`` marks what the other arm was not given."""
    base_lines, cand_lines = _by_flag(baseline), _by_flag(candidate)
    matcher = difflib.SequenceMatcher(None, base_lines, cand_lines, autojunk=False)
    same_base = {
        i for block in matcher.get_matching_blocks() for i in range(block.a, block.a + block.size)
    }
    same_cand = {
        i for block in matcher.get_matching_blocks() for i in range(block.b, block.b + block.size)
    }
    return {
        "baseline": [
            {"text": text, "new": i not in same_base} for i, text in enumerate(base_lines)
        ],
        "candidate": [
            {"text": text, "new": i not in same_cand} for i, text in enumerate(cand_lines)
        ],
        "differ": base_lines != cand_lines,
    }


def _by_flag(argv: Sequence[str]) -> list[str]:
    lines: list[list[str]] = []
    for argument in argv:
        if argument.startswith("-") or not lines:
            lines.append([argument])
        else:
            lines[-1].append(argument)
    return [shlex.join(line) for line in lines] or ["?"]
