"""Synthetic measurements with known ground truth, used to estimate the gate's error rates.

A prompt has a factor of its own on both arms, a request noise of its own, and a block noise that all its requests
share, each lognormal. The engine's clocks agree with the client's, as they do where nothing merges chunks. On top of
that the machine may have noise of its own in time: a rhythm, a drift, slow states, or noise that lives on requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpctl.experiment.block import BASELINE, CANDIDATE, Block, Sample
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Window
from mpctl.experiment.workload import round_order

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TPOT_MS, TOKENS = 10.0, 64


@dataclass(frozen=True)
class Truth:
    """``tpot``: time per token, candidate over baseline; the ``*_sigma`` are standard deviations of logarithms: of
    prompts, of requests and of blocks. ``prompts`` per block; ``accepted``: share of tokens from drafts, 0..1, None
    for a candidate that does not speculate; ``ttft_ms``: the typical time to first token, on both arms.

    The machine, in the order in which blocks run: ``period`` in blocks and ``amplitude`` of a rhythm; ``drift`` per
    block; ``slow``: factor of slow states that last four blocks and return after twelve; ``tau``: correlation in
    requests of a noise of 0.3. ``pareto``: exponent of request noise with heavy tails, in place of the lognormal;
    ``stalls``: share of requests that stall; ``cold``: factor of the candidate's first block; ``waking``: factor of
    the first block of each round, of whichever arm begins; ``hit``: share of the prompts that take ``hit_factor`` times
    as long on the candidate alone; ``settling``: rounds over which ``cold`` decays, 0 for the first block alone.
    ``longer``: tokens of an answer, candidate over baseline; ``length_sigma``: of both arms' answers."""

    tpot: float = 1.0
    prompt_sigma: float = 0.35
    request_sigma: float = 0.35
    block_sigma: float = 0.05
    prompts: int = 8
    concurrency: int = 1
    accepted: float | None = None
    ttft_ms: float = 100.0
    period: float = 0.0
    amplitude: float = 0.0
    drift: float = 0.0
    slow: float = 1.0
    tau: float = 0.0
    pareto: float = 0.0
    stalls: float = 0.0
    cold: float = 1.0
    waking: float = 1.0
    hit: float = 0.0
    hit_factor: float = 1.0
    settling: float = 0.0
    longer: float = 1.0
    length_sigma: float = 0.0
    traffic: str = "simulated"


def rounds(truth: Truth, count: int, seed: int) -> Iterator[tuple[Block, Block]]:
    """Both arms' blocks of ``count`` rounds; the same seed gives the same rounds."""
    import numpy as np

    rng = np.random.default_rng(seed)
    machine = _machine(truth, 2 * count, np.random.default_rng(seed + 1_000_000))
    cell = Cell(truth.traffic, truth.concurrency)
    for repeat in range(count):
        prompt = np.exp(rng.normal(0.0, truth.prompt_sigma, truth.prompts))
        order = [
            arm for _, arm in round_order((BASELINE, CANDIDATE), (cell,), repeat, seed=str(seed))
        ]
        blocks = []
        for arm, factor in ((BASELINE, 1.0), (CANDIDATE, truth.tpot)):
            shared = (
                np.exp(rng.normal(0.0, truth.block_sigma)) * machine[2 * repeat + order.index(arm)]
            )
            noise = _requests(truth, rng)
            if arm == CANDIDATE:
                shared = shared * cold_factor(truth, repeat)
            ttft = truth.ttft_ms * shared * noise[0]
            tpot = TPOT_MS * factor * shared * prompt * noise[1]
            if arm == CANDIDATE and truth.hit:
                tpot = tpot * np.where(rng.random(truth.prompts) < truth.hit, truth.hit_factor, 1.0)
            blocks.append(
                _block(truth, arm, repeat, ttft.tolist(), tpot.tolist(), _lengths(truth, arm, rng))
            )
        yield blocks[0], blocks[1]


def cold_factor(truth: Truth, repeat: int) -> float:
    """By how much the candidate is slower in a round because it still warms up."""
    if not truth.settling:
        return 1.0 if repeat else truth.cold
    return 1.0 + (truth.cold - 1.0) * math.exp(-repeat / truth.settling)


def _lengths(truth: Truth, arm: str, rng: np.random.Generator) -> list[int]:
    mean = TOKENS * (truth.longer if arm == CANDIDATE else 1.0)
    factors = (
        rng.lognormal(0.0, truth.length_sigma, truth.prompts)
        if truth.length_sigma
        else [1.0] * truth.prompts
    )
    return [max(round(mean * factor), 2) for factor in factors]


def _requests(truth: Truth, rng: np.random.Generator) -> NDArray[np.float64]:
    """Noise of each request's first token and of its later ones."""
    import numpy as np

    if truth.pareto:
        return np.asarray(
            (rng.pareto(truth.pareto, (2, truth.prompts)) + 1) / 2 ** (1 / truth.pareto)
        )
    noise = np.exp(rng.normal(0.0, truth.request_sigma, (2, truth.prompts)))
    if truth.stalls:
        stalled = rng.random(truth.prompts) < truth.stalls
        noise[1] *= np.where(stalled, 1 + 9 * rng.pareto(1.2, truth.prompts), 1.0)
    return np.asarray(noise)


def _machine(truth: Truth, blocks: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """The machine's slowness at each request of each block, in the order in which they run."""
    import numpy as np

    logs = np.zeros((blocks, truth.prompts))
    place = np.arange(blocks)
    if truth.period:
        phase = rng.uniform(0.0, 2 * np.pi)
        logs += truth.amplitude * np.sin(2 * np.pi * place / truth.period + phase)[:, None]
    logs += truth.drift * place[:, None]
    logs[::2] += np.log(truth.waking)
    if truth.slow != 1.0:
        state = False
        for block in place:
            state = rng.random() > 1 / 4 if state else rng.random() < 1 / 12
            logs[block] += np.log(truth.slow) * state
    if truth.tau:
        keep, value = np.exp(-1 / truth.tau), rng.normal()
        for at in np.ndindex(*logs.shape):
            logs[at] += 0.3 * value
            value = keep * value + np.sqrt(1 - keep * keep) * rng.normal()
    return np.asarray(np.exp(logs))


def _block(
    truth: Truth, arm: str, repeat: int, ttft: list[float], tpot: list[float], lengths: list[int]
) -> Block:
    samples = tuple(
        Sample(t, t + (n - 1) * p, n, "text", prompt=f"{repeat}-{i}")
        for i, (t, p, n) in enumerate(zip(ttft, tpot, lengths, strict=True))
    )
    count = float(len(samples))
    tokens = float(sum(lengths))
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
    cell = Cell(truth.traffic, truth.concurrency)
    return Block(arm, cell, repeat, "2026-01-01T00:00:00+00:00", seconds, samples, window)
