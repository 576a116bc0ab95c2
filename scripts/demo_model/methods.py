"""Measures every method on the demo's service (scripts/methods-table) and writes scripts/demo_model/methods.md.

Nothing is measured here: each row is one ``mpctl rollout`` behind the default gate, read back from what mpctl itself
recorded. A promoted rollout is taken back at once, and the manifest is compared byte for byte.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).with_suffix(".md")
START, END = "<!-- measured: begin -->", "<!-- measured: end -->"
DEMO = Path("scripts/demo_model")
SETS = ("edits", "fresh")
LOAD = ("--requests", "6", "--repeats", "8", "--concurrency", "1", "--max-tokens", "192")
HEADER = ("Method", "Needs", "Prompts", "Baseline tok/s", "Candidate tok/s", "Throughput ratio", "Tokens per step",
          "Acceptance", "Position 0", "Coverage", "KV pool, tokens", "Verdict")  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A method to measure; ``sets``: the prompts it is measured on; ``service``: the one it is rolled onto."""

    name: str
    needs: str
    options: tuple[str, ...]
    sets: tuple[str, ...] = SETS
    service: str = "demo"


def rows(random_head: Path) -> list[Row]:
    return [
        Row("eagle3", "a trained head", ("--spec", "eagle3", "--draft", str(DEMO / "eagle3"))),
        Row(
            "eagle3, random head",
            "shapes alone",
            ("--spec", "eagle3", "--draft", str(random_head)),
            ("edits",),
        ),
        Row("ngram", "nothing", ("--spec", "ngram")),
        Row(
            "draft_model",
            "a small model",
            ("--spec", "draft_model", "--draft", str(DEMO / "draft")),
        ),
        Row("suffix", "arctic-inference", ("--spec", "suffix")),
        Row(
            "medusa",
            "trained heads",
            (
                "--spec",
                "medusa",
                "--set",
                "num_speculative_tokens=3",
                "--draft",
                str(DEMO / "medusa"),
            ),
        ),
        Row(
            "p-eagle",
            "a trained head",
            (
                "--spec",
                "p-eagle",
                "--set",
                "num_speculative_tokens=3",
                "--draft",
                str(DEMO / "p-eagle"),
            ),
        ),
        Row("mtp", "a layer in the target", ("--spec", "mtp"), service="demo-mtp"),
    ]


def manifest_of(service: str, state: Path) -> Path:
    """The manifest of a service; ``demo-mtp`` is the demo's, on the same model written with an MTP layer."""
    own = ROOT / "manifests" / "demo" / "service.yaml"
    if service == "demo":
        return own
    model, made = state / "model-with-mtp", state / f"{service}.yaml"
    script("one_layer.py", "mtp", "--join", str(DEMO / "mtp"), "--out", str(model))
    text = own.read_text(encoding="utf-8").replace("name: demo\n", f"name: {service}\n")
    made.write_text(
        text.replace("--model=scripts/demo_model/model", f"--model={model}"), encoding="utf-8"
    )
    return made


def script(name: str, *arguments: str) -> None:
    """Run one of the scripts beside this one."""
    command = [sys.executable, str(ROOT / DEMO / name), *arguments]
    subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def mpctl(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mpctl.cli.main", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def must(*arguments: str) -> str:
    done = mpctl(*arguments)
    if done.returncode:
        sys.exit(f"mpctl {' '.join(arguments)} failed with {done.returncode}:\n{done.stderr}")
    return done.stdout


def measure(row: Row, live: Path) -> list[tuple[str, ...]]:
    """One rollout as rows of the table, one for each class of traffic.

    Raises:
        SystemExit: it could not be carried out, or left the service other than it was.
    """
    print(row.name, file=sys.stderr, flush=True)
    before = json.loads(live.read_text(encoding="utf-8"))["text"]
    classes = [word for name in row.sets for word in ("--prompts", name)]
    done = mpctl(
        "rollout", row.service, *row.options, *classes, *LOAD, "--keep-baseline", "-o", "json"
    )
    try:
        status = json.loads(done.stdout)["status"]
    except ValueError:
        sys.exit(f"{row.name} failed with {done.returncode}:\n{done.stderr}")
    print(f"  {status['ending']}: {status['detail'][:300]}", file=sys.stderr, flush=True)
    if status["ending"] == "promoted":
        must("rollback", row.service)
    if json.loads(live.read_text(encoding="utf-8"))["text"] != before:
        sys.exit(f"{row.name}: the service is not byte for byte what it was")
    steps = done_steps(live.parent)
    head = (row.name, row.needs)
    if not status["cells"]:
        return [(*head, "warm-up", *["-"] * 7, pool(steps), ended(status))]
    return [(*head, *figures(cell, steps, status)) for cell in status["cells"]]


def done_steps(service: Path) -> Mapping[str, Mapping[str, Any]]:
    """Results of the last rollout's steps, from the ledger."""
    from mpctl.rollout.ledger import read_ledger
    from mpctl.rollout.operation import operations
    from mpctl.rollout.plan import Kind

    path = service / "ledger.jsonl"
    rollouts = [
        op
        for op in operations(read_ledger(path.read_text(), where=str(path)))
        if op.plan.kind is Kind.ROLLOUT
    ]
    return rollouts[-1].done


def pool(steps: Mapping[str, Mapping[str, Any]]) -> str:
    """The candidate's KV pool and what it is against the baseline's, by the engines' own logs."""
    ready = steps.get("ready", {})
    own, base = ready.get("kv_pool_tokens"), ready.get("baseline_kv_pool_tokens")
    return f"{own:,} ({own / base - 1:+.1%})" if own and base else "-"


def figures(
    cell: dict[str, Any],
    steps: Mapping[str, Mapping[str, Any]],
    status: dict[str, Any],
) -> tuple[str, ...]:
    """The class of traffic, and the columns after it."""
    base, own = cell["baseline"], cell["candidate"]
    first = (own["acceptanceByPosition"] or [None])[0]
    ratio = cell["throughputRatio"]
    return (
        cell["traffic"],
        f"{base['tokensPerSecond']:.0f}",
        f"{own['tokensPerSecond']:.0f}",
        shown(ratio["value"] if ratio else None, "{:.2f}"),
        shown(own["tokensPerStep"], "{:.2f}"),
        shown(own["acceptanceRate"], "{:.1%}"),
        shown(first, "{:.1%}"),
        shown(own["coverage"], "{:.1%}"),
        pool(steps),
        cell["outcome"] or ended(status),
    )


def shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def ended(status: dict[str, Any]) -> str:
    """The ending; a stopped warm-up with its figure."""
    if "does not match its target" in status["detail"]:
        figure = status["detail"].partition("first-position acceptance ")[2].partition(" (")[0]
        return f"stopped as mismatched: {figure}"
    return str(status["ending"])


def table(body: list[tuple[str, ...]]) -> str:
    lines = [HEADER, tuple("---" for _ in HEADER), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def conditions() -> str:
    """Place and time, without naming the machine."""
    from mpctl.local.engine import installed_version

    models = [
        line
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    cores = os.cpu_count()
    text = (
        f"Measured {datetime.now(UTC):%Y-%m-%d} by `scripts/methods-table` with vLLM {installed_version()} on {cores} "
        f"cores ({model}), no GPU; baseline and candidate side by side, `{' '.join(LOAD)}`, the default gate; each "
        "class of traffic is judged by itself."
    )
    return "\n".join(textwrap.wrap(text, 118, break_on_hyphens=False))


def standing(under: str) -> list[tuple[str, ...]]:
    """Rows of the page, where they were measured under the same conditions on the same day; none otherwise."""
    part = PAGE.read_text(encoding="utf-8").partition(START)[2].partition(END)[0]
    if under not in part:
        return []
    cells = [
        tuple(c.strip() for c in line.strip("|").split("|"))
        for line in part.splitlines()
        if line.startswith("|")
    ]
    return cells[2:]


def write(text: str) -> None:
    """Put the text between the page's markers."""
    page = PAGE.read_text(encoding="utf-8")
    head, _, after = page.partition(START)
    _, end_marker, tail = after.partition(END)
    if not end_marker:
        sys.exit(f"{PAGE} has no place for the table: {START} ... {END}")
    PAGE.write_text(f"{head}{START}\n\n{text}\n\n{END}{tail}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure every method on the demo's service.")
    parser.add_argument("--only", action="append", help="a method; repeatable")
    parser.add_argument("--dry-run", action="store_true", help="print the table, write nothing")
    args = parser.parse_args()
    state = Path(os.environ["MPCTL_STATE_DIR"])
    head = state / "eagle3-random"
    script("eagle3.py", "--steps", "0", "--out", str(head))
    serving = ""
    measured: list[tuple[str, ...]] = []
    left_out = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        for row in rows(head):
            if args.only and row.name not in args.only:
                continue
            if row.name == "suffix" and importlib.util.find_spec("arctic_inference") is None:
                left_out.append(
                    "suffix was not measured: arctic-inference is not there (`scripts/setup-suffix`)."
                )
                continue
            if row.service != serving:
                if serving:
                    must("local", "down", serving)
                must("local", "up", "-f", str(manifest_of(row.service, state)))
                serving = row.service
            measured += measure(row, state / "local" / "default" / serving / "desired.json")
    finally:  # stopped half-way, it keeps what was measured
        old = [
            line for line in standing(conditions()) if line[0] not in {new[0] for new in measured}
        ]
        names = [row.name for row in rows(head)]
        measured = sorted(measured + old, key=lambda line: names.index(line[0]))
        missing = [name for name in names if name not in {line[0] for line in measured}]
        left_out += [
            f"{name} was not measured." for name in missing if name != "suffix" or not left_out
        ]
        text = "\n\n".join([conditions(), table(measured), *left_out])
        print(text)
        if measured and not args.dry_run:
            write(text)


if __name__ == "__main__":
    main()
