"""Compares what ``mpctl plan`` predicts with what ``mpctl bench`` measures (scripts/predicted-table).

One measurement per method holds concurrency 1, 8 and 32. L1 is a plan from its acceptance at concurrency 1 alone; L2
also knows its pair at 32, so that 1 and 8 show what a pair at the peak is worth.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mpctl.app.bench.recorded import read_run, write_run
from mpctl.experiment.block import CANDIDATE
from mpctl.experiment.counters import Window
from mpctl.experiment.run import Run
from mpctl.lab.plan.evidence import acceptance_in
from scripts.demo_model.methods import DEMO, mpctl, must

PAGE = Path(__file__).with_suffix(".md")
START, END = "<!-- predicted: begin -->", "<!-- predicted: end -->"
CONCURRENCY = (1, 8, 32)
PEAK = max(CONCURRENCY)
METHODS = {
    "ngram": (),
    "eagle3": ("--draft", str(DEMO / "eagle3")),
    "draft_model": ("--draft", str(DEMO / "draft")),
}
LOAD = ("--measurement", str(Path(__file__).with_name("measurement.yaml")))
HEADER = (
    "Method",
    "Concurrency",
    "Ratio",
    "Measured",
    "Predicted at L1",
    "Error",
    "Predicted at L2",
    "Error",
)


def measured(method: str, directory: Path) -> Run:
    """Measurements of a method by bench, stored in the directory."""
    file = directory / f"{method}.json.gz"
    if not file.exists():
        if not json.loads(must("status", "-o", "json"))["items"]:
            must("local", "up", "-f", "manifests/demo/service.yaml")
        spec = ("--spec", method, *METHODS[method])
        load = ("--concurrency", ",".join(map(str, CONCURRENCY)), *LOAD)
        must("bench", "demo", *spec, *load, "--run", str(file))
    return read_run(str(file))


def at(run: Run, concurrency: int) -> Run:
    return replace(run, blocks=tuple(b for b in run.blocks if b.cell.concurrency == concurrency))


def plan(method: str, run: Run, *evidence: str) -> dict[int, dict[str, Any]]:
    """The plan's answers by concurrency, from the acceptance at concurrency 1 and further evidence."""
    window = Window.total(tuple(b.window for b in at(run, 1).blocks if b.arm == CANDIDATE))
    known = acceptance_in(window, method)
    if known is None:
        sys.exit(f"{method}: the candidate drafted nothing")
    rates = ",".join(f"{rate:.4f}" for rate in known.rates)
    answers = [b for b in run.blocks if b.arm == CANDIDATE]
    tokens = sum(b.output_tokens for b in answers) / sum(len(b.samples) for b in answers)
    options = (
        "--gpu",
        "CPU",
        "--acceptance",
        rates,
        "--k",
        str(len(known.rates)),
        "--output-tokens",
        f"{tokens:.0f}",
    )
    coverage = ("--coverage", f"{known.coverage:.4f}") if known.coverage < 1 else ()
    traffic = ("--concurrency", ",".join(map(str, CONCURRENCY)), "--prompts", "edits")
    spec = ("--spec", method, *METHODS[method])
    (method_plan,) = json.loads(
        must("plan", "demo", *spec, *options, *coverage, *traffic, *evidence, "-o", "json")
    )["methods"]
    if "answers" not in method_plan:
        sys.exit(f"{method}: {method_plan['refused']}")
    return {int(answer["concurrency"]): answer for answer in method_plan["answers"]}


def rows_of(method: str, directory: Path) -> list[tuple[str, ...]]:
    run = measured(method, directory)
    peak = directory / f"{method}-{PEAK}.json.gz"
    write_run(str(peak), at(run, PEAK))
    first, second = plan(method, run), plan(method, run, "--run", str(peak))
    cells = {
        comparison["concurrency"]: comparison
        for comparison in compared(directory / f"{method}.json.gz")
    }
    rows = []
    for concurrency in CONCURRENCY:
        for name, key in (
            ("throughput", "throughputRatio"),
            ("time per token", "timePerTokenRatio"),
        ):
            true = cells[concurrency][key]["value"]
            shown = [
                cell for level in (first, second) for cell in _shown(level[concurrency][key], true)
            ]
            rows.append((method, str(concurrency), name, f"{true:.2f}", *shown))
    return rows


def _shown(ratio: dict[str, float], true: float) -> tuple[str, str]:
    return (
        f"{ratio['value']:.2f} [{ratio['low']:.2f}-{ratio['high']:.2f}]",
        f"{abs(ratio['value'] / true - 1):.0%}",
    )


def compared(file: Path) -> list[dict[str, Any]]:
    done = mpctl("bench", "compare", str(file), "-o", "json")
    cells: list[dict[str, Any]] = json.loads(done.stdout)["status"]["cells"]
    return cells


def text_of(rows: list[tuple[str, ...]], device: str) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (HEADER, tuple("---" for _ in HEADER), *rows)]
    when = datetime.now(UTC).date().isoformat()
    return f"Measured on {when}, {device}, prompts `edits`.\n\n" + "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Compare predictions with measurements on the demo's service."
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--only", action="append", choices=tuple(METHODS), help="a method; repeatable"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the table, write nothing")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    chosen = [method for method in METHODS if not args.only or method in args.only]
    for method in chosen:
        measured(method, args.directory)
    if not json.loads(must("status", "-o", "json"))["items"]:
        must("local", "up", "-f", "manifests/demo/service.yaml")
    rows = [row for method in chosen for row in rows_of(method, args.directory)]
    device = read_run(str(args.directory / f"{chosen[0]}.json.gz")).arms[CANDIDATE].device
    text = text_of(rows, device)
    print(text)
    if not args.dry_run:
        head, _, after = PAGE.read_text(encoding="utf-8").partition(START)
        PAGE.write_text(
            f"{head}{START}\n\n{text}\n\n{END}{after.partition(END)[2]}", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
