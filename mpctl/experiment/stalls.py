"""Cut requests that stall, so that a few of them do not decide a mean.

A request stalls when its time is more than STALL times both that of the same prompt on the other arm and the median of
its own arm; it then counts as STALL times the larger. Comparing it with its partner leaves a prompt alone that is slow
on both arms, and comparing it with its arm leaves a large gain alone, which is no stall of the baseline. Both arms are
cut by the same rule, so equal arms stay equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from mpctl.experiment.block import Block, Sample

STALL = 3.0
_CLOCKS = 0.1  # by which the client's mean may differ from the engine's for its stalls to be the engine's

Pair = tuple[Sample, Sample]


def cut_pairs(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Return the pairs with the times of stalled requests cut: the time to the first token, and that of the whole
    request by its tokens."""
    known = [pair for pair in pairs if all(s.ttft_ms and s.e2e_ms and s.tokens for s in pair)]
    if not known:
        return tuple(pairs)
    base, cand = ((median(_first(p[arm]) for p in known), median(_per_token(p[arm]) for p in known)) for arm in (0, 1))
    cut = {id(pair): (_cut(pair[0], pair[1], *base), _cut(pair[1], pair[0], *cand)) for pair in known}
    return tuple(cut.get(id(pair), pair) for pair in pairs)


def cut_block(block: Block, cut: Mapping[int, Sample]) -> Block:
    """Return the block with the samples in ``cut``, by the identity of those they replace.

    Its duration, unless requests arrive at a rate, and the engine's sums follow the client's times. The engine's sums
    stay where its clock does not agree with the client's, which may have received chunks merged.
    """
    samples = tuple(cut.get(id(s), s) for s in block.samples)
    if samples == block.samples:
        return block
    made = replace(block, samples=samples)
    first, later, whole = (_factor(block, made, name) for name in ("ttft_ms", "tpot_ms", "e2e_ms"))
    if not _agrees(block.ttft_ms, block, "ttft_ms"):
        first = 1.0
    if not _agrees(block.window.tpot_ms, block, "tpot_ms"):
        later = 1.0
    window = block.window
    return replace(
        made,
        duration_s=block.duration_s * (whole if block.cell.rate is None else 1.0),
        held_ms=block.held_ms * first,
        window=replace(
            window,
            ttft_seconds=None if window.ttft_seconds is None else window.ttft_seconds * first,
            tpot_seconds=None if window.tpot_seconds is None else window.tpot_seconds * later,
        ),
    )


def _first(sample: Sample) -> float:
    return sample.ttft_ms or 0.0


def _per_token(sample: Sample) -> float:
    return (sample.e2e_ms or 0.0) / max(sample.tokens, 1)


def _cut(sample: Sample, partner: Sample, first: float, per_token: float) -> Sample:
    ttft = min(_first(sample), STALL * max(_first(partner), first))
    whole = sample.tokens * min(_per_token(sample), STALL * max(_per_token(partner), per_token))
    if ttft == sample.ttft_ms and whole >= (sample.e2e_ms or 0.0) * (1 - 1e-9):
        return sample
    return replace(sample, ttft_ms=ttft, e2e_ms=max(whole, ttft))


def _sum(block: Block, name: str) -> float:
    return math.fsum(getattr(s, name) or 0.0 for s in block.completed)


def _factor(block: Block, made: Block, name: str) -> float:
    before = _sum(block, name)
    return _sum(made, name) / before if before > 0 else 1.0


def _agrees(engine: float | None, block: Block, name: str) -> bool:
    known = sum(getattr(s, name) is not None for s in block.completed)
    return bool(engine and known) and abs(_sum(block, name) / known / (engine or 1.0) - 1.0) <= _CLOCKS
