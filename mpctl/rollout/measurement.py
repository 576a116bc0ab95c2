"""Measure arms round by round. A finished block is never sent again; an interim analysis follows each round.

Everything is written to the store under the measurement's id, once per round: the conditions of each arm and the
calibration with the first one, the bench client's own JSON of every block, and the block read from it. A block counts
as finished when it can be loaded; after a crash the measurement continues with the first round that was not written.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, TypeVar

from mpctl import __version__, formatting
from mpctl.errors import MpctlError
from mpctl.experiment.answer_sets import OFF, QUICK
from mpctl.experiment.answers import AnswerCheck, Ask
from mpctl.experiment.block import BASELINE, CANDIDATE, Block, BlockError
from mpctl.experiment.calibration import describe, saturation
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CounterError
from mpctl.experiment.prompt_files import Prompt, body_of
from mpctl.experiment.round_answers import RoundAnswers
from mpctl.experiment.run import ArmConditions, Burst, Calibration, PromptSet, Reply, Run
from mpctl.experiment.users import Placement, UserLoad, UsersTraffic
from mpctl.experiment.workload import Traffic, Workload, round_order
from mpctl.gate.analysis import Analysis
from mpctl.gate.arms import require_alike
from mpctl.gate.assess import LEAST_CHANCE, answers_decided, is_futile, judge_run
from mpctl.gate.policy import Policy
from mpctl.gate.power import MeasurementNoise, power_warning
from mpctl.gate.rule import Outcome, more_to_pass
from mpctl.gate.verdict import Verdict
from mpctl.manifest import redacted
from mpctl.methods import Spec
from mpctl.records import encode, restored
from mpctl.rollout.operation import StepResult
from mpctl.rollout.ports import BlockLost, Endpoint, LoadOrder, Meter, Progress, RoundProgress, SentBlock, Store
from mpctl.rollout.revision import spec_text
from mpctl.rollout.round_comparison import BASELINE_LEFT, RoundComparison, why_unscorable
from mpctl.stats.confidence import has_trend
from mpctl.stats.sequential import FIRST_LOOK

_Value = TypeVar("_Value")
_TRAFFIC = "traffic"  # the name of the record of users' requests
ANSWERS = "answers"  # that of the pass before the rounds
ROUND_ANSWERS = "answers-rounds"  # that of the rounds' own answers
_BURST = "burst"  # records of the burst: untimed requests before the rounds, by arm, and those of the pass
_AT_ONCE = 4  # requests of a burst in flight, at least
_LONGEST = 32  # tokens of an answer of a burst
_MOST_SENT = 200  # requests of a burst to an arm, where some of them fail
_LEVEL = 32  # last requests of a burst that show whether an arm still warms up
_TREND = 0.01  # significance level of that test
_POWER_NOTED_AFTER = 2  # rounds; a plan that would often miss a gain is then named


@dataclass(frozen=True)
class MeasuredRounds(StepResult):
    """Rounds and blocks that were measured, and why the measurement ended."""

    rounds: int
    blocks: int
    ended: str


@dataclass(frozen=True)
class MeasuredEngine:
    """An arm as it runs now."""

    endpoint: Endpoint
    spec: Spec | None  # None where nobody read it
    argv: tuple[str, ...] = ()  # of the engine's process, where it is known
    kv_pool_tokens: int | None = None
    start: int = 0  # number of the engine start, where arms take turns
    find_device: Callable[[], str] = str  # asked once per measurement where the engine does not report its device
    model_revision: str = ""  # as pinned by the manifest
    name: str = ""  # of an engine that mpctl did not start
    image: str = ""  # as the platform runs it

    @property
    def engine(self) -> str:
        """The running engine, which another one at the same address is not."""
        return f"{self.endpoint.address} {self.start}" if self.start else self.endpoint.address


@dataclass(frozen=True)
class Measurement:
    """A measurement: its workload, where its records go, and the engine of an arm (asked for with every block)."""

    id: str
    created: str
    who: str
    workload: Workload
    policy: Policy
    store: Store
    meter: Meter
    progress: Progress
    engine_of: Callable[[str], MeasuredEngine]
    placement: Placement = Placement.SERVICE
    users: UserLoad | None = None
    earlier: int = 0  # measurements of the same pair
    compares: bool = True  # False for one arm that nothing is compared with
    answers: RoundAnswers = field(default_factory=RoundAnswers)
    fidelity: str = QUICK  # how closely the answers of the rounds are compared
    _attempt: str = field(default_factory=lambda: token_hex(8))
    _warm: set[tuple[Cell, str, str]] = field(default_factory=set)
    """Cells and arms, with the address of the engine: another pod of the arm is a cold engine."""
    _known: dict[str, Block] = field(default_factory=dict)  # a store may be a cluster's API away
    _pending: dict[str, dict[str, Any]] = field(default_factory=dict)  # written with the next round
    _raw: dict[str, dict[str, Any]] = field(default_factory=dict)

    def measure(self, arms: tuple[str, ...] = (BASELINE, CANDIDATE)) -> MeasuredRounds:
        """All rounds of ``arms``, or fewer: it ends early when the gate has decided, when the time is over, or, with
        the candidate alone, where the baseline ended.

        Raises:
            MpctlError: an arm cannot be measured; what was finished is kept.
        """
        with self._writing():
            self._prepare(arms)
            return self._measure_until_decided(arms)

    def measure_rounds(self, rounds: int) -> None:
        """The first ``rounds`` rounds of both arms, for a search that asks the gate itself.

        Raises:
            MpctlError: an arm cannot be measured; what was finished is kept.
        """
        with self._writing():
            self._prepare((BASELINE, CANDIDATE))
            for repeat in range(rounds):
                self._round((BASELINE, CANDIDATE), repeat)

    def measure_answers(self) -> None:
        """Rounds of both arms until the rules about answers and drafts have decided. Speed is not judged by them: users
        are on the engines meanwhile.

        Raises:
            MpctlError: an arm cannot be measured; what was finished is kept.
        """
        with self._writing():
            self._prepare((BASELINE, CANDIDATE))
            for done in range(self.workload.repeats):
                self._round((BASELINE, CANDIDATE), done)
                self.progress.round(self._progress((BASELINE, CANDIDATE), done + 1))
                if answers_decided(self.interim(done + 1)[1]):
                    return

    def keep_answers(self, check: AnswerCheck, burst: Burst) -> Verdict:
        """Write what the answers before the first round showed, with the conditions that were noted, and return the
        gate's verdict on it. ``burst``: the failures among them."""
        self._pending[ANSWERS], self._pending[_BURST] = check.to_record(), burst.to_record()
        self._write()
        return judge_run(self.run(()), self.policy)[1]

    def keep_conditions(self) -> None:
        """Write the conditions that were noted."""
        self._write()

    def keep_traffic(self, traffic: UsersTraffic) -> None:
        """Write what users' requests showed so far."""
        self.store.save(self.id, _TRAFFIC, traffic.to_record())

    def traffic(self) -> UsersTraffic | None:
        """Return what users' requests showed so far; None where they were not measured."""
        return load_record(self.store, self.id, _TRAFFIC, UsersTraffic.from_record)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write the measurements at the end of the block, also when it fails."""
        try:
            yield
        except (MpctlError, KeyboardInterrupt):
            self._write()
            raise
        self._write()

    def _prepare(self, arms: tuple[str, ...]) -> None:
        fresh = self.compares and not self._has(arms[-1], 0)
        if fresh:
            self.meter.prepare()  # the load client starts while the engines answer
        for arm in arms if self.placement is not Placement.TURNS else ():
            self.note_conditions(arm)
        self._require_alike()
        if fresh:
            self._send_bursts(arms)
        self._calibrate()

    def _send_bursts(self, arms: tuple[str, ...]) -> None:
        """Send untimed requests until failures can be ruled out by the first analysis that decides, or until so many
        failed that rounds have to show it; and until the arms' speed is level, for an engine that still warms up looks
        slower than it is. Engines that users load get none."""
        limit = self.policy.max_failed_excess
        if self.placement.users_set_load or not 0 < limit < 1:
            return
        rounds = min(FIRST_LOOK, self.workload.repeats)
        kinds, variants = self.workload.traffic, self.workload.variants
        for number, kind in enumerate(kinds * 2 if variants else kinds):  # variants share the requests, then the rest
            parts = variants if number < len(kinds) and variants else 1
            beside = self._variants_beside(kind.name)
            timed = rounds * min(self.workload.requests_of(c) for c in self.workload.cells if c.traffic == kind.name)
            while True:
                sent, burst = len(self._replies(arms[-1], kind.name)), self.burst_of(kind.name)
                if arms == (CANDIDATE,):
                    wanted = len(self._replies(BASELINE, kind.name)) - sent
                else:
                    count = burst.requests + burst.elsewhere
                    if len(arms) == 1:
                        count += sum(len(self._replies(arms[-1], name)) for name in (kind.name, *beside))
                    failed = (burst.newly_failed, burst.newly_answered)
                    wanted = (more_to_pass(*failed, count + timed - 1, limit, failing=False) or 0) - 1
                    if wanted <= 0 and self._warms_up(kind.name):
                        wanted = _LEVEL
                    wanted = min(math.ceil(wanted / parts), _MOST_SENT - sent)
                if wanted <= 0 or (sent and len(arms) > 1 and not burst.requests):
                    break
                self._send_burst(arms, kind, sent, wanted)
                if len(arms) == 1 or parts > 1:
                    break

    def _warms_up(self, traffic: str) -> bool:
        """Return whether one arm still becomes faster than the other over the last untimed requests."""
        pairs = zip(self._replies(BASELINE, traffic), self._replies(CANDIDATE, traffic), strict=False)
        times = [(base[1], cand[1]) for base, cand in pairs if not (base[0] or cand[0]) and base[1] and cand[1]]
        return has_trend([math.log(cand / base) for base, cand in times[-_LEVEL:]], _TREND)

    def _send_burst(self, arms: tuple[str, ...], kind: Traffic, start: int, count: int) -> None:
        """Send ``count`` requests of a class to each arm, none of which is measured."""
        prompts = self.workload.spare_prompts_of(kind)
        at_once, limit = max(self.workload.most, _AT_ONCE), min(self.workload.max_tokens, _LONGEST)
        temperature = max(self.workload.temperatures)
        chosen = [prompts[n % len(prompts)] for n in range(start, start + count)] if prompts else []
        asks = [Ask(_BURST, body_of(prompt), limit, temperature, stream=True) for prompt in chosen]
        for arm in arms if asks else ():
            self.progress.step("errors", f"{count} requests of {kind.name} to the {arm}, {at_once} at once, untimed")
            self.note_conditions(arm)
            endpoint = self.engine_of(arm).endpoint
            answers = self.meter.ask(endpoint, asks, concurrency=at_once, salt=self.salt(arm, _BURST), alternatives=0)
            rows = [[answer.error, answer.seconds] for answer in answers]
            stored = self._stored_replies(arm)
            self._pending[f"{_BURST}-{arm}"] = {**stored, kind.name: [*stored.get(kind.name, ()), *rows]}

    def _stored_replies(self, arm: str) -> dict[str, Any]:
        return self._read(f"{_BURST}-{arm}", dict) or {}

    def _replies(self, arm: str, traffic: str) -> list[Reply]:
        return [(str(error), float(seconds)) for error, seconds in self._stored_replies(arm).get(traffic, ())]

    def burst_of(self, traffic: str) -> Burst:
        """The requests before the rounds that count for a class: its own, and those of the pass of answers."""
        answered = self._read(_BURST, Burst.from_record)
        others = [self._own_burst(name) for name in self._variants_beside(traffic)]
        burst = replace(self._own_burst(traffic), elsewhere=sum(other.answered_alike for other in others))
        return burst + answered if answered else burst

    def _own_burst(self, traffic: str) -> Burst:
        return Burst.of(self._replies(BASELINE, traffic), self._replies(CANDIDATE, traffic))

    def _variants_beside(self, traffic: str) -> list[str]:
        """The other variants of a variant's class."""
        classes = {kind.name: kind.variant.of for kind in self.workload.traffic if kind.variant}
        return [name for name, of in classes.items() if name != traffic and of == classes.get(traffic)]

    def _measure_until_decided(self, arms: tuple[str, ...]) -> MeasuredRounds:
        done, why = 0, "all rounds are measured"
        while done < self.workload.repeats:
            if self._time_is_over(arms):
                why = f"{self.workload.max_time_s:.0f} s of measuring are over"
                break
            if arms == (CANDIDATE,) and done and not self._has(BASELINE, done):
                why = "the baseline was measured no longer"
                break
            self._round(arms, done)
            done += 1
            if not (CANDIDATE in arms and self._has(BASELINE, done - 1)):
                self.progress.round(self._progress(arms, done))
                continue
            analysis, verdict = self.interim(done)
            if done == _POWER_NOTED_AFTER:
                self._note_power(done)
            self.progress.round(
                replace(self._progress(arms, done), figures=figures_of(analysis), verdict=_in_words(verdict))
            )
            if verdict.outcome is not Outcome.UNDECIDED:
                why = f"the gate decided after {done} of {self.workload.repeats} rounds"
                break
            if is_futile(analysis, verdict):
                why = (
                    f"after {done} of {self.workload.repeats} rounds the rest would decide in less than "
                    f"{formatting.share(LEAST_CHANCE, 0)} of cases"
                )
                break
        return MeasuredRounds(done, done * len(arms) * len(self.workload.cells), why)

    def interim(self, number: int) -> tuple[Analysis, Verdict]:
        """Ask the gate after ``number`` rounds. The intervals are adjusted for repeated interim analyses."""
        blocks = tuple(b for b in self.blocks() if b.repeat < number)
        analysis, verdict = judge_run(self.run(blocks), self.policy, rounds=number, planned=self.workload.repeats)
        self._pending[f"interim-{number}"] = encode(verdict)
        return analysis, verdict

    def _note_power(self, number: int) -> None:
        """Say that the plan would often miss a gain, where the noise of the first rounds says so."""
        blocks = tuple(b for b in self.blocks() if b.repeat < number)
        analysis = Analysis.of(self.run(blocks), self.policy, planned=number)
        noise = MeasurementNoise.of(analysis, f"the first {number} rounds")
        order = analysis.cells[0].order
        warning = power_warning(noise, self.workload, self.policy, order) if noise is not None else ""
        if warning:
            self.progress.note(warning)

    def _write(self) -> None:
        if self._pending or self._raw:
            self.store.save_all(self.id, self._pending, raw=self._raw)
            self._pending.clear()
            self._raw.clear()

    def _progress(self, arms: tuple[str, ...], done: int) -> RoundProgress:
        """Progress of measuring ``arms``, bounded by the rounds and by the time limit at the present pace."""
        elapsed = sum(b.duration_s for b in self.blocks() if b.arm in arms and b.repeat < done)
        remaining = elapsed / done * (self.workload.repeats - done)
        if self.workload.max_time_s:
            remaining = min(remaining, max(self._time_limit_s(arms) - elapsed, 0.0))
        return RoundProgress(done, self.workload.repeats, elapsed, remaining)

    def _time_limit_s(self, arms: tuple[str, ...]) -> float:
        """An arm alone has half of the time."""
        return self.workload.max_time_s * len(arms) / 2

    def rounds(self) -> int:
        """Rounds of which every block is there, of every arm that has a first one."""
        arms = [arm for arm in (BASELINE, CANDIDATE) if self._has(arm, 0)]
        done = 0
        while arms and done < self.workload.repeats and all(self._has(arm, done) for arm in arms):
            done += 1
        return done

    def blocks(self) -> tuple[Block, ...]:
        """The blocks measured so far, round by round."""
        blocks = []
        for repeat in range(self.workload.repeats):
            for cell, arm in self._order((BASELINE, CANDIDATE), repeat):
                block = self._load(cell, arm, repeat)
                if block is not None:
                    blocks.append(block)
        return tuple(blocks)

    def _order(self, arms: tuple[str, ...], repeat: int) -> tuple[tuple[Cell, str], ...]:
        order = round_order(arms, self.workload.cells, repeat, seed=f"{self.id} {self.created}")
        if self.placement is not Placement.TURNS:
            return order
        first = order[0][1]  # an engine starts once in a round, for all cells
        return tuple(sorted(order, key=lambda block: block[1] != first))

    def run(self, blocks: tuple[Block, ...] | None = None) -> Run:
        """The measurement as it stands, with everything needed to judge or repeat it."""
        chosen = self.blocks() if blocks is None else blocks
        workload = self.workload
        return Run(
            id=self.id,
            created=self.created,
            who=self.who,
            mpctl_version=__version__,
            client=f"mpctl {__version__}",
            arms=self._conditions(),
            prompts={
                kind.name: PromptSet(kind.name, kind.digest(), kind.count, kind.repeated, kind.alike, kind.variant)
                for kind in workload.traffic
            },
            shares=workload.shares,
            calibration=self._calibration(),
            policy=self.policy.to_record(),
            blocks=chosen,
            planned=workload.repeats,
            max_tokens=workload.max_tokens,
            placement=self.placement,
            users=self.users,
            traffic=self.traffic() if self.placement.users_set_load else None,
            answers=load_record(self.store, self.id, ANSWERS, AnswerCheck.from_record),
            round_answers=self._round_answers(),
            accepted=workload.accepted,
            earlier=self.earlier,
            bursts={kind.name: burst for kind in workload.traffic if (burst := self.burst_of(kind.name)).requests},
        )

    def judged(self) -> Run:
        """The rounds that the gate judges: those that every arm has finished. Blocks beyond them were sent to one arm
        alone, and figures over them would be of other prompts than the other arm's. Without a round, all there is."""
        rounds = self.rounds()
        return self.run(tuple(b for b in self.blocks() if not rounds or b.repeat < rounds))

    def _read(self, name: str, read: Callable[[Any], _Value]) -> _Value | None:
        """Return a record of the measurement, also one that is not written yet; None without one."""
        pending = self._pending.get(name)
        return load_record(self.store, self.id, name, read) if pending is None else read(pending)

    def _has(self, arm: str, repeat: int) -> bool:
        return all(self._load(cell, arm, repeat) is not None for cell in self.workload.cells)

    def _load(self, cell: Cell, arm: str, repeat: int) -> Block | None:
        name = _name(cell, arm, repeat)
        if name not in self._known:
            block = load_record(self.store, self.id, name, Block.from_record)
            if block is None:
                return None
            self._known[name] = block
        return self._known[name]

    def _time_is_over(self, arms: tuple[str, ...]) -> bool:
        """Count the time in blocks, not on the clock: after a crash it continues where it was."""
        if not self.workload.max_time_s:
            return False
        spent = sum(b.duration_s for b in self.blocks() if b.arm in arms)
        return spent >= self._time_limit_s(arms)

    def note_conditions(self, arm: str) -> None:
        """Read the conditions of an arm, once: what is sent before changes what the engine has generated."""
        name = f"conditions-{arm}"
        if name in self._pending or self.store.load(self.id, name) is not None:
            return
        engine = self.engine_of(arm)
        try:
            facts = self.meter.describe(engine.endpoint, engine.spec.draft if engine.spec else None)
        except CounterError as error:
            raise MpctlError(f"the {arm} does not tell its metrics: {error}") from error
        conditions = ArmConditions(
            spec=engine.name or spec_text(engine.spec),
            engine_version=facts.engine_version,
            argv=redacted(engine_arguments(engine.argv)),
            model=facts.model or engine.endpoint.model,
            model_digest=facts.model_digest or engine.model_revision,
            device=facts.device or engine.find_device(),
            kv_pool_tokens=engine.kv_pool_tokens or facts.kv_pool_tokens,
            served_tokens=facts.served_tokens,
            speculation=engine.spec,
            context_tokens=facts.context_tokens,
            draft_digest=facts.draft_digest or str((engine.spec and engine.spec.settings.get("revision")) or ""),
            image=engine.image,
        )
        self._pending[name] = conditions.to_record()
        if self.placement is Placement.TURNS:  # an arm is known from its first turn on
            self._require_alike()

    def _conditions(self) -> dict[str, ArmConditions]:
        """The conditions of each arm as far as they are noted."""
        noted = {arm: self._read(f"conditions-{arm}", ArmConditions.from_record) for arm in (BASELINE, CANDIDATE)}
        return {arm: conditions for arm, conditions in noted.items() if conditions is not None}

    def _require_alike(self) -> None:
        """Refuse arms that differ in more than speculation."""
        require_alike(self._conditions(), self.workload.accepted)

    def _calibration(self) -> Calibration | None:
        return self._read("calibration", Calibration.from_record)

    def _calibrate(self) -> None:
        if self.store.load(self.id, "calibration") is not None:
            return
        most = self.workload.most
        self.progress.step("calibrate", f"the load client against a server of known timing, {most} at once")
        calibration = self.meter.calibrate(most)
        if calibration is None:
            self.progress.note("the load client could not be calibrated here")
            return
        self._pending["calibration"] = calibration.to_record()
        self.progress.note(describe(calibration))

    def _round(self, arms: tuple[str, ...], repeat: int) -> None:
        total = self.workload.repeats * len(arms) * len(self.workload.cells)
        before = repeat * len(arms) * len(self.workload.cells)
        for number, (cell, arm) in enumerate(self._order(arms, repeat), start=before + 1):
            if self._load(cell, arm, repeat) is not None:
                continue
            where = f"block {number} of at most {total}: {arm}, {cell.label}"
            self.progress.step("measure", where)
            block = self._block(cell, arm, repeat)
            self.progress.update(f"{where}: {block.throughput:.0f} tok/s")
            if self.placement is Placement.TURNS and arm == BASELINE:  # it scores while it has the GPU
                self._compare_answers(arms)
        if self.placement is not Placement.TURNS:
            self._compare_answers(arms)
        if self._raw:  # an interim analysis that is repeated alone is no reason to write
            self._write()

    def _compare_answers(self, arms: tuple[str, ...]) -> None:
        """Compare the greedy answers that both arms have given and that were not compared yet."""
        rounds = []
        for cell in self.workload.cells:
            for repeat in self.answers.rounds(cell):
                baseline, candidate = (self._load(cell, arm, repeat) for arm in (BASELINE, CANDIDATE))
                if baseline is not None and candidate is not None:
                    rounds.append((baseline, candidate, self.workload.slice(cell, repeat)))
        if not rounds:
            return
        passed = load_record(self.store, self.id, ANSWERS, AnswerCheck.from_record)
        comparison = RoundComparison(
            meter=self.meter,
            endpoint=lambda arm: self.engine_of(arm).endpoint,
            salt=self.salt,
            concurrency=self.workload.most,
            unscorable=self.unscorable() if BASELINE in arms else BASELINE_LEFT,
            tie=passed.tie if passed else None,
            alone=self.placement is not Placement.TURNS,
            bounded=self.fidelity == QUICK,
        )
        check = comparison.compare(self.answers, rounds, self.workload.max_tokens, before=self._round_answers())
        if check is not None:
            self._pending[ROUND_ANSWERS] = check.to_record()

    def _round_answers(self) -> AnswerCheck | None:
        return self._read(ROUND_ANSWERS, AnswerCheck.from_record)

    def unscorable(self) -> str:
        """Return why the serving baseline cannot score, "" where it can."""
        baseline = self.engine_of(BASELINE)
        adapters = any(kind.variant is not None and kind.variant.adapter for kind in self.workload.traffic)
        return why_unscorable(baseline.spec, baseline.argv, adapters=adapters)

    def salt(self, arm: str, attempt: str = "") -> str:
        """The salt of the prefix cache. An engine that answered the same prompts in an earlier measurement, or in a
        block that was cut off, would answer them from its cache here, and look faster than it is."""
        named = f"{self.id}\n{self.created}\n{arm}\n{self._attempt}{attempt}"
        return hashlib.sha256(named.encode()).hexdigest()[:32]

    def _block(self, cell: Cell, arm: str, repeat: int) -> Block:
        prompts = self.workload.slice(cell, repeat)
        try:
            sent = self._send(arm, prompts, cell, key=f"{self.id}/{_name(cell, arm, repeat)}")
            block = sent.block(cell, arm=arm, repeat=repeat, prompts=prompts)
        except (BlockError, CounterError) as error:
            raise MpctlError(
                f"block {repeat} of the {arm} ({cell.label}) cannot be used: {error}", hint="run the same command again"
            ) from error
        if repeat == 0 and (why := saturation(self._calibration(), sent.result)):
            self.progress.note(f"{cell.label}, {arm}: {why}")
        if self._tells_ids(cell):
            self.answers.keep(block, sent.result)
        name = _name(cell, arm, repeat)
        self._raw[f"bench-{cell.key}-{arm}-{repeat}"] = sent.result.packed()
        self._pending[name], self._known[name] = block.to_record(), block
        return block

    def _tells_ids(self, cell: Cell) -> bool:
        """Return whether answers of a cell come with their token ids, to be compared."""
        return cell.greedy and self.compares and self.fidelity != OFF

    def _send(self, arm: str, prompts: tuple[Prompt, ...], cell: Cell, *, key: str = "") -> SentBlock:
        """Send a block; one of which a part of the load client was lost is invalid and is sent again."""
        limit, ids = self.workload.max_tokens, self._tells_ids(cell)
        try:
            endpoint = self._warm_engine(arm, cell)
            return self.meter.send(endpoint, LoadOrder(prompts, cell, limit, key, self.salt(arm), ids))
        except BlockLost as lost:
            self.progress.note(f"{lost.message}; the block is invalid and is sent again")
        endpoint, again = self._warm_engine(arm, cell), self.salt(arm, "again")
        return self.meter.send(endpoint, LoadOrder(prompts, cell, limit, key, again, ids))

    def _warm_engine(self, arm: str, cell: Cell) -> Endpoint:
        """The arm's engine, warmed up for the cell: it may have moved to another node since the last block."""
        measured = self.engine_of(arm)
        endpoint, engine = measured.endpoint, measured.engine
        if self.placement is Placement.TURNS:
            self.note_conditions(arm)
        if self.workload.warmup and (cell, arm, engine) not in self._warm:
            warm_arms = {other for _, name, other in self._warm if name == arm}
            if warm_arms and engine not in warm_arms and not measured.start:
                self.progress.note(f"the {arm} is another engine since the last block; it is warmed up first")
            prompts, salt = self.workload.warmup_prompts(cell), self.salt(arm)
            self.meter.send(endpoint, LoadOrder(prompts, cell, self.workload.max_tokens, salt=salt))
            self._warm.add((cell, arm, engine))
        return endpoint


_FIGURES = (("throughput_ratio", "throughput ratio"), ("time_per_token_ratio", "time-per-token ratio"))


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


def load_record(store: Store, operation: str, name: str, read: Callable[[dict[str, Any]], _Value]) -> _Value | None:
    """Read an operation's record with ``read``; None when there is none.

    Raises:
        MpctlError: the record is damaged.
    """
    record = store.load(operation, name)
    if record is None:
        return None
    hint = "restore it from a copy; a local service keeps it in its directory under operations/"
    return restored(f"record {name} of {operation}", read, record, hint=hint)


def engine_arguments(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments after ``vllm serve`` in an engine's command line."""
    return argv[argv.index("serve") + 1 :] if "serve" in argv else argv


def _name(cell: Cell, arm: str, repeat: int) -> str:
    return f"block-{cell.key}-{arm}-{repeat}"


def _in_words(verdict: Verdict) -> str:
    """An interim analysis in one line: the outcome, or how many more requests a decision needs."""
    if verdict.outcome is not Outcome.UNDECIDED:
        return f"{verdict.outcome.value}: {verdict.summary or verdict.reasons[0]}"
    if verdict.needed is None:
        return f"undecided: {verdict.reasons[0]}"
    seconds = "" if verdict.needed_s is None else f", {verdict.needed_s:.0f} s at this rate"
    return f"undecided: about {verdict.needed} more requests to each arm needed{seconds}"
