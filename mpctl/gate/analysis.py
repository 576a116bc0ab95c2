"""Analyse a measurement cell by cell: both arms condensed, their prompts paired, ratios with confidence intervals.

Everything is computed from raw blocks, so a report made later, or of a part of the blocks, agrees with the gate.

Each bound has an error of its own: of the gain the policy's ``gain``, of other figures that pass its ``guard``, and of
all that reject its ``loss``, divided by the number of cells, because one rejected cell is enough. With several cells
the gain is shown once, for the service, and every cell must be no worse: asking each of eight cells for a gain of its
own promotes a candidate that is 20 % faster everywhere in 4 of 10 measurements. Gate-keeping asks for both without more
error: the gain over all cells at the full level, and in each cell that TPOT, E2E, TTFT and queue wait are within their
limits, each at the full level, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from mpctl.experiment.arm import ArmSummary
from mpctl.experiment.block import BASELINE, CANDIDATE, Block
from mpctl.experiment.cell import Cell
from mpctl.experiment.pairing import Pairing
from mpctl.experiment.run import Burst, Run
from mpctl.experiment.users import Placement, UsersTraffic, below_users_load
from mpctl.gate.policy import Policy
from mpctl.gate.users_traffic import compare_traffic
from mpctl.stats.confidence import (
    Interval,
    Stage,
    Trimmed,
    gap_beyond,
    joined,
    lognormal_mean,
    mean_interval,
    quotient_interval,
    ratio_interval,
    share_interval,
    spent,
    widened,
)

_SMALL = 10.0  # a tenth of the slack is no wait
TRIM = 0.1  # of the rounds at each end, of figures that one request that stalls would decide
SPEED = ("throughput_ratio", "time_per_token_ratio", "tpot", "e2e", "ttft", "queue_wait")
STALL_TAIL = 0.01  # of the bound of the share of stalls, of which a few slow prompts show little
SUMS_LEVEL = 2.0  # times the guards' level, of the bound of the ratio of sums: a second condition of a rule that passed
SETTLED_FROM = 8  # planned rounds from which on the first does not count for speed: an engine may still warm up in it


class ArmOrder(Enum):
    """The lives of both arms' engines, on which depends by how much equal ones may differ."""

    SIDE_BY_SIDE = "side by side"  # both as long as the measurement
    TURNS = "turns"  # started anew for each block, on one GPU
    SEPARATE = "separate"  # one arm as a whole before the other

    def margin(self, policy: Policy) -> float:
        """The share by which equal arms may differ in every round."""
        if self is ArmOrder.TURNS:
            return 0.0
        return policy.max_drift if self is ArmOrder.SEPARATE else policy.max_pod_gap


def error_left(earlier: int) -> float:
    """Return the part of the error that a measurement may spend after so many of the same pair: 1/2, 1/6, 1/12 ... All
    repetitions together have as much as the first, so trying until one decides adds no more than that."""
    return 1.0 / (earlier * (earlier + 1)) if earlier else 1.0


@dataclass(frozen=True)
class Stages:
    """The significance levels of one interim analysis, by the kind of figure."""

    gain: Stage  # the time per token
    higher: Stage  # other figures that are better when they are higher
    lower: Stage  # other figures that are better when they are lower
    both: Stage  # figures of which neither is better
    counting_level: (
        float  # tests that count and reject: the error is divided evenly among all interim analyses
    )
    alone: bool = True  # a single cell

    @classmethod
    def of(
        cls, policy: Policy, *, rounds: int, planned: int, cells: int = 1, earlier: int = 0
    ) -> Stages:
        """Return the stages of the interim analysis after ``rounds`` of ``planned`` rounds, where ``earlier``
        measurements of the same pair did not promote."""
        part = error_left(earlier)
        gain = replace(policy.gain, alpha=policy.gain.alpha * part)
        guard, loss = (
            policy.guard,
            replace(policy.loss, alpha=policy.loss.alpha * part / max(cells, 1)),
        )
        return cls(
            gain=Stage(rounds, planned, below=loss, above=gain),
            higher=Stage(rounds, planned, below=guard, above=loss),
            lower=Stage(rounds, planned, below=loss, above=guard),
            both=Stage(rounds, planned, below=guard, above=guard),
            counting_level=policy.side * part / max(cells, 1) / planned,
            alone=cells <= 1,
        )


@dataclass(frozen=True)
class Figure:
    """A figure with one number per round, and how their mean is estimated."""

    values: tuple[float, ...]  # in order, of ratios their logarithms
    ratio: bool
    stage: Stage
    trim: float = 0.0
    with_stalls: float | None = (
        None  # with every stall and round, and stalls at their bound; None where nothing is cut
    )
    allowance: float = 0.0  # the error, of ratios in logarithms, that no number of rounds shows
    correlated: bool = False  # one arm after the other: rounds resemble neighbours, and the allowance may be a drift
    rounds: tuple[
        int, ...
    ] = ()  # the numbers of the rounds that have a value, where cells are joined by them

    @property
    def interval(self) -> Interval:
        """The mean with its confidence interval."""
        make = ratio_interval if self.ratio else mean_interval
        return self.allowed(make(self.values, self.stage, self.trim, self.correlated))

    def distance(self, value: float, limit: float) -> float:
        """Return how far a value is above a limit, of ratios in logarithms."""
        return math.log(value / limit) if self.ratio and limit > 0 else value - limit

    def allowed(self, interval: Interval) -> Interval:
        """The interval with the allowance: a drift moves both bounds outwards, a constant difference between two
        engines is an error of its own beside that of the rounds."""
        return (widened if self.correlated else joined)(interval, self.allowance, ratio=self.ratio)

    def gap(self, gap: float) -> float:
        """Return how far beyond a limit the mean is as far as rounds can show it."""
        return gap - self.allowance if self.correlated else gap_beyond(gap, self.allowance)

    @property
    def trimmed(self) -> Trimmed:
        """The mean and its spread, of ratios in logarithms."""
        return Trimmed.of(self.values, self.trim, correlated=self.correlated)


def measure_figures(
    pairing: Pairing,
    stages: Stages,
    policy: Policy,
    margin: float,
    burst: Burst | None,
) -> dict[str, Figure]:
    """Return the figures of a cell by the names of :class:`mpctl.gate.analysis.Comparison`.

    ``margin``: the share by which equal arms may differ in every round, by which the bounds of speed move outwards.
    ``burst``: of the class, before the rounds.

    Requests that stall are cut. Means of a block's requests (throughput, TPOT, E2E, TTFT, queue wait) are also trimmed
    over the rounds; times per token are not, which are ratios of prompts.
    """
    steady = steady_rounds(pairing, stages)
    cut = steady.without_stalls()
    every = steady.time_per_token_logs().values()
    mean = math.exp(math.fsum(every) / len(every)) if every else None
    throughput, time = cut.throughput_logs(), cut.time_per_token_logs()
    figures = {
        "throughput_ratio": Figure(
            tuple(throughput.values()), True, stages.higher, TRIM, rounds=tuple(throughput)
        ),
        "time_per_token_ratio": Figure(
            tuple(time.values()), True, stages.gain, with_stalls=mean, rounds=tuple(time)
        ),
        "length_ratio": Figure(tuple(pairing.length_logs()), True, stages.both),
        "tpot": _trimmed_ratio(cut.times("tpot_ms"), steady.times("tpot_ms"), stages),
        "e2e": _whole_requests(cut, steady, stages, burst or Burst()),
    }
    for name in ("tokens_per_step", "first_acceptance"):
        figures[name] = Figure(tuple(pairing.of_windows(name)), False, stages.higher)
    allowances = dict.fromkeys(SPEED, math.log1p(margin))
    for name in ("ttft", "queue_wait"):
        times, raw = cut.times(f"{name}_ms"), steady.times(f"{name}_ms")
        figures[name] = _trimmed_ratio(times, raw, stages)
        waited = math.fsum(base for base, _ in raw)
        allowances[f"{name}_ms"] = margin * waited / max(len(raw), 1)
        differences = tuple(cand - base for base, cand in times)
        mean = _skewed_difference(raw, getattr(policy, f"{name}_slack_ms"), stages.lower)
        figures[f"{name}_ms"] = Figure(differences, False, stages.lower, TRIM, mean)
    measured = {name: figure for name, figure in figures.items() if figure.values}
    if not margin:
        return measured
    return {
        name: replace(figure, allowance=allowances[name], correlated=pairing.separate)
        if name in allowances
        else figure
        for name, figure in measured.items()
    }


def _with_stalls(pairing: Pairing, burst: Burst) -> float | None:
    """The time of the machine per token, candidate over baseline, with every stall, and with as many more of them on
    the candidate as the requests sent so far do not rule out, each as slow as those seen: 5 % of prompts that take ten
    times as long were missed in most measurements by the ratio of the sums. At a rate, whose requests decide how long a
    block takes, the ratio of the sums alone."""
    ratio, slowness = pairing.pooled_throughput_ratio, pairing.stalls()
    every = (*slowness, *burst.stalls)
    if ratio is None or not every or any(r.baseline.cell.rate is not None for r in pairing.rounds):
        return 1.0 / ratio if ratio else None
    count, prompts = len(every), sum(len(r.pairs) for r in pairing.rounds)
    most = (
        share_interval(
            count, prompts + burst.requests, STALL_TAIL * spent(count), level=1 - STALL_TAIL
        ).high
        or 1.0
    )
    observed = 1.0 + math.fsum(times - 1.0 for times in slowness) / prompts
    return (1.0 + most * (math.fsum(every) / count - 1.0)) / observed / ratio


def _skewed_difference(
    times: list[tuple[float, float]], slack_ms: float, stage: Stage
) -> float | None:
    """The upper bound of the candidate's mean less the baseline's. Waits are skewed: where most rounds have none and a
    few a large one, a bootstrap of the rounds seen knows as little of the next large one as their mean does; the tail
    of a lognormal law does."""
    alpha = stage.level_of(stage.above)
    if len(times) < 2 or not alpha:
        return None
    bound = lognormal_mean([cand for _, cand in times], max(slack_ms, 1.0) / _SMALL, alpha)
    return bound - math.fsum(base for base, _ in times) / len(times)


def steady_rounds(pairing: Pairing, stages: Stages) -> Pairing:
    """Return the rounds that count for speed: all but the first, where so many are planned that it can be spared."""
    settled = stages.lower.looks >= SETTLED_FROM and len(pairing.rounds) > 1
    return replace(pairing, rounds=pairing.rounds[1:]) if settled else pairing


def _machine_times(pairing: Pairing, cell: Cell) -> dict[int, tuple[float, float]]:
    busy = cell.concurrency if cell.rate is None else 1
    return {
        number: (base / busy, cand / busy)
        for number, (base, cand) in pairing.request_times().items()
    }


def _trimmed_ratio(
    times: list[tuple[float, float]], raw: list[tuple[float, float]], stages: Stages
) -> Figure:
    base, cand = (math.fsum(pair[arm] for pair in raw) for arm in (0, 1))
    return Figure(tuple(_logs(times)), True, stages.lower, TRIM, cand / base if base else None)


def _whole_requests(cut: Pairing, steady: Pairing, stages: Stages, burst: Burst) -> Figure:
    """The time of a whole request. It passes only with the time of the machine and with the upper bound of the ratio of
    the sums of both arms' times, since a mean of ratios hides stalls, failed requests that take long, and long answers
    that take longer behind short ones that are much faster. Of several cells, whose rounds are few, only the ratio of
    the sums is asked."""
    times, raw = (list(pairing.request_times().values()) for pairing in (cut, steady))
    figure = _trimmed_ratio(times, raw, stages)
    level = stages.lower.level_of(stages.lower.above)
    base, cand = [b for b, _ in times], [c for _, c in times]
    # With one prompt in a round a few short answers decide sooner.
    of_sums = SUMS_LEVEL * level if any(len(r.pairs) > 1 for r in steady.rounds) else level
    sums = quotient_interval(cand, base, of_sums) if level and stages.alone else None
    bounds = (figure.with_stalls, _with_stalls(steady, burst), sums.high if sums else None)
    return replace(figure, with_stalls=max((b for b in bounds if b), default=None))


def _logs(times: list[tuple[float, float]]) -> list[float]:
    """The rounds' logarithms. A round with a mean of 0, whose answers arrived in one chunk, has no ratio; where more
    than a tenth of the rounds have none, the figure has none."""
    logs = [math.log(cand / base) for base, cand in times if base > 0 and cand > 0]
    return logs if len(times) - len(logs) <= TRIM * len(times) else []


def cell_shares(traffic: Sequence[str], shares: Mapping[str, float]) -> list[float]:
    """Return each cell's share of the traffic, given the class of each: a class's share is divided evenly among its
    cells; without shares all classes weigh the same."""
    by_class = {name: shares.get(name, 0.0) for name in set(traffic)}
    if not math.fsum(by_class.values()):
        by_class = dict.fromkeys(by_class, 1.0)
    total = math.fsum(by_class.values())
    return [by_class[name] / total / traffic.count(name) for name in traffic]


def overall_gain(
    figures: Sequence[Figure | None], weights: Sequence[float], stage: Stage
) -> Interval | None:
    """Return the weighted geometric mean of the cells' ratios, round by round; None where the cells do not have the
    same rounds. The widest allowance of a cell holds for all."""
    present = [figure for figure in figures if figure is not None]
    if len(present) != len(figures) or len({figure.rounds for figure in present}) != 1:
        return None
    rounds = zip(*(figure.values for figure in present), strict=True)
    joint = Figure(
        tuple(math.fsum(w * v for w, v in zip(weights, values, strict=True)) for values in rounds),
        True,
        stage,
        allowance=max(figure.allowance for figure in present),
        correlated=any(figure.correlated for figure in present),
    )
    return joint.interval


# Figures that no user's load changes.
_OF_ANSWERS = ("length_ratio", "tokens_per_step", "first_acceptance")


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
    geometric mean over prompts), ``tpot``, ``e2e`` (a whole request), ``ttft``, ``queue_wait``.
    Differences, candidate minus baseline, in ms: ``ttft_ms``, ``queue_wait_ms``. The candidate's own:
    ``tokens_per_step``, ``first_acceptance``. A figure that was not measured on both arms is absent.

    ``figures``: the numbers of the rounds from which the intervals are made, of ratios their logarithms.
    ``order``: how the arms' engines lived, from which follows by how much the bounds of speed were moved outwards.
    ``much_slower``: prompts that took more than 1.5 times as long on the candidate, on the baseline, and all of them.
    ``machine_times``: by round, a request's time over the requests in flight, ms, of both arms, stalls included.
    ``round_requests`` per arm and ``round_seconds`` of both: the size of a round. ``burst``: what was sent before.
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
    order: ArmOrder = ArmOrder.SIDE_BY_SIDE
    round_requests: float = 0.0
    round_seconds: float = 0.0
    burst: Burst = field(default_factory=Burst)
    late_ms: float | None = (
        None  # by which first tokens reach the client later than the candidate's engine says
    )
    miscounted: float | None = (
        None  # share of tokens that usage counts otherwise, of answers with one text or as many ids
    )
    much_slower: tuple[int, int, int] = (0, 0, 0)
    machine_times: Mapping[int, tuple[float, float]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        cell: Cell,
        blocks: Sequence[Block],
        policy: Policy | None = None,
        *,
        stages: Stages | None = None,
        fresh: bool = False,
        joined: bool = False,
        burst: Burst | None = None,
    ) -> Comparison:
        """Pair the cell's blocks of both arms; ``blocks`` may hold those of other cells. The default ``stages`` are
        those of the analysis after the last round. ``fresh``: each block is of an engine that was started for it;
        ``joined``: the arms are of two measurements."""
        policy = policy or Policy()
        mine = [b for b in blocks if b.cell == cell]
        pairing = replace(Pairing.of(mine), joined=joined)
        count = len(pairing.rounds)
        stages = stages or Stages.of(policy, rounds=max(count, 1), planned=max(count, 1))
        order = (
            ArmOrder.SEPARATE
            if pairing.separate
            else ArmOrder.TURNS
            if fresh
            else ArmOrder.SIDE_BY_SIDE
        )
        margin = order.margin(policy)
        figures = measure_figures(pairing, stages, policy, margin, burst)
        sent, repeated = _repeated(blocks, cell.traffic)
        return cls(
            cell=cell,
            baseline=ArmSummary.of(BASELINE, mine),
            candidate=ArmSummary.of(CANDIDATE, mine),
            round_ratios=tuple(math.exp(v) for v in pairing.throughput_logs().values()),
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
            intervals={name: figure.interval for name, figure in figures.items()},
            figures=figures,
            order=order,
            round_requests=sum(len(r.pairs) for r in pairing.rounds) / count if count else 0.0,
            round_seconds=sum(r.seconds for r in pairing.rounds) / count if count else 0.0,
            burst=burst or Burst(),
            late_ms=pairing.late_ms,
            miscounted=pairing.miscounted,
            much_slower=pairing.much_slower,
            machine_times=_machine_times(steady_rounds(pairing, stages), cell),
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
    def failed_alone(self) -> tuple[int, int]:
        """Requests that the candidate alone failed, and that the baseline alone failed, the burst included."""
        burst = self.burst
        return (
            self.newly_failed + burst.newly_failed,
            self.newly_answered + burst.newly_answered,
        )

    @property
    def rounds(self) -> int:
        """Rounds in which both arms answered."""
        return len(self.round_ratios)


@dataclass(frozen=True)
class Analysis:
    """Every cell of the measurement ``run``, sorted, at the interim analysis after ``rounds`` of ``planned`` rounds.
    ``overall``: the time-per-token ratio of all cells together, weighted by their share; None for a single cell."""

    cells: tuple[Comparison, ...]
    policy: Policy
    rounds: int
    planned: int
    run: Run
    overall: Interval | None = None

    @classmethod
    def of(
        cls,
        source: Run | Iterable[Block],
        policy: Policy,
        *,
        rounds: int | None = None,
        planned: int | None = None,
    ) -> Analysis:
        """Analyse a run, or blocks of which nothing else is known.

        ``rounds``: finished rounds, by default those of the blocks; ``planned``: by default those of the run.
        """
        run = (
            source
            if isinstance(source, Run)
            else Run("", "", "", "", {}, {}, {}, None, {}, tuple(source))
        )
        blocks = run.blocks
        rounds = len({b.repeat for b in blocks}) if rounds is None else rounds
        planned = max(rounds, planned or run.planned, 1)
        cells = sorted({b.cell for b in blocks})
        stages = Stages.of(
            policy, rounds=max(rounds, 1), planned=planned, cells=len(cells), earlier=run.earlier
        )
        compared = tuple(
            Comparison.of(
                cell,
                blocks,
                policy,
                stages=stages,
                fresh=run.placement is Placement.TURNS,
                joined=run.joined,
                burst=run.bursts.get(cell.traffic),
            )
            for cell in cells
        )
        if run.placement.users_set_load:
            compared = tuple(
                _on_users(comparison, run.traffic or UsersTraffic(), policy)
                for comparison in compared
            )
        weights = cell_shares([c.cell.traffic for c in compared], run.shares)
        gains = [c.figures.get("time_per_token_ratio") for c in compared]
        return cls(
            cells=compared,
            overall=overall_gain(gains, weights, stages.gain) if len(compared) > 1 else None,
            policy=policy,
            rounds=rounds,
            planned=planned,
            run=run,
        )

    @property
    def in_single_prompts(self) -> bool:
        """True when rounds of one prompt were chosen: no plan of a single class has so few for a closed loop."""
        return [(c.cell.rate, c.round_requests) for c in self.cells] == [(None, 1)]

    @property
    def shared(self) -> bool:
        """True when classes are variants, which share the prompts of a round."""
        return any(known.variant and known.variant.parts > 1 for known in self.run.prompts.values())

    @property
    def most_at_once(self) -> int:
        """Requests in flight at most, of all closed loops; 0 without one."""
        return max((c.cell.concurrency for c in self.cells if c.cell.rate is None), default=0)

    @property
    def users_load_gap(self) -> str:
        """How far the prompts were sent below the load of users, as a sentence; empty where they were not."""
        return below_users_load(self.run.users, self.run.placement, self.most_at_once)

    @property
    def stages(self) -> Stages:
        """The significance levels of this interim analysis."""
        rounds, cells = max(self.rounds, 1), len(self.cells)
        return Stages.of(
            self.policy, rounds=rounds, planned=self.planned, cells=cells, earlier=self.run.earlier
        )

    @property
    def machine_time(self) -> Interval | None:
        """The time that a request takes of the machine, candidate over baseline, over all cells by their shares: the
        ratio of arithmetic means, round by round. A geometric mean over cells hides one that is ten times slower. None
        where the cells do not have the same rounds."""
        cells = self.cells
        if (
            not cells
            or not cells[0].machine_times
            or len({tuple(c.machine_times) for c in cells}) != 1
        ):
            return None
        weights = cell_shares([c.cell.traffic for c in cells], self.run.shares)
        sums = [
            [
                math.fsum(w * c.machine_times[n][arm] for w, c in zip(weights, cells, strict=True))
                for arm in (0, 1)
            ]
            for n in cells[0].machine_times
        ]
        times = [
            c.figures["time_per_token_ratio"] for c in cells if "time_per_token_ratio" in c.figures
        ]
        return Figure(
            tuple(math.log(cand / base) for base, cand in sums),
            True,
            self.stages.gain,
            allowance=max((figure.allowance for figure in times), default=0.0),
            correlated=any(figure.correlated for figure in times),
        ).interval

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


def _repeated(blocks: Sequence[Block], traffic: str) -> tuple[int, int]:
    """Return the prompts of a class sent to an arm and the repeats among them, of the arm with more repeats."""
    most = (0, 0)
    for arm in (BASELINE, CANDIDATE):
        sent = [
            s.prompt
            for b in blocks
            if b.arm == arm and b.cell.traffic == traffic
            for s in b.samples
            if s.prompt
        ]
        most = max(most, (len(sent) - len(set(sent)), len(sent)))
    return most[1], most[0]
