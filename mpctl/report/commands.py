"""The commands that repeat a run: both engines, the load, the report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from importlib import resources

from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.run import Run
from mpctl.experiment.workload import WARM_UP
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.manifest import redacted
from mpctl.report.values import Deciding
from mpctl.stats.sequential import MOST_LOOKS

_PORTS = {BASELINE: 8000, CANDIDATE: 8001}
_OWN = ("--port", "--host", "--uds", "--api-key")  # of the place where it was measured


def reproduction(run: Run) -> tuple[str, ...]:
    """Return lines for a shell, with comments."""
    lines = []
    arms = [arm for arm in _PORTS if arm in run.arms]
    for arm in arms:
        facts = run.arms[arm]
        lines.append(f"# {arm}: vLLM {facts.engine_version or '?'} on {facts.device or '?'}")
        lines.append(shlex.join(["vllm", "serve", *_elsewhere(redacted(facts.argv)), f"--port={_PORTS[arm]}"]))
    if run.blocks and arms:
        lines.append("# the same load; digests of the prompt sets are above")
        lines.append(shlex.join(_bench(run, arms)))
        lines.append(shlex.join(["mpctl", "report", f"{run.id}.json.gz", "-o", "html", "--output-file", "report.html"]))
    return tuple(line.replace("\n", " ") for line in lines)


def deciding(run: Run, verdict: Verdict, command: str = "") -> Deciding | None:
    """Return the measurement that would probably decide an undecided one: ``command`` with more rounds, by default that
    of :func:`reproduction`; None where the verdict stands or no number of rounds may decide."""
    repeats = verdict.repeats
    if verdict.outcome is not Outcome.UNDECIDED or repeats is None or repeats > MOST_LOOKS:
        return None
    arms = [arm for arm in _PORTS if arm in run.arms]
    return Deciding(repeats, command or shlex.join(_bench(run, arms, repeats)), _lacking(run, repeats))


def _lacking(run: Run, repeats: int) -> tuple[str, ...]:
    return tuple(
        f"{name} takes {count} distinct prompts and has {run.prompts[name].count}: add some with --prompts {name}=FILE"
        for name, count in _asked(run, repeats).items()
        if name in run.prompts and run.prompts[name].count < count
    )


def _elsewhere(argv: Iterable[str]) -> list[str]:
    """Return the engine's arguments without those of the machine it ran on."""
    arguments: list[str] = []
    own = False
    for word in argv:
        if word.startswith("-"):
            own = word.partition("=")[0] in _OWN
        if not own:
            arguments.append(word)
    return arguments


def _bench(run: Run, arms: list[str], repeats: int | None = None) -> list[str]:
    cells = run.cells
    closed = sorted({c.concurrency for c in cells if c.rate is None})
    rates = sorted({c.rate for c in cells if c.rate is not None})
    counts = [len(b.samples) for b in run.blocks]
    words = ["mpctl", "bench"]
    for arm in arms:
        words += ["--url" if arm == arms[0] else "--candidate-url", f"http://127.0.0.1:{_PORTS[arm]}"]
    for traffic in dict.fromkeys(c.traffic for c in cells):
        words += ["--prompts", _prompts(traffic, run.shares.get(traffic))]
    if closed:
        words += ["--concurrency", _list(closed)]
    if rates:
        words += ["--rate", _list(rates)]
    words += ["--temperature", _list(sorted({c.temperature for c in cells}))]
    planned = run.planned or len({b.repeat for b in run.blocks})  # which prompts a cell gets depends on those planned
    words += ["--repeats", str(repeats or planned), "--requests", str(min(counts))]
    if run.max_tokens:
        words += ["--max-tokens", str(run.max_tokens)]
    if any(name in run.prompts and run.prompts[name].count < n for name, n in _asked(run, planned).items()):
        words.append("--reuse-prompts")
    if run.calibration is None:
        words.append("--no-calibrate")
    return words if repeats else [*words, "--run", f"{run.id}.json.gz"]


def _asked(run: Run, repeats: int) -> dict[str, int]:
    """Return the distinct prompts of each class that so many rounds take."""
    asked: dict[str, int] = {}
    for cell in run.cells:
        size = max(len(b.samples) for b in run.of_cell(cell))
        asked[cell.traffic] = asked.get(cell.traffic, WARM_UP) + repeats * size
    return asked


def _prompts(traffic: str, share: float | None) -> str:
    built_in = resources.files("mpctl.experiment").joinpath("prompts", f"{traffic}.jsonl").is_file()
    source = traffic if built_in else f"{traffic}={traffic}.jsonl"
    return source if share is None else f"{source}:{share:g}"


def _list(numbers: Iterable[float]) -> str:
    return ",".join(f"{n:g}" for n in numbers)
