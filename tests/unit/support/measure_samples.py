"""Expositions, readings and blocks for the tests of mpctl.experiment, mpctl.gate and mpctl.report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from mpctl.experiment.block import BASELINE, CANDIDATE, Block, Sample, prompt_digest
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Counters, Window
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import assess
from mpctl.gate.rule import RuleResult

EDITS = Cell("edits", 1)
STARTED = "2026-11-21T04:58:46+00:00"
DATA = Path(__file__).parents[2] / "data" / "vllm"


def captured(name: str) -> Counters:
    """A reading of a real engine."""
    return Counters.parse((DATA / f"metrics_{name}.txt").read_text())


def bench() -> dict:
    """What a real bench client wrote."""
    return json.loads((DATA / "bench_q4_c24.json").read_text())


def window(
    generated=100.0, drafts=None, drafted=None, accepted=None, positions=(), **more
) -> Window:
    return Window(
        generation_tokens=generated,
        drafts=drafts,
        draft_tokens=drafted,
        accepted=accepted,
        per_position=positions,
        **{"preemptions": None, "queue_seconds": None, "queue_count": None, **more},
    )


def speculating(generated) -> Window:
    """Every second step carries a draft of five; 2.5 tokens per step."""
    positions = tuple(generated * percent / 100 for percent in (20, 15, 10, 10, 5))
    return window(generated, generated / 5, generated, generated * 3 / 5, positions)


SPECULATING = speculating(100.0)


def block(
    arm, repeat=0, *, texts=("a", "b"), seconds=1.0, ttft=10.0, tpot=2.0, tokens=10, **more
) -> Block:
    """A block of one sample per text; a text of None is a failed request. The engine counted what usage says."""
    names = [prompt_digest(f"{repeat}/{i}") for i in range(len(texts))]
    samples = tuple(
        Sample(None, None, 0, "", "refused", name)
        if text is None
        else Sample(ttft, ttft + tpot * (tokens - 1), tokens, text, prompt=name)
        for text, name in zip(texts, names, strict=True)
    )
    counted = float(sum(s.tokens for s in samples))
    default = speculating(counted) if arm == CANDIDATE else window(counted)
    return Block(
        arm,
        more.get("cell", EDITS),
        repeat,
        STARTED,
        seconds,
        samples,
        more.get("window", default),
        more.get("steps"),
    )


def pair(count=8, *, texts=None, base=None, cand=None) -> list[Block]:
    """One block of each arm with ``count`` prompts; ``base`` and ``cand`` change one of them."""
    same = {"texts": texts or tuple(map(str, range(count)))}
    return [
        block(BASELINE, **{**same, **(base or {})}),
        block(CANDIDATE, **{**same, "seconds": 0.5, **(cand or {})}),
    ]


def rounds_of(
    count, *, faster=(2.0,) * 8, slower_ttft=0.0, jitter=0.0, cell=EDITS, candidate=None
) -> list[Block]:
    """``count`` rounds; the candidate's time per token is the baseline's through ``faster``, one per prompt.

    ``jitter``: how far the even rounds are above, the odd ones below, as a part of ``faster``.
    """
    items = []
    for repeat in range(count):
        base = block(
            BASELINE,
            repeat,
            texts=tuple(map(str, range(len(faster)))),
            seconds=len(faster) * 0.1,
            cell=cell,
        )
        factor = 1 + (jitter if repeat % 2 == 0 else -jitter)
        samples = tuple(
            Sample(
                s.ttft_ms + slower_ttft,
                s.e2e_ms / (x * factor),
                s.tokens,
                s.text_digest,
                prompt=s.prompt,
            )
            for s, x in zip(base.samples, faster, strict=True)
        )
        mean = sum(faster) / len(faster) * factor
        counted = (candidate or speculating)(float(sum(s.tokens for s in samples)))
        items += [
            replace(base, started=f"2026-11-21T05:{repeat:02}:00+00:00"),
            Block(
                CANDIDATE,
                cell,
                repeat,
                f"2026-11-21T05:{repeat:02}:30+00:00",
                base.duration_s / mean,
                samples,
                counted,
            ),
        ]
    return items


QUEUE = {"queue_seconds": 0.001, "queue_count": 10.0, "ttft_seconds": 0.1, "ttft_count": 10.0}
TIMED = {**QUEUE, "tpot_seconds": 0.02, "tpot_count": 10.0}


def timed(blocks) -> list[Block]:
    """The blocks, with times reported by the engines."""
    return [replace(b, window=replace(b.window, **TIMED)) for b in blocks]


def results(analysis: Analysis) -> dict[str, RuleResult]:
    """Each rule's result by the rule's name."""
    return {r.rule: r for r in assess(analysis).rules}
