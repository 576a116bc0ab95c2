"""Whether another start of the candidate is as fast as the one that was measured. Pure: blocks in, a judgement out.

Starts of the same engine differ: 1.25x to 3.2x until a restart in five public reports. Both answer the same prompts,
and what a retained baseline changed meanwhile, the machine did. No bound comes nearer to its estimate than
``max_pod_gap``, as with any two engines of one manifest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpctl import formatting
from mpctl.experiment.block import BASELINE, CANDIDATE, Block
from mpctl.experiment.pairing import Pairing
from mpctl.gate.policy import Policy
from mpctl.stats.confidence import Interval, Stage, joined, ratio_interval

FEWEST_ROUNDS = 3  # that count; fewer show no spread
_ERROR = 0.01  # of naming an equal start, over all looks


@dataclass(frozen=True)
class StartGap:
    """``ratio``: time per output token of what serves over that of the measured candidate, with the pods' margin.

    ``slow``: slower than its twin by more than the margin; ``close``: by the rounds alone it is less. ``paired``: what
    a retained baseline changed is taken out.
    """

    ratio: Interval
    slow: bool
    close: bool
    paired: bool

    def describe(self) -> str:
        """The gap in one sentence without its full stop."""
        shown = (
            "slower than"
            if self.slow
            else "as fast as"
            if self.close
            else "not shown to be slower than"
        )
        beside = ", beside the retained baseline" if self.paired else ""
        return (
            f"the engine that serves, another start, is {shown} the candidate that was measured{beside}: "
            f"{formatting.estimate(self.ratio)} of its time per token"
        )


def judge_start(
    measured: Sequence[Block], served: Sequence[Block], planned: int, policy: Policy
) -> StartGap:
    """Compare blocks of the engines that serve with those of the same rounds that were measured.

    ``planned``: rounds, of which this is one look.

    Raises:
        ValueError: no prompt was answered twice.
    """
    logs, drift = (_logs(measured, served, arm) for arm in (CANDIDATE, BASELINE))
    values = [log - drift.get(number, 0.0) for number, log in sorted(logs.items())]
    if not values:
        raise ValueError("no prompt was answered twice")
    stage = Stage(len(values), planned, _ERROR, _ERROR)
    by_rounds = ratio_interval(values, stage)
    ratio = joined(by_rounds, math.log1p(policy.max_pod_gap), ratio=True)
    return StartGap(ratio, ratio.above(1.0), by_rounds.below(1.0 + policy.max_pod_gap), bool(drift))


def _logs(measured: Sequence[Block], served: Sequence[Block], arm: str) -> dict[int, float]:
    """Return by round the mean logarithm of an arm's time per output token, served over measured."""
    sides = {BASELINE: measured, CANDIDATE: served}
    blocks = [replace(b, arm=side) for side, every in sides.items() for b in every if b.arm == arm]
    return Pairing.of(blocks).without_stalls().time_per_token_logs()
