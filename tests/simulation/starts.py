"""Another start of a candidate that was measured, on simulated machines of known noise."""

from __future__ import annotations

import math
from dataclasses import replace

from mpctl.experiment.block import BASELINE, CANDIDATE, Block
from mpctl.gate.policy import Policy
from mpctl.gate.second_start import FEWEST_ROUNDS, StartGap, judge_start
from tests.simulation.measurements import Truth, rounds

PROMPTS = 96  # of the default plan


def compared(
    truth: Truth, seed: int, *, planned: int = 0, machine: float = 1.0, paired: bool = False
) -> StartGap:
    """As the step looks after each round. ``planned``: measured rounds that count, by default as many as the default
    plan has; ``machine``: factor of everything since then; ``paired``: a retained baseline answers again, too."""
    planned, policy = planned or math.ceil(PROMPTS / truth.prompts), Policy()
    both = list(rounds(truth, planned + 1, seed))
    measured = [replace(block, arm=CANDIDATE) for block, _ in both[1:]]
    served = [_slower(block, machine) for _, block in both]
    if paired:
        again = list(rounds(replace(truth, tpot=machine), planned + 1, seed + 1_000))
        measured += [block for block, _ in again[1:]]
        served += [replace(block, arm=BASELINE) for _, block in again]
    for look in range(FEWEST_ROUNDS, planned + 1):
        gap = judge_start(measured, [b for b in served if b.repeat <= look], planned, policy)
        if gap.slow or gap.close:
            break
    return gap


def _slower(block: Block, factor: float) -> Block:
    samples = [
        replace(s, ttft_ms=s.ttft_ms * factor, e2e_ms=s.e2e_ms * factor) for s in block.samples
    ]
    return replace(block, samples=tuple(samples))
