"""Measure arms round by round. A finished block is never sent again; an interim analysis follows each round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mpctl import formatting
from mpctl.errors import MpctlError
from mpctl.experiment.answer_sets import OFF, QUICK
from mpctl.experiment.block import BASELINE, CANDIDATE, Block, BlockError
from mpctl.experiment.calibration import describe, saturation
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError
from mpctl.experiment.round_answers import RoundAnswers
from mpctl.experiment.users import Placement
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import LEAST_CHANCE, answers_decided, is_futile
from mpctl.gate.rule import Outcome
from mpctl.rollout.arm_engines import ArmEngines
from mpctl.rollout.burst import large_gain, send_bursts
from mpctl.rollout.measurement_records import (
    ANSWERS,
    CALIBRATION,
    ROUND_ANSWERS,
    MeasurementRecords,
    block_name,
)
from mpctl.rollout.operation import StepResult
from mpctl.rollout.ports import RoundProgress
from mpctl.rollout.round_comparison import BASELINE_LEFT, RoundComparison
from mpctl.stats.sequential import FIRST_LOOK

_BOTH = (BASELINE, CANDIDATE)
_ALL = "all rounds are measured"


@dataclass(frozen=True)
class MeasuredRounds(StepResult):
    """Rounds and blocks that were measured, and why the measurement ended."""

    rounds: int
    blocks: int
    ended: str


@dataclass(frozen=True)
class Measurement:
    """The rounds of a measurement."""

    engines: ArmEngines
    compares: bool = True  # False for one arm that nothing is compared with
    answers: RoundAnswers = field(default_factory=RoundAnswers)
    fidelity: str = QUICK  # how closely the answers of the rounds are compared

    @property
    def records(self) -> MeasurementRecords:
        """The records that the rounds are written to."""
        return self.engines.records

    def measure(self, arms: tuple[str, ...] = _BOTH) -> MeasuredRounds:
        """All rounds of ``arms``, or fewer: it ends early when the gate has decided, when the time is over, or, with
        the candidate alone, where the baseline ended.

        Raises:
            MpctlError: an arm cannot be measured; what was finished is kept.
        """
        return self._measure(arms, lambda chosen, rounds: chosen._ended(arms, rounds))

    def measure_answers(self) -> MeasuredRounds:
        """Rounds of both arms until the rules about answers and drafts have decided. Speed is not judged by them: users
        are on the engines meanwhile.

        Raises:
            MpctlError: an arm cannot be measured; what was finished is kept.
        """

        def ended(chosen: Measurement, rounds: int) -> str:
            if rounds:
                chosen.engines.progress.round(chosen._progress(_BOTH, rounds))
                if answers_decided(chosen.records.interim(rounds)[1]):
                    return "the answers decide"
            return "" if rounds < chosen.records.workload.repeats else _ALL

        return self._measure(_BOTH, ended)

    def _measure(
        self, arms: tuple[str, ...], ended: Callable[[Measurement, int], str]
    ) -> MeasuredRounds:
        """Measure rounds until ``ended`` returns why no further one is needed."""
        with self.records.writing():
            chosen = self._prepare(arms)
            rounds = 0
            while not (why := ended(chosen, rounds)):
                chosen._round(arms, rounds)
                rounds += 1
        return MeasuredRounds(rounds, rounds * len(arms) * len(self.records.workload.cells), why)

    def _prepare(self, arms: tuple[str, ...]) -> Measurement:
        """Note the conditions, send the untimed requests, and calibrate the load client. Return the measurement with
        the blocks that it has from the first round on."""
        fresh = self.compares and not self.records.has_round(arms[-1], 0)
        if fresh:
            self.engines.meter.prepare()  # the load client starts while the engines answer
        for arm in arms if self.records.placement is not Placement.TURNS else ():
            self.engines.note_conditions(arm)
        self.engines.require_alike()
        if fresh:
            # The candidate first gets what a baseline was sent while it started.
            send_bursts(self.engines, arms[1:])
            send_bursts(self.engines, arms)
        self.calibrate()
        ratio = large_gain(self.records) if fresh and len(arms) > 1 else None
        if ratio is None:
            return self
        records = self.records.choose_single_prompts(ratio)
        self.engines.progress.note(
            f"the untimed requests take {ratio:.2f}x as long, so rounds of one prompt decide sooner: at most "
            f"{records.workload.repeats}"
        )
        return replace(self, engines=replace(self.engines, records=records))

    def calibrate(self) -> None:
        """Measure the load client's own error, once."""
        if self.records.calibration() is not None:
            return
        most, progress = self.records.workload.most, self.engines.progress
        progress.step(
            "calibrate", f"the load client against a server of known timing, {most} at once"
        )
        calibration = self.engines.meter.calibrate(most)
        self.records.add(CALIBRATION, calibration)
        progress.note(describe(calibration))

    def _ended(self, arms: tuple[str, ...], rounds: int) -> str:
        """Report the last of ``rounds``, and return why no further one begins; "" if one does."""
        workload = self.records.workload
        if rounds and (why := self._decided(arms, rounds)):
            return why
        if rounds == workload.repeats:
            return _ALL
        if workload.max_time_s and self.records.seconds(arms) >= self._time_limit_s(arms):
            return f"{workload.max_time_s:.0f} s of measuring are over"
        if arms == (CANDIDATE,) and rounds and not self.records.has_round(BASELINE, rounds):
            return "no further round of the baseline was measured"
        return ""

    def _time_limit_s(self, arms: tuple[str, ...]) -> float:
        """An arm alone has half of the time."""
        return self.records.workload.max_time_s * len(arms) / 2

    def _decided(self, arms: tuple[str, ...], rounds: int) -> str:
        """Report the last round, with the interim analysis if both arms have it. Return why the gate needs no further
        round; "" if it does."""
        progress = self._progress(arms, rounds)
        if not (CANDIDATE in arms and self.records.has_round(BASELINE, rounds - 1)):
            self.engines.progress.round(progress)
            return ""
        analysis, verdict = self.records.interim(rounds)
        undecided = (r.rule for r in verdict.rules if r.outcome is Outcome.UNDECIDED)
        progress = replace(
            progress,
            figures=figures_of(analysis),
            open=tuple(dict.fromkeys(undecided)) if rounds >= FIRST_LOOK else (),
        )
        self.engines.progress.round(progress)
        counted = f"{rounds} of {self.records.workload.repeats} rounds"
        if verdict.outcome is not Outcome.UNDECIDED:
            return f"the gate decided after {counted}"
        if is_futile(analysis, verdict):
            chance = formatting.share(LEAST_CHANCE, 0)
            return f"after {counted} the rest would decide in less than {chance} of cases"
        return ""

    def _progress(self, arms: tuple[str, ...], rounds: int) -> RoundProgress:
        """Progress of measuring ``arms``, bounded by the rounds and by the time limit at the present pace."""
        elapsed, repeats = self.records.seconds(arms, rounds), self.records.workload.repeats
        remaining = elapsed / rounds * (repeats - rounds)
        if self.records.workload.max_time_s:
            remaining = min(remaining, max(self._time_limit_s(arms) - elapsed, 0.0))
        return RoundProgress(rounds, repeats, elapsed, remaining)

    def _round(self, arms: tuple[str, ...], repeat: int) -> None:
        records, progress = self.records, self.engines.progress
        in_turns = records.placement is Placement.TURNS
        per_round = len(arms) * len(records.workload.cells)
        for number, (cell, arm) in enumerate(
            records.order(arms, repeat), start=repeat * per_round + 1
        ):
            if records.block(cell, arm, repeat) is not None:
                continue
            where = f"block {number} of at most {records.workload.repeats * per_round}: {arm}, {cell.label}"
            progress.step("measure", where)
            block = self._block(cell, arm, repeat)
            progress.update(f"{where}: {block.throughput:.0f} tok/s")
            if in_turns and arm == BASELINE:  # it scores while it has the GPU
                self._compare_answers(arms)
        if not in_turns:
            self._compare_answers(arms)
        records.write_blocks()

    def _block(self, cell: Cell, arm: str, repeat: int) -> Block:
        """Send a block, and write it with its round."""
        records, wants_ids = self.records, self.compares and self.fidelity != OFF
        prompts, key = (
            records.workload.slice(cell, repeat),
            f"{records.id}/{block_name(cell, arm, repeat)}",
        )
        try:
            sent = self.engines.send(arm, prompts, cell, key=key, ids=wants_ids or not cell.greedy)
            block = sent.block(cell, arm=arm, repeat=repeat, prompts=prompts)
        except (BlockError, CounterError) as error:
            raise MpctlError(
                f"block {repeat} of the {arm} ({cell.label}) cannot be used: {error}",
                hint=error.hint,
            ) from error
        if repeat == 0 and (why := saturation(records.calibration(), sent.result)):
            self.engines.progress.note(f"{cell.label}, {arm}: {why}")
        if block.first_error and not any(b.first_error for b in records.blocks() if b.arm == arm):
            self.engines.progress.note(
                f"{cell.label}, {arm}: a request failed with {block.first_error}"
            )
        if wants_ids and cell.greedy:
            self.answers.keep(block, sent.result)
        records.add_block(block, sent.result)
        return block

    def _compare_answers(self, arms: tuple[str, ...]) -> None:
        """Compare the greedy answers that both arms have given and that were not compared yet."""
        records, workload = self.records, self.records.workload
        rounds = []
        for cell in workload.cells:
            for repeat in self.answers.rounds(cell):
                baseline, candidate = (records.block(cell, arm, repeat) for arm in _BOTH)
                if baseline is not None and candidate is not None:
                    rounds.append((baseline, candidate, workload.slice(cell, repeat)))
        if not rounds:
            return
        passed = records.answers(ANSWERS)
        comparison = RoundComparison(
            self.engines,
            unscorable=self.engines.unscorable() if BASELINE in arms else BASELINE_LEFT,
            tie=passed.tie if passed else None,
            bounded=self.fidelity == QUICK,
        )
        earlier = records.answers(ROUND_ANSWERS)
        check = comparison.compare(self.answers, rounds, workload.max_tokens, before=earlier)
        if check is not None:
            records.add(ROUND_ANSWERS, check)


_FIGURES = (
    ("throughput_ratio", "throughput ratio"),
    ("time_per_token_ratio", "time-per-token ratio"),
)


def figures_of(analysis: Analysis) -> tuple[tuple[str, str, str], ...]:
    """Name, estimate and confidence interval of the two ratios, cell by cell."""
    several = len(analysis.cells) > 1
    return tuple(
        (
            f"{name}, {cell.cell.label}" if several else name,
            formatting.ratio(i.value),
            formatting.bounds(i) or "no interval yet",
        )
        for cell in analysis.cells
        for key, name in _FIGURES
        if (i := cell.intervals.get(key)) is not None
    )
