"""What was measured, cell by cell: both arms condensed, their prompts paired, and how sure the ratios are.

Everything here is computed from raw blocks, so a report made later, or of a part of the blocks, agrees with the gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mpctl.measure.arm import BASELINE, CANDIDATE, NO_TEXT, ArmSummary
from mpctl.measure.block import Block
from mpctl.measure.cell import Cell
from mpctl.measure.interval import Interval
from mpctl.measure.policy import Policy
from mpctl.measure.run import ArmConditions, Calibration, PromptSet, Run


@dataclass(frozen=True)
class Comparison:
    """Two arms in one cell, over the same prompts.

    ``throughput_ratios``: candidate over baseline, one per round, so that the reader sees the spread.
    ``compared`` prompts were answered by both arms; ``different`` of them gave another text; ``newly_failed`` were
    answered by the baseline alone, ``newly_answered`` by the candidate alone. ``textless`` were answered by both with
    tokens but without text, as when a reasoning parser keeps it to itself: nothing says whether they are the same, so
    they are not compared. ``repeated`` prompts were sent to the same arm before.

    ``intervals`` by name, each a ratio: ``speedup`` (time per token over a whole request, baseline over candidate,
    geometric mean over prompts) and ``throughput`` (candidate over baseline) are better above 1; ``tpot``, ``ttft``
    and ``queue_wait`` (candidate over baseline) below 1. What was not measured on both arms is not there.
    """

    cell: Cell
    baseline: ArmSummary
    candidate: ArmSummary
    throughput_ratios: tuple[float, ...]
    compared: int
    different: int
    newly_failed: int
    newly_answered: int = 0
    textless: int = 0
    repeated: int = 0
    intervals: Mapping[str, Interval] = field(default_factory=dict)

    @classmethod
    def of(cls, cell: Cell, blocks: Sequence[Block], policy: Policy | None = None) -> Comparison:
        """Pair the cell's blocks of both arms by round and their requests by prompt."""
        mine = [b for b in blocks if b.cell == cell]
        counts = {"compared": 0, "different": 0, "newly_failed": 0, "newly_answered": 0, "textless": 0}
        ratios: list[float] = []
        for base, cand in rounds(mine):
            if base.throughput and cand.throughput:
                ratios.append(cand.throughput / base.throughput)
            for one, two in zip(base.samples, cand.samples, strict=True):
                if one.error or two.error:
                    counts["newly_failed"] += bool(two.error) and not one.error
                    counts["newly_answered"] += bool(one.error) and not two.error
                elif one.text_digest == two.text_digest == NO_TEXT:
                    counts["textless"] += 1
                else:
                    counts["compared"] += 1
                    counts["different"] += one.text_digest != two.text_digest
        return cls(
            cell=cell,
            baseline=ArmSummary.of(BASELINE, mine),
            candidate=ArmSummary.of(CANDIDATE, mine),
            throughput_ratios=tuple(ratios),
            compared=counts["compared"],
            different=counts["different"],
            newly_failed=counts["newly_failed"],
            newly_answered=counts["newly_answered"],
            textless=counts["textless"],
            repeated=_repeated(mine),
        )

    @property
    def speedup(self) -> float | None:
        """Ratio of throughputs over all blocks: above 1 the candidate is faster."""
        return ratio(self.candidate.throughput, self.baseline.throughput)


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

        ``look``: rounds so far, by default as many as there are; ``looks``: rounds planned, by default no more.
        """
        blocks = source.blocks if isinstance(source, Run) else tuple(source)
        seen = len({b.repeat for b in blocks})
        look = seen if look is None else look
        known = source if isinstance(source, Run) else None
        return cls(
            cells=tuple(Comparison.of(cell, blocks, policy) for cell in sorted({b.cell for b in blocks})),
            policy=policy,
            look=look,
            looks=max(look, looks or 0),
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


def rounds(blocks: Sequence[Block]) -> list[tuple[Block, Block]]:
    """The baseline's and the candidate's block of each round that has both, in the order of the rounds."""
    by_key = {(b.arm, b.repeat): b for b in blocks}
    pairs = ((by_key.get((BASELINE, r)), by_key.get((CANDIDATE, r))) for r in sorted({b.repeat for b in blocks}))
    return [(base, cand) for base, cand in pairs if base is not None and cand is not None]


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole, or None where either is missing or whole is zero."""
    return None if part is None or not whole else part / whole


def _repeated(blocks: Sequence[Block]) -> int:
    """Prompts sent to an arm that had seen them before, on the arm where there are more."""
    most = 0
    for arm in {b.arm for b in blocks}:
        sent = [s.prompt for b in blocks if b.arm == arm for s in b.samples if s.prompt]
        most = max(most, len(sent) - len(set(sent)))
    return most
