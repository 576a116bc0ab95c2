"""Reports for the tests: a plain one, one with several cells, one in which every text is hostile, one without data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum

from mpctl.experiment.arm import ArmSummary, Spread
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Window
from mpctl.experiment.run import ArmConditions, Calibration, PromptSet
from mpctl.gate.analysis import Comparison
from mpctl.gate.decomposition import Decomposition, Part
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome, RuleResult
from mpctl.gate.verdict import CellVerdict, Verdict
from mpctl.report.values import CellReport, Report
from mpctl.stats.confidence import Interval

HOSTILE = (
    "<script>alert(1)</script>\"'&|`*_[x](http://evil.example/a.png)<img src=http://evil.example/b>"
    "]]>$x^2$\x00\x1b\n# x"
)
ARGV = ("vllm", "serve", "--model=m", "--max-model-len", "2048")


def curve(middle, spread=0.5):
    """101 quantiles, rising evenly around ``middle``."""
    return tuple(middle * (1 + spread * (i - 50) / 50) for i in range(101))


def arm(
    name="baseline", speed=1.0, drafts=(), *, tokens=6124, requests=32, seconds=None, timed=True
):
    """``speed``: times 100 tokens per second."""
    number = 200.0
    off = {"drafts": None, "draft_tokens": None, "accepted": None, "per_position": ()}
    on = {
        "drafts": 100.0,
        "draft_tokens": 500.0,
        "accepted": 80.0,
        "per_position": tuple(100 * d for d in drafts),
    }
    times = {
        "ttft_seconds": 0.02,
        "ttft_count": 1.0,
        "tpot_seconds": 0.01 / speed,
        "tpot_count": 1.0,
    }
    waits = {"preemptions": 0.0, "queue_seconds": 0.00025, "queue_count": 1.0}
    spreads = [
        Spread(v, v, v * 1.4, v * 1.49, requests) for v in (20.0, 10.0 / speed, 1000.0 / speed)
    ]
    return ArmSummary(
        arm=name,
        blocks=4,
        requests=requests,
        failed=0,
        output_tokens=tokens,
        seconds=tokens / 100.0 / speed if seconds is None else seconds,
        ttft=spreads[0] if timed else None,
        tpot=spreads[1] if timed else None,
        e2e=spreads[2] if timed else None,
        steps=None,
        window=Window(number, **(on if drafts else off), **times, **waits) if timed else None,
    )


NOTHING = ArmSummary("baseline", 0, 0, 0, 0, 0.0, None, None, None, None, None)


def interval(value, low=None, high=None, level=0.95):
    return Interval(value, low, high, 32, "rounds", level)


def rule(outcome="pass", **more):
    given = {
        "rule": "E2E",
        "message": "E2E 0.41x (at most 1.05x)",
        "value": 0.41,
        "limit": 1.05,
        "unit": "x",
        "interval": interval(0.41, 0.36, 0.48),
        "n": 32,
    }
    return RuleResult(Outcome(outcome), **(given | more))


def decomposition():
    return Decomposition(
        2.44,
        4.27,
        (
            Part("drafts", 4.27, 4.27, "a step that carries a draft yields 4.27 tokens"),
            Part("steps without a draft", 0.57, 2.44, "43% of the steps carried no draft"),
        ),
    )


def cell(traffic="edits", concurrency=1, outcome="promote", speed=2.44, **more):
    verdicts = {"promote": "pass", "reject": "fail", "undecided": "missing"}
    rules = more.get("rules", (rule(), rule(verdicts[outcome], rule="TPOT")))
    actual_cell = Cell(traffic, concurrency)
    base = more.get("baseline", arm())
    cand = more.get("candidate", arm("candidate", speed, (0.9, 0.8, 0.7)))
    ratio = more.get("ratio", interval(speed, speed * 0.9, speed * 1.1))
    comparison = Comparison(
        actual_cell,
        base,
        cand,
        (speed,),
        32,
        0,
        0,
        intervals={"throughput_ratio": ratio} if ratio else {},
    )
    verdict = CellVerdict(actual_cell, more.get("share") or 1.0, Outcome(outcome), rules)
    times = {"ttft": 20.0, "tpot": 10.0, "e2e": 1000.0}
    curves = {
        "baseline": {name: curve(v) for name, v in times.items()},
        "candidate": {
            name: curve(v / (1 if name == "ttft" else speed)) for name, v in times.items()
        },
    }
    return CellReport(
        comparison,
        verdict,
        more.get("share"),
        more.get("curves", curves),
        more.get("decomposition", decomposition()),
    )


FACTS = ArmConditions("none", "0.32.0", ARGV, "Qwen/Qwen3-8B", "ab" * 32, "NVIDIA L4", 52000)
SPECULATING = replace(
    FACTS,
    spec="ngram K=5 lookup 2..4",
    argv=(*ARGV, '--speculative-config={"method": "ngram"}'),
    kv_pool_tokens=50000,
)


def report(*cells, **more):
    cells = cells or (cell(),)
    verdict = Verdict(cells[0].outcome, tuple(c.verdict for c in cells), "promote for edits")
    given = {
        "run": "rollout-1",
        "created": "2026-11-21T05:00:12+00:00",
        "who": "ada@host",
        "mpctl_version": "0.3.0",
        "service": "default/demo",
        "verdict": verdict,
        "sentence": "ngram K=5 lookup 2..4 pays for edits: throughput ratio 2.44x",
        "reasons": cells[0].verdict.reasons,
        "crossovers": (),
        "baseline": FACTS,
        "candidate": SPECULATING,
        "prompts": (PromptSet("edits", "cd" * 32, 64, 0),),
        "client": Calibration(0.8, 3.1, 200, 8),
        "policy": Policy(max_pod_gap=0.0),
    }
    return Report(cells=cells, **(given | more))


def several():
    """Promote, undecided and reject in one report, with shares."""
    return report(
        cell("edits", share=0.5),
        cell("chat", outcome="undecided", speed=1.03, share=0.3, decomposition=None),
        cell("chat", 32, outcome="reject", speed=0.6, share=0.2, decomposition=None),
    )


def empty():
    """Nothing was measured."""
    bare = cell(
        outcome="undecided",
        ratio=None,
        rules=(rule("missing", value=None, interval=None, limit=None, n=0),),
        baseline=NOTHING,
        candidate=replace(NOTHING, arm="candidate"),
        curves={},
        decomposition=None,
    )
    blank = ArmConditions("", "", (), "", "", "", None)
    return report(bare, baseline=blank, candidate=blank, client=None, prompts=())


def hostile(text=HOSTILE):
    """Every text of a report replaced, but the words that are ours."""
    return _replaced(several(), text)


_OURS = {"unit", "cell", "policy"}


def _replaced(value, text):
    if isinstance(value, Enum):
        return value
    if is_dataclass(value):
        changes = {
            f.name: _replaced(getattr(value, f.name), text)
            for f in fields(value)
            if f.name not in _OURS
        }
        return replace(value, **changes)
    if isinstance(value, Mapping):
        return {k: _replaced(v, text) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_replaced(v, text) for v in value)
    return text if isinstance(value, str) else value
