"""The configurations of a search, and their trials on real engines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mpctl.app.bench.arms import open_side_by_side
from mpctl.app.bench.measure import measurement_of, open_records, policy_of
from mpctl.app.bench_requests import BenchRequest
from mpctl.app.requests import SpeculationRequest
from mpctl.app.session.base import Session
from mpctl.errors import Cancelled, Conflict, MpctlError, NotPermitted
from mpctl.experiment.run import Run
from mpctl.experiment.workload import Workload
from mpctl.gate.analysis import Analysis, Comparison, Stages, cell_shares, overall_gain
from mpctl.gate.assess import judge_run
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.json_types import Json
from mpctl.lab.payoff.grid import Grid
from mpctl.lab.payoff.schedule import batch_ranges, honours_schedule, schedule_setting
from mpctl.lab.plan.result import MethodPlan, ServicePlan
from mpctl.lab.tune.halving import Standing
from mpctl.methods import METHODS
from mpctl.platform.file_store import FileStore
from mpctl.rollout.context import Context
from mpctl.rollout.measurement_records import MeasurementRecords
from mpctl.stats.confidence import Interval

MOST = 16
_NEAR_BEST = 0.9  # of the best predicted ratio: the other K are not worth an engine start
_MOST_KS = 4  # of one method
_UNPREDICTED_KS = (3, 5, 2)
_WINDOWS = ((1, 3), (3, 6))  # of a lookup besides its default
_K, _SCHEDULE, _LOW, _HIGH = (
    "num_speculative_tokens",
    "num_speculative_tokens_per_batch_size",
    "prompt_lookup_min",
    "prompt_lookup_max",
)


@dataclass(frozen=True)
class Configuration:
    """A method with settings as ``--set`` takes them. ``predicted``: geometric mean of its throughput ratios."""

    method: str
    settings: tuple[str, ...] = ()
    predicted: float | None = None

    @property
    def name(self) -> str:
        """``ngram num_speculative_tokens=3``."""
        return " ".join((self.method, *self.settings))

    @property
    def k(self) -> int | None:
        """K where the configuration sets one for every batch size."""
        values = dict(setting.partition("=")[::2] for setting in self.settings)
        return int(values[_K]) if _K in values and _SCHEDULE not in values else None


def starting_field(plan: ServicePlan, fixed: frozenset[str]) -> tuple[Configuration, ...]:
    """Return the configurations to try, the best predicted first, those without a prediction last. ``fixed``: settings
    that the user chose, which are not varied."""
    configurations = [
        configuration
        for method in plan.methods
        if not method.refused
        for configuration in _of_method(method, fixed)
    ]
    return tuple(
        sorted(configurations, key=lambda configuration: -(configuration.predicted or 0.0))
    )[:MOST]


def _of_method(plan: MethodPlan, fixed: frozenset[str]) -> Iterator[Configuration]:
    method, row = plan.method, METHODS[plan.method]
    if row.k_from == "method" or _K in fixed:
        yield Configuration(method, (), max(_scores(plan.grid).values(), default=None))
        return
    scores = _scores(plan.grid)
    default = plan.change.spec.k if plan.change else None
    ks = _best(scores) or tuple(dict.fromkeys((*((default,) if default else ()), *_UNPREDICTED_KS)))
    for k in ks:
        yield Configuration(method, (f"{_K}={k}",), scores.get(k))
    if "lookup" in row.key_groups and not fixed & {_LOW, _HIGH}:
        for low, high in _WINDOWS:
            settings = (f"{_K}={ks[0]}", f"{_LOW}={low}", f"{_HIGH}={high}")
            yield Configuration(method, settings, scores.get(ks[0]))
    if (
        plan.grid is not None
        and _SCHEDULE not in fixed
        and honours_schedule(plan.grid.entries[0].cell.engine)
    ):
        best = {choice.concurrency: choice.k for choice in plan.grid.choices}
        scheduled = schedule(method, best)
        if scheduled is not None:
            ratios = [choice.entry.prediction.throughput.value for choice in plan.grid.choices]
            yield Configuration(method, scheduled, _mean(ratios))


def schedule(method: str, best: Mapping[float, int]) -> tuple[str, ...] | None:
    """Settings of a schedule from the best K by concurrency; None where one K serves all."""
    ranges = batch_ranges(best)
    return (f"{_K}={max(best.values())}", schedule_setting(ranges)) if len(ranges) > 1 else None


def _scores(grid: Grid | None) -> dict[int, float]:
    """The geometric mean of the throughput ratio over all concurrencies, by K."""
    entries = grid.entries if grid is not None else ()
    ks = sorted({entry.cell.k for entry in entries})
    return {k: _mean([e.prediction.throughput.value for e in entries if e.cell.k == k]) for k in ks}


def _best(scores: Mapping[int, float]) -> tuple[int, ...]:
    best = max(scores.values(), default=0.0)
    near = [k for k, score in scores.items() if score >= _NEAR_BEST * best]
    return tuple(sorted(near, key=lambda k: -scores[k])[:_MOST_KS])


def _mean(ratios: list[float]) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


_NEVER_THE_CONFIGURATION = (Cancelled, Conflict, NotPermitted)  # errors that end the whole search
_MOST_LEVEL = 0.999


@dataclass(frozen=True)
class Tried:
    """A configuration as far as it was measured; ``failed``: why it could not be."""

    configuration: Configuration
    rounds: int = 0
    run: Run | None = None
    analysis: Analysis | None = None
    verdict: Verdict | None = None
    failed: str = ""

    @property
    def gain(self) -> Interval | None:
        """Throughput, candidate over baseline, over all cells by their shares; of an open loop, in which throughput
        follows the arrivals, the inverse of the time per token."""
        return None if self.analysis is None else gain_of(self.analysis)

    @property
    def outcome(self) -> str:
        """``promote``, ``reject``, ``undecided`` as the gate has it, or ``failed``."""
        return "failed" if self.failed or self.verdict is None else self.verdict.outcome.value


def gain_of(analysis: Analysis, cells: Sequence[Comparison] | None = None) -> Interval | None:
    """The gain over some cells of a measurement, by default over all."""
    chosen = analysis.cells if cells is None else cells
    stages = Stages.of(
        analysis.policy, rounds=max(analysis.rounds, 1), planned=analysis.planned, cells=len(chosen)
    )
    figures = []
    for comparison in chosen:
        figure = comparison.figures.get(
            "throughput_ratio" if comparison.cell.rate is None else "time_per_token_ratio"
        )
        if figure is not None and comparison.cell.rate is not None:
            figure = replace(figure, values=tuple(-value for value in figure.values))
        figures.append(figure)
    weights = cell_shares([comparison.cell.traffic for comparison in chosen], analysis.run.shares)
    return overall_gain(figures, weights, stages.higher)


@dataclass
class Trials:
    """Measures ``configurations``; called by the search. ``run_id`` names the records."""

    session: Session
    context: Context
    request: BenchRequest
    speculation: SpeculationRequest
    workload: Workload
    store: FileStore
    run_id: str
    configurations: list[Configuration]
    known: dict[int, Tried] = field(default_factory=dict)

    def __call__(self, index: int, rounds: int) -> Standing:
        """Bring one configuration to ``rounds`` rounds.

        Raises:
            Conflict: another command changes the service.
            Cancelled: Ctrl-C was pressed.
        """
        chosen, id_, record = (
            self.configurations[index],
            f"{self.run_id}-{index}",
            f"trial-{rounds}",
        )
        done = self.store.load(id_, record)
        if done is None:
            self.session.console.step("try", f"{chosen.name}, to {rounds} rounds")
            done = self._measured(chosen, id_, rounds)
            self.store.save(id_, record, done)
        failed = str(done["failed"])
        self.known[index] = tried = self._read(chosen, id_, rounds, failed)
        self.session.console.note(describe(tried))
        gain = tried.gain
        return Standing(
            rounds=rounds,
            value=math.log(gain.value) if gain else -math.inf,
            seconds=float(done["seconds"]),
            start_s=float(done["start_s"]),
            out=gain is None or tried.outcome in ("failed", Outcome.REJECT.value),
        )

    def _measured(self, chosen: Configuration, id_: str, rounds: int) -> Json:
        clock = self.context.clock
        began = ready = clock.now()
        failed = ""
        try:
            arms = open_side_by_side(
                self.session, self.context, self.request, speculation_of(chosen, self.speculation)
            )
            records = self._records(id_, policy_of(self.request, speculates=arms.speculates))
            measurement = measurement_of(records, arms, self.session.console)
            with arms.running():
                ready = clock.now()
                measurement.measure_rounds(rounds)
        except _NEVER_THE_CONFIGURATION:
            raise
        except MpctlError as error:
            failed = error.message
        self._share_calibration(id_)
        start_s = (ready - began).total_seconds()
        return {
            "seconds": (clock.now() - began).total_seconds(),
            "start_s": start_s,
            "failed": failed,
        }

    def _share_calibration(self, id_: str) -> None:
        """Copy the calibration of the load client, which is the same for all, to every configuration."""
        calibration = self.store.load(id_, "calibration")
        for index in range(len(self.configurations)):
            other = f"{self.run_id}-{index}"
            if calibration is not None and self.store.load(other, "calibration") is None:
                self.store.save(other, "calibration", calibration)

    def _records(self, id_: str, policy: Policy) -> MeasurementRecords:
        return open_records(self.store, id_, self.workload, policy)

    def _read(self, chosen: Configuration, id_: str, rounds: int, failed: str) -> Tried:
        if failed:
            return Tried(chosen, failed=failed)
        policy = policy_of(self.request, speculates=chosen.method != "none")
        run = self._records(id_, policy).run(rounds)
        analysis, verdict = judge_run(run, policy, rounds=rounds, planned=self.workload.repeats)
        return Tried(chosen, rounds, run, analysis, verdict)


def speculation_of(chosen: Configuration, asked: SpeculationRequest) -> SpeculationRequest:
    """The change of a configuration."""
    if chosen.method == "none":
        return SpeculationRequest("none", accepted=asked.accepted)
    return replace(asked, method=chosen.method, settings=(*asked.settings, *chosen.settings))


def describe(tried: Tried) -> str:
    """A line: the configuration with its gain, or why it has none."""
    if tried.failed:
        return f"{tried.configuration.name}: {tried.failed}"
    gain = tried.gain
    ratio = "no figure" if gain is None else f"throughput ratio {gain.value:.2f}"
    return f"{tried.configuration.name}: {ratio} after {tried.rounds} rounds"


def judged_among(tried: Tried, count: int) -> tuple[Run, Verdict]:
    """The best of ``count`` with the gate's verdict: its error is divided by them, as the best of many looks better
    than it is (Bonferroni). The run carries the stricter policy."""
    assert tried.run is not None and tried.analysis is not None
    policy = tried.analysis.policy
    level = min(1 - (1 - policy.level) / max(count, 1), max(_MOST_LEVEL, policy.level))
    run = replace(tried.run, policy={**policy.to_record(), "level": level})
    return run, judge_run(run, rounds=tried.rounds, planned=tried.analysis.planned)[1]


def best_by_concurrency(tried: Mapping[int, Tried], method: str) -> dict[float, int]:
    """The best K of a method at each concurrency measured, 0 where none gains; of configurations with one K."""
    best: dict[float, tuple[float, int]] = {}
    for trial in tried.values():
        if (
            trial.configuration.method != method
            or trial.configuration.k is None
            or trial.analysis is None
        ):
            continue
        for concurrency in {
            c.cell.concurrency for c in trial.analysis.cells if c.cell.rate is None
        }:
            cells = [
                c
                for c in trial.analysis.cells
                if c.cell.rate is None and c.cell.concurrency == concurrency
            ]
            gain = gain_of(trial.analysis, cells)
            if gain is not None and gain.value > best.get(float(concurrency), (1.0, 0))[0]:
                best[float(concurrency)] = (gain.value, trial.configuration.k)
            best.setdefault(float(concurrency), (1.0, 0))
    return {concurrency: k for concurrency, (_, k) in best.items()}
