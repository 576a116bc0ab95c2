"""Runs made of samples with known ratios, as a measurement would leave them."""

from __future__ import annotations

import hashlib
import random

from mpctl.experiment.block import BASELINE, CANDIDATE, Block, Sample
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Window
from mpctl.experiment.run import ArmConditions, Burst, Calibration, PromptSet, Run
from mpctl.gate.policy import Policy
from mpctl.methods import Spec

ARGV = ("--model=m", "--port=4001", "--max-model-len", "2048")
TOKENS = 64


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def window(requests, speculating):
    actual_requests = float(requests * TOKENS)
    times = {"ttft_seconds": requests * 0.02, "ttft_count": float(requests)}
    times |= {"tpot_seconds": requests * 0.01, "tpot_count": float(requests)}
    waits = {"preemptions": 0.0, "queue_seconds": 0.001 * requests, "queue_count": float(requests)}
    if not speculating:
        return Window(
            actual_requests,
            drafts=None,
            draft_tokens=None,
            accepted=None,
            per_position=(),
            **waits,
            **times,
        )
    drafts, accepted = actual_requests / 4, actual_requests / 2
    shares = (accepted / 2, accepted / 4, accepted / 4)
    return Window(
        actual_requests,
        drafts=drafts,
        draft_tokens=3 * drafts,
        accepted=accepted,
        per_position=shares,
        **waits,
        **times,
    )


def block(arm, cell, repeat, speed, *, prompts, error=""):
    noise = random.Random(f"{arm}{cell.key}{repeat}")
    samples = []
    for prompt in prompts:
        ttft = 20.0 * noise.uniform(0.97, 1.03)
        tpot = 10.0 / speed * noise.uniform(0.97, 1.03)
        text = digest(prompt if cell.greedy else f"{arm}{prompt}")
        samples.append(
            Sample(ttft, ttft + tpot * (TOKENS - 1), TOKENS, text, "", digest(prompt)[:12])
        )
    if error:
        samples[0] = Sample(None, None, 0, digest(""), error, samples[0].prompt)
    seconds = sum((s.e2e_ms or 0.0) for s in samples) / 1000.0 / cell.concurrency
    return Block(
        arm=arm,
        cell=cell,
        repeat=repeat,
        started="2026-11-21T05:00:12+00:00",
        duration_s=seconds,
        samples=tuple(samples),
        window=window(len(prompts), arm == CANDIDATE),
        step_ms=(10.0, 11.0, 12.0),
    )


def conditions(spec, argv=ARGV, device="NVIDIA L4"):
    method = Spec(spec.partition(" ")[0])
    return ArmConditions(
        spec, "0.32.0", argv, "Qwen/Qwen3-8B", digest("model"), device, 50000, speculation=method
    )


def make_run(speeds=None, *, rounds=8, requests=8, error="", shares=None, **more):
    """``speeds``: cell -> how many times as fast the candidate generates."""
    speeds = speeds or {Cell("edits", 1): 2.0}
    blocks = []
    for repeat in range(rounds):
        for cell, speed in speeds.items():
            prompts = [f"{cell.key} {repeat} {i}" for i in range(requests)]
            blocks.append(block(BASELINE, cell, repeat, 1.0, prompts=prompts))
            blocks.append(block(CANDIDATE, cell, repeat, speed, prompts=prompts, error=error))
    traffic = {c.traffic for c in speeds}
    fields = {
        "id": "bench-1",
        "created": "2026-11-21T05:00:12+00:00",
        "who": "ada@host",
        "mpctl_version": "0.3.0",
        "arms": {
            BASELINE: conditions("none"),
            CANDIDATE: conditions("ngram K=5", (*ARGV, '--speculative-config={"method": "ngram"}')),
        },
        "prompts": {t: PromptSet(t, digest(t), 64, 0) for t in sorted(traffic)},
        "shares": shares or {},
        "calibration": Calibration(0.8, 3.1, 200, 8),
        "policy": Policy(max_pod_gap=0.0).to_record(),
        "blocks": tuple(blocks),
        "bursts": {t: Burst(requests=60) for t in sorted(traffic)},
    }
    return Run(**(fields | more))
