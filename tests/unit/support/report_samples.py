"""Reports for the tests: a plain one, one with several cells, one in which every text is hostile, one without data."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

from mpctl.report.cost import cost_of
from mpctl.report.prices import shipped_prices
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
)

HOSTILE = (
    "<script>alert(1)</script>\"'&|`*_[x](http://evil.example/a.png)<img src=http://evil.example/b>"
    "]]>$x^2$\x00\x1b\n# x"
)
ARGV = ("vllm", "serve", "--model=m", "--max-model-len", "2048")


def curve(middle, spread=0.5):
    """101 quantiles, rising evenly around ``middle``."""
    return tuple(middle * (1 + spread * (i - 50) / 50) for i in range(101))


def arm(speed=1.0, drafts=None, **more):
    curves = {"ttft": curve(20.0), "tpot": curve(10.0 / speed), "e2e": curve(1000.0 / speed)}
    spread = {name: {"mean": c[50], "p50": c[50], "p90": c[90], "p99": c[99]} for name, c in curves.items()}
    given = {
        "requests": 32,
        "failed": 0,
        "output_tokens": 6124,
        "tokens_per_second": 100.0 * speed,
        "requests_per_second": 1.6 * speed,
        "ttft_ms": spread["ttft"],
        "tpot_ms": spread["tpot"],
        "e2e_ms": spread["e2e"],
        "queue_wait_ms": 0.25,
        "tokens_per_step": 1.0,
        "preemptions": 0.0,
        "quantiles": curves,
    }
    if drafts is not None:
        given |= {"acceptance_by_position": drafts, "drafts": 100.0, "draft_tokens": 500.0, "accepted_tokens": 400.0}
        given |= {"tokens_per_step": 2.4, "acceptance_rate": 0.8, "acceptance_length": 5.0, "coverage": 0.5}
    return ArmFigures(**(given | more))


def rule(outcome="pass", **more):
    given = {
        "name": "throughput",
        "message": "throughput 2.44x the baseline's (at least 1.05x)",
        "limit": "at least 1.05x",
        "unit": "x",
        "figure": Figure(2.44, 2.1, 2.8, 32, 0.95, "bootstrap"),
    }
    return Rule(**(given | more), outcome=outcome)


def cell(traffic="edits", load="1 at once", outcome="promote", speed=2.44, **more):
    verdicts = {"promote": "pass", "reject": "fail", "undecided": "missing"}
    given = {
        "concurrency": 1,
        "temperature": 0.0,
        "reasons": ("throughput 2.44x the baseline's (at least 1.05x)",),
        "speedup": Figure(speed, speed * 0.9, speed * 1.1, 32, 0.95, "bootstrap"),
        "rules": (rule(), rule(verdicts[outcome], name="TPOT")),
        "baseline": arm(),
        "candidate": arm(speed, (0.9, 0.8, 0.7)),
    }
    return CellReport(traffic, load, outcome=outcome, **(given | more))


FACTS = ArmFacts("none", "0.32.0", ARGV, "Qwen/Qwen3-8B", "ab" * 32, "NVIDIA L4", 52000)
SPECULATING = replace(
    FACTS,
    spec="ngram K=5 lookup 2..4",
    argv=(*ARGV, '--speculative-config={"method": "ngram"}'),
    kv_pool_tokens=50000,
)


def report(*cells, **more):
    cells = cells or (cell(),)
    given = {
        "run": "rollout-1",
        "created": "2026-11-21T05:00:12+00:00",
        "who": "ada@host",
        "mpctl_version": "0.3.0",
        "service": "default/demo",
        "outcome": cells[0].outcome,
        "sentence": "ngram K=5 lookup 2..4 makes edits 2.44x faster",
        "reasons": cells[0].reasons,
        "crossovers": (),
        "speedup": cells[0].speedup,
        "baseline": FACTS,
        "candidate": SPECULATING,
        "prompts": (PromptFacts("edits", "cd" * 32, 64, 0),),
        "client": ClientFacts(0.8, 3.1, 200, 8),
        "policy": {"min_speedup": 1.05},
        "cost": cost_of(cells, FACTS, shipped_prices()),
        "commands": ("mpctl rollout --spec ngram", "mpctl report rollout-1"),
        "decomposition": (
            Decomposition(
                "edits, 1 at once",
                "Why 2.44x and not 4.27x",
                "2.44x and not 4.27x: 43% of the steps carried no draft",
                (
                    Part("drafts", 4.27, 4.27, "a step that carries a draft yields 4.27 tokens"),
                    Part("steps without a draft", 0.57, 2.44, "43% of the steps carried no draft"),
                ),
            ),
        ),
    }
    return Report(cells=cells, **(given | more))


def several():
    """Promote, undecided and reject in one report, with shares."""
    return report(
        cell("edits", share=0.5),
        cell("chat", outcome="undecided", speed=1.03, share=0.3),
        cell("chat", "32 at once", outcome="reject", speed=0.6, share=0.2),
    )


def empty():
    """Nothing was measured."""
    nothing = ArmFigures(0, 0, 0)
    bare = cell(
        outcome="undecided",
        speedup=Figure(),
        rules=(rule("missing", figure=Figure(), limit=""),),
        baseline=nothing,
        candidate=nothing,
    )
    blank = ArmFacts("", "", (), "", "", "", None)
    cost = cost_of([bare], blank, shipped_prices())
    return report(
        bare, baseline=blank, candidate=blank, client=None, prompts=(), cost=cost, decomposition=(), policy={}
    )


def hostile(text=HOSTILE):
    """Every text of a report replaced, but the words that are ours."""
    return _replaced(several(), text)


_OURS = {"outcome", "unit"}


def _replaced(value, text):
    if is_dataclass(value):
        changes = {f.name: _replaced(getattr(value, f.name), text) for f in fields(value) if f.name not in _OURS}
        return replace(value, **changes)
    if isinstance(value, dict):
        return {k: _replaced(v, text) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_replaced(v, text) for v in value)
    return text if isinstance(value, str) else value
