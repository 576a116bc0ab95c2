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
from typing import TYPE_CHECKING

from mpctl.experiment.block import Block, Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

STALL = 3.0
_CLOCKS = 0.1  # by which the client's mean may differ from the engine's for its stalls to be the engine's

Pair = tuple[Sample, Sample]
Cut = Mapping[int, Sample]
"""Samples with shorter times, by the identity of those that they replace."""


def cut_samples(pairs: Sequence[Pair]) -> dict[int, Sample]:
    """Return the requests that stall with their times cut: the time to the first token, and that of the whole request
    by its tokens."""
    import numpy as np

    timed = [pair for pair in pairs if all(s.ttft_ms and s.e2e_ms and s.tokens for s in pair)]
    if not timed:
        return {}
    first = [np.array([pair[arm].ttft_ms for pair in timed], dtype=np.float64) for arm in (0, 1)]
    tokens = [np.array([pair[arm].tokens for pair in timed], dtype=np.float64) for arm in (0, 1)]
    whole = [np.array([pair[arm].e2e_ms for pair in timed], dtype=np.float64) for arm in (0, 1)]
    shortened: dict[int, Sample] = {}
    for arm in (0, 1):
        ttft = _limited(first[arm], first[1 - arm])
        e2e = tokens[arm] * _limited(whole[arm] / tokens[arm], whole[1 - arm] / tokens[1 - arm])
        for place in np.flatnonzero((ttft < first[arm]) | (e2e < whole[arm] * (1 - 1e-9))):
            sample = timed[place][arm]
            times = float(ttft[place]), float(max(e2e[place], ttft[place]))
            shortened[id(sample)] = replace(sample, ttft_ms=times[0], e2e_ms=times[1])
    return shortened


def _limited(times: NDArray[np.float64], partners: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    return np.minimum(times, STALL * np.maximum(partners, np.median(times)))


def cut_block(block: Block, cut: Cut) -> Block:
    """Return the block with the samples in ``cut``.

    Its duration, unless requests arrive at a rate, and the engine's sums follow the client's times. The engine's sums
    stay where its clock does not agree with the client's, which may have received chunks merged.
    """
    samples = tuple(cut.get(id(s), s) for s in block.samples)
    if samples == block.samples:
        return block
    made = replace(block, samples=samples)
    window = block.window
    first = _factor(block, made, "ttft_ms", block.ttft_ms)
    later = _factor(block, made, "tpot_ms", window.tpot_ms)
    whole = _sum(made, "e2e_ms") / _sum(block, "e2e_ms") if block.cell.rate is None else 1.0
    return replace(
        made,
        duration_s=block.duration_s * whole,
        held_ms=block.held_ms * first,
        window=replace(
            window,
            ttft_seconds=None if window.ttft_seconds is None else window.ttft_seconds * first,
            tpot_seconds=None if window.tpot_seconds is None else window.tpot_seconds * later,
        ),
    )


def _sum(block: Block, name: str) -> float:
    return math.fsum(getattr(s, name) or 0.0 for s in block.samples)


def _factor(block: Block, made: Block, name: str, engine: float | None) -> float:
    """By how much the engine's sum shrinks: as much as the client's, where their means agree."""
    before, count = _sum(block, name), sum(getattr(s, name) is not None for s in block.samples)
    if not engine or not before or abs(before / count / engine - 1.0) > _CLOCKS:
        return 1.0
    return _sum(made, name) / before
