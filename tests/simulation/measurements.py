"""Synthetic measurements with known ground truth, used to estimate the gate's error rates.

A prompt has a factor of its own on both arms, a request noise of its own, and a block noise that all its requests
share, each lognormal. The engine's clocks agree with the client's, as they do where nothing merges chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mpctl.experiment.arm import BASELINE, CANDIDATE
from mpctl.experiment.block import Block, Sample
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Window

TPOT_MS, TOKENS = 10.0, 64


@dataclass(frozen=True)
class Truth:
    """``tpot``: time per token, candidate over baseline; the ``*_sigma`` are standard deviations of logarithms: of
    prompts, of requests and of blocks. ``prompts`` per block; ``accepted``: share of tokens from drafts, 0..1, None
    for a candidate that does not speculate; ``ttft_ms``: the typical time to first token, on both arms."""

    tpot: float = 1.0
    prompt_sigma: float = 0.35
    request_sigma: float = 0.35
    block_sigma: float = 0.05
    prompts: int = 8
    concurrency: int = 1
    accepted: float | None = None
    ttft_ms: float = 100.0


def rounds(truth: Truth, count: int, seed: int) -> Iterator[tuple[Block, Block]]:
    """Both arms' blocks of ``count`` rounds; the same seed gives the same rounds."""
    import numpy as np

    rng = np.random.default_rng(seed)
    for repeat in range(count):
        prompt = np.exp(rng.normal(0.0, truth.prompt_sigma, truth.prompts))
        made = []
        for arm, factor in ((BASELINE, 1.0), (CANDIDATE, truth.tpot)):
            shared = float(np.exp(rng.normal(0.0, truth.block_sigma)))
            noise = np.exp(rng.normal(0.0, truth.request_sigma, (2, truth.prompts)))
            ttft = truth.ttft_ms * shared * noise[0]
            tpot = TPOT_MS * factor * shared * prompt * noise[1]
            made.append(_block(truth, arm, repeat, ttft.tolist(), tpot.tolist()))
        yield made[0], made[1]


def _block(truth: Truth, arm: str, repeat: int, ttft: list[float], tpot: list[float]) -> Block:
    later = TOKENS - 1
    samples = tuple(
        Sample(t, t + later * p, TOKENS, "text", prompt=f"{repeat}-{i}")
        for i, (t, p) in enumerate(zip(ttft, tpot, strict=True))
    )
    count = float(len(samples))
    tokens = count * TOKENS
    accepted = None if truth.accepted is None or arm == BASELINE else truth.accepted * tokens
    steps = None if accepted is None else tokens - accepted
    seconds = sum(s.e2e_ms or 0.0 for s in samples) / 1000.0 / truth.concurrency
    window = Window(
        generation_tokens=tokens,
        preemptions=0.0,
        queue_seconds=0.0,
        queue_count=count,
        drafts=steps,
        draft_tokens=None if steps is None or accepted is None else max(5 * steps, accepted),
        accepted=accepted,
        per_position=() if accepted is None else (accepted,),
        ttft_seconds=sum(ttft) / 1000.0,
        ttft_count=count,
        tpot_seconds=sum(tpot) / 1000.0,
        tpot_count=count,
    )
    cell = Cell("simulated", truth.concurrency)
    return Block(arm, cell, repeat, "2026-01-01T00:00:00+00:00", seconds, samples, window)
