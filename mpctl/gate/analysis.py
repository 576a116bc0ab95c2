"""Analyse a measurement cell by cell: both arms condensed, their prompts paired, ratios with confidence intervals.

Everything is computed from raw blocks, so a report made later, or of a part of the blocks, agrees with the gate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mpctl.experiment.arm import BASELINE, CANDIDATE, ArmSummary
from mpctl.experiment.block import Block
from mpctl.experiment.cell import Cell
from mpctl.experiment.pairing import Pairing
from mpctl.experiment.run import ArmConditions, Calibration, PromptSet, Run
from mpctl.experiment.traffic import UsersTraffic
from mpctl.experiment.users import Placement
from mpctl.gate.estimates import Figure, Stages, measure_figures, measure_intervals
from mpctl.gate.overall import cell_shares, overall_gain
from mpctl.gate.policy import Policy
from mpctl.gate.users_traffic import compare_traffic
from mpctl.stats.interval import Interval

_OF_ANSWERS = ("length_ratio", "tokens_per_step", "first_acceptance", "coverage")  # figures that no user's load changes


@dataclass(frozen=True)
class Comparison:
    """Two arms in one cell, over the same prompts.

    ``round_ratios``: throughput, candidate over baseline, per round. ``time_per_token_ratios``: per prompt.
    ``compared`` prompts were answered by both arms, ``different`` of them with another text; ``newly_failed`` were
    answered by the baseline alone (``new_error``: the candidate's error on the first of them), ``newly_answered`` by
    the candidate alone. ``unpaired_failed``: failed requests of the candidate in rounds without the baseline.
    ``textless``: answered by both with tokens but without text, as by a reasoning parser, and not compared.
    ``repeated`` of the ``sent`` prompts of this class of traffic were sent to the same arm before, in any cell.

    ``intervals`` by name. ``length_ratio``: tokens per answer, candidate over baseline. ``throughput_ratio``, candidate
    over baseline, is better above 1. Better below 1, candidate over baseline: ``time_per_token_ratio`` (whole requests,
    geometric mean over prompts), ``tpot``, ``ttft``, ``queue_wait``, ``ttft_p99``, ``tpot_p99``, ``e2e_p99``.
    Differences, candidate minus baseline, in ms: ``ttft_ms``, ``queue_wait_ms``. The candidate's own:
    ``tokens_per_step``, ``first_acceptance``, ``coverage``. A figure that was not measured on both arms is absent.

    ``figures``: the numbers of the rounds from which the intervals are made, of ratios their logarithms.
    ``separate``: one arm was measured as a whole before the other. ``margin``: the share by which the bounds of speed
    were moved outwards.
    ``round_requests`` per arm and ``round_seconds`` of both: the size of a round.
    """

    cell: Cell
    baseline: ArmSummary
    candidate: ArmSummary
    round_ratios: tuple[float, ...]
    compared: int
    different: int
    newly_failed: int
    newly_answered: int = 0
    new_error: str = ""
    unpaired_failed: int = 0
    textless: int = 0
    repeated: int = 0
    sent: int = 0
    time_per_token_ratios: tuple[float, ...] = field(default=(), repr=False)
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict, repr=False)
    separate: bool = False
    margin: float = 0.0
    round_requests: float = 0.0
    round_seconds: float = 0.0

    @classmethod
    def of(
        cls,
        cell: Cell,
        blocks: Sequence[Block],
        policy: Policy | None = None,
        *,
        stages: Stages | None = None,
        fresh: bool = False,
    ) -> Comparison:
        """Pair the cell's blocks of both arms; ``blocks`` may hold those of other cells. The default ``stages`` are
        those of the analysis after the last round. ``fresh``: each block is of an engine that was started for it."""
        policy = policy or Policy()
        mine = [b for b in blocks if b.cell == cell]
        pairing = Pairing.of(mine)
        count = len(pairing.rounds)
        stages = stages or Stages.of(policy, rounds=max(count, 1), planned=max(count, 1))
        slo = {name: getattr(policy, name) for name in ("slo_ttft_ms", "slo_tpot_ms", "slo_e2e_ms")}
        margin = policy.max_drift if pairing.separate else 0.0 if fresh else policy.max_pod_gap
        figures = measure_figures(pairing, stages, margin)
        sent, repeated = _repeated(blocks, cell.traffic)
        return cls(
            cell=cell,
            baseline=ArmSummary.of(BASELINE, mine, **slo),
            candidate=ArmSummary.of(CANDIDATE, mine, **slo),
            round_ratios=tuple(math.exp(v) for v in pairing.throughput_logs()),
            compared=pairing.compared,
            different=pairing.different,
            newly_failed=pairing.newly_failed,
            newly_answered=pairing.newly_answered,
            new_error=pairing.new_error,
            unpaired_failed=pairing.unpaired_failed,
            textless=pairing.textless,
            repeated=repeated,
            sent=sent,
            time_per_token_ratios=tuple(s for r in pairing.rounds for s in r.time_per_token_ratios),
            intervals=measure_intervals(pairing, stages, figures, margin),
            figures=figures,
            separate=pairing.separate,
            margin=margin,
            round_requests=sum(len(r.pairs) for r in pairing.rounds) / count if count else 0.0,
            round_seconds=sum(r.seconds for r in pairing.rounds) / count if count else 0.0,
        )

    @property
    def throughput_ratio(self) -> Interval | None:
        """Tokens per second, candidate over baseline: geometric mean of the rounds' ratios. Above 1 is better."""
        return self.intervals.get("throughput_ratio")

    @property
    def time_per_token_ratio(self) -> Interval | None:
        """Time per output token of whole requests, candidate over baseline, paired by prompt. Below 1 is better."""
        return self.intervals.get("time_per_token_ratio")

    @property
    def rounds(self) -> int:
        """Rounds in which both arms answered."""
        return len(self.round_ratios)


@dataclass(frozen=True)
class Analysis:
    """Every cell of a measurement, sorted, at the interim analysis after ``rounds`` of ``planned`` rounds. ``overall``:
    the time-per-token ratio of all cells together, weighted by their share; None for a single cell."""

    cells: tuple[Comparison, ...]
    policy: Policy
    rounds: int
    planned: int
    arms: Mapping[str, ArmConditions] = field(default_factory=dict)
    prompts: Mapping[str, PromptSet] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    calibration: Calibration | None = None
    overall: Interval | None = None
    placement: Placement = Placement.SERVICE
    traffic: UsersTraffic | None = None

    @classmethod
    def of(
        cls, source: Run | Iterable[Block], policy: Policy, *, rounds: int | None = None, planned: int | None = None
    ) -> Analysis:
        """Analyse a run, or blocks of which nothing else is known.

        ``rounds``: finished rounds, by default those of the blocks; ``planned``: by default those of the run.
        """
        blocks = source.blocks if isinstance(source, Run) else tuple(source)
        rounds = len({b.repeat for b in blocks}) if rounds is None else rounds
        planned = max(rounds, planned or (source.planned if isinstance(source, Run) else 0), 1)
        cells = sorted({b.cell for b in blocks})
        stages = Stages.of(policy, rounds=max(rounds, 1), planned=planned, cells=len(cells))
        known = source if isinstance(source, Run) else None
        shares = known.shares if known else {}
        fresh = known is not None and known.placement is Placement.TURNS
        compared = tuple(Comparison.of(cell, blocks, policy, stages=stages, fresh=fresh) for cell in cells)
        if known is not None and known.placement.users_set_load:
            compared = tuple(_on_users(comparison, known.traffic or UsersTraffic(), policy) for comparison in compared)
        weights = cell_shares([c.cell.traffic for c in compared], shares)
        gains = [c.figures.get("time_per_token_ratio") for c in compared]
        return cls(
            cells=compared,
            overall=overall_gain(gains, weights, stages.lower) if len(compared) > 1 else None,
            policy=policy,
            rounds=rounds,
            planned=planned,
            arms=known.arms if known else {},
            prompts=known.prompts if known else {},
            shares=shares,
            calibration=known.calibration if known else None,
            placement=known.placement if known else Placement.SERVICE,
            traffic=known.traffic if known else None,
        )

    def of_cell(self, cell: Cell) -> Comparison:
        """Return one cell; raises KeyError when it was not measured."""
        for comparison in self.cells:
            if comparison.cell == cell:
                return comparison
        raise KeyError(cell)


def _on_users(comparison: Comparison, traffic: UsersTraffic, policy: Policy) -> Comparison:
    """Return the comparison with the speed that users saw in place of that of prompts, which were sent beside users."""
    intervals = {name: i for name, i in comparison.intervals.items() if name in _OF_ANSWERS}
    figures = {name: f for name, f in comparison.figures.items() if name in _OF_ANSWERS}
    ratio_of_users = compare_traffic(traffic, policy).tpot_ratio
    if ratio_of_users is not None:
        intervals["time_per_token_ratio"] = ratio_of_users
    return replace(comparison, intervals=intervals, figures=figures)


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return part / whole; None where either is missing or whole is zero."""
    return None if part is None or not whole else part / whole


def _repeated(blocks: Sequence[Block], traffic: str) -> tuple[int, int]:
    """Return the prompts of a class sent to an arm and the repeats among them, of the arm with more repeats."""
    most = (0, 0)
    for arm in (BASELINE, CANDIDATE):
        sent = [s.prompt for b in blocks if b.arm == arm and b.cell.traffic == traffic for s in b.samples if s.prompt]
        most = max(most, (len(sent) - len(set(sent)), len(sent)))
    return most[1], most[0]
