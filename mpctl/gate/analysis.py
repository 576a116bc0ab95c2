"""What was measured, cell by cell: both arms condensed, their prompts paired, and how sure the ratios are.

Everything here is computed from raw blocks, so a report made later, or of a part of the blocks, agrees with the gate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mpctl.experiment.arm import BASELINE, CANDIDATE, ArmSummary
from mpctl.experiment.block import Block
from mpctl.experiment.cell import Cell
from mpctl.experiment.pairing import Pairing
from mpctl.experiment.run import ArmConditions, Calibration, PromptSet, Run
from mpctl.gate.estimates import Stages, measure_intervals
from mpctl.gate.policy import Policy
from mpctl.stats.interval import Interval


@dataclass(frozen=True)
class Comparison:
    """Two arms in one cell, over the same prompts.

    ``throughput_ratios``: candidate over baseline, one per round, so that the reader sees the spread; ``speedups``: one
    per prompt. ``compared`` prompts were answered by both arms; ``different`` of them gave another text;
    ``newly_failed`` were answered by the baseline alone (``new_error`` is the candidate's error on the first of them),
    ``newly_answered`` by the candidate alone. ``unpaired_failed``: requests the candidate failed in rounds that the
    baseline has not. ``textless`` were answered by both with tokens but without text, as when a reasoning parser keeps
    it to itself: nothing says whether they are the same, so they are not compared. ``repeated`` of the ``sent`` prompts
    of this class of traffic were sent to the same arm before, in this cell or another.

    ``intervals`` by name. Ratios: ``speedup`` (time per token over a whole request, baseline over candidate, geometric
    mean over prompts) and ``throughput`` (candidate over baseline) are better above 1; ``tpot``, ``ttft``,
    ``queue_wait``, ``ttft_p99``, ``tpot_p99`` and ``e2e_p99`` (candidate over baseline) below 1. Differences, candidate
    minus baseline, in ms: ``ttft_ms``, ``queue_wait_ms``. The candidate's own: ``tokens_per_step``,
    ``first_acceptance``, ``coverage``. What was not measured on both arms is not there.

    ``spreads``: the standard deviation of one round, in the unit of the interval, of a logarithm for ratios.
    ``round_requests`` and ``round_seconds``: what a round takes, per arm and for both.
    """

    cell: Cell
    baseline: ArmSummary
    candidate: ArmSummary
    throughput_ratios: tuple[float, ...]
    compared: int
    different: int
    newly_failed: int
    newly_answered: int = 0
    new_error: str = ""
    unpaired_failed: int = 0
    textless: int = 0
    repeated: int = 0
    sent: int = 0
    speedups: tuple[float, ...] = field(default=(), repr=False)
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    spreads: Mapping[str, float] = field(default_factory=dict)
    round_requests: float = 0.0
    round_seconds: float = 0.0

    @classmethod
    def of(
        cls, cell: Cell, blocks: Sequence[Block], policy: Policy | None = None, *, stages: Stages | None = None
    ) -> Comparison:
        """Pair the cell's blocks of both arms; ``blocks`` may hold those of other cells, ``stages`` says how sure the
        intervals are, by default those of one look after the last round."""
        policy = policy or Policy()
        mine = [b for b in blocks if b.cell == cell]
        pairing = Pairing.of(mine)
        count = len(pairing.rounds)
        stages = stages or Stages.of(policy, look=max(count, 1), looks=max(count, 1))
        slo = {name: getattr(policy, name) for name in ("slo_ttft_ms", "slo_tpot_ms", "slo_e2e_ms")}
        intervals, spreads = measure_intervals(pairing, stages)
        sent, repeated = _repeated(blocks, cell.traffic)
        return cls(
            cell=cell,
            baseline=ArmSummary.of(BASELINE, mine, **slo),
            candidate=ArmSummary.of(CANDIDATE, mine, **slo),
            throughput_ratios=tuple(math.exp(v) for v in pairing.throughput_logs()),
            compared=pairing.compared,
            different=pairing.different,
            newly_failed=pairing.newly_failed,
            newly_answered=pairing.newly_answered,
            new_error=pairing.new_error,
            unpaired_failed=pairing.unpaired_failed,
            textless=pairing.textless,
            repeated=repeated,
            sent=sent,
            speedups=tuple(s for r in pairing.rounds for s in r.speedups),
            intervals=intervals,
            spreads=spreads,
            round_requests=sum(len(r.pairs) for r in pairing.rounds) / count if count else 0.0,
            round_seconds=sum(r.seconds for r in pairing.rounds) / count if count else 0.0,
        )

    @property
    def speedup(self) -> float | None:
        """Ratio of throughputs over all blocks: above 1 the candidate is faster."""
        return ratio(self.candidate.throughput, self.baseline.throughput)

    @property
    def rounds(self) -> int:
        """Rounds in which both arms answered."""
        return len(self.throughput_ratios)


@dataclass(frozen=True)
class Analysis:
    """Every cell of a measurement, sorted; ``look``: how many rounds were judged so far, of ``looks`` planned."""

    cells: tuple[Comparison, ...]
    policy: Policy
    look: int
    looks: int
    arms: Mapping[str, ArmConditions] = field(default_factory=dict)
    prompts: Mapping[str, PromptSet] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    calibration: Calibration | None = None

    @classmethod
    def of(
        cls, source: Run | Iterable[Block], policy: Policy, *, look: int | None = None, looks: int | None = None
    ) -> Analysis:
        """Analyse a run, or blocks of which nothing else is known.

        ``look``: rounds so far, by default as many as there are; ``looks``: rounds planned, by default those of the
        run, or no more.
        """
        blocks = source.blocks if isinstance(source, Run) else tuple(source)
        seen = len({b.repeat for b in blocks})
        look = seen if look is None else look
        looks = max(look, looks or (source.planned if isinstance(source, Run) else 0), 1)
        cells = sorted({b.cell for b in blocks})
        stages = Stages.of(policy, look=max(look, 1), looks=looks, cells=len(cells))
        known = source if isinstance(source, Run) else None
        return cls(
            cells=tuple(Comparison.of(cell, blocks, policy, stages=stages) for cell in cells),
            policy=policy,
            look=look,
            looks=looks,
            arms=known.arms if known else {},
            prompts=known.prompts if known else {},
            shares=known.shares if known else {},
            calibration=known.calibration if known else None,
        )

    def of_cell(self, cell: Cell) -> Comparison:
        """One cell; raises KeyError when it was not measured."""
        for comparison in self.cells:
            if comparison.cell == cell:
                return comparison
        raise KeyError(cell)


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole, or None where either is missing or whole is zero."""
    return None if part is None or not whole else part / whole


def _repeated(blocks: Sequence[Block], traffic: str) -> tuple[int, int]:
    """Prompts of a class sent to an arm, and how many of them it had seen before; of the arm where those are more."""
    most = (0, 0)
    for arm in (BASELINE, CANDIDATE):
        sent = [s.prompt for b in blocks if b.arm == arm and b.cell.traffic == traffic for s in b.samples if s.prompt]
        most = max(most, (len(sent) - len(set(sent)), len(sent)))
    return most[1], most[0]
