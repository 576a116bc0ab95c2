"""The records of a measurement, in the store under its id.

They are written once per round: the conditions of each arm and the calibration with the first one, the load client's
result of every block, and the block read from it. A block counts as finished when it can be loaded; after a crash the
measurement continues with the first round that was not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from mpctl import __version__
from mpctl.errors import MpctlError
from mpctl.experiment.answers import AnswerCheck
from mpctl.experiment.block import BASELINE, CANDIDATE, Block, LoadResult
from mpctl.experiment.cell import Cell
from mpctl.experiment.run import ArmConditions, Burst, Calibration, PromptSet, Reply, Run
from mpctl.experiment.users import Placement, UserLoad, UsersTraffic
from mpctl.experiment.workload import Workload, round_order
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import judge_run
from mpctl.gate.policy import Policy
from mpctl.gate.verdict import Verdict
from mpctl.json_types import Json
from mpctl.records import Record, encode, restored
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import Store

_Value = TypeVar("_Value")
ANSWERS = "answers"  # the pass before the rounds
ROUND_ANSWERS = "answers-rounds"  # the rounds' own answers
CALIBRATION = "calibration"
BURST = "burst"  # untimed requests before the rounds, by arm, and those of the pass
_TRAFFIC = "traffic"  # users' requests
_SENT = "sent"  # requests to each arm, whatever for
_SINGLE_PROMPTS = "single-prompts"  # why each block has one prompt


@dataclass(frozen=True)
class MeasurementRecords:
    """What a measurement recorded, and what it will record with its next round."""

    id: str
    created: str
    who: str
    workload: Workload
    policy: Policy
    store: Store
    placement: Placement = Placement.SERVICE
    users: UserLoad | None = None
    earlier: int = 0  # measurements of the same pair
    _blocks: dict[str, Block] = field(default_factory=dict)  # a store may be a cluster's API away
    _pending: dict[str, Json] = field(default_factory=dict)  # written with the next round
    _raw: dict[str, Json] = field(default_factory=dict)

    @classmethod
    def of(cls, operation: Operation, workload: Workload, store: Store) -> MeasurementRecords:
        """Return the records of an operation, which are stored under its id."""
        plan = operation.plan
        return cls(
            operation.id,
            operation.opened_at,
            operation.who,
            workload,
            plan.policy,
            store,
            plan.users.placement,
            plan.users.load,
            plan.earlier,
        ).as_chosen()

    def as_chosen(self) -> MeasurementRecords:
        """The records with blocks of one prompt, where that was chosen."""
        single = self.workload.in_single_prompts()
        if single is self.workload or self.read(_SINGLE_PROMPTS, dict) is None:
            return self
        return replace(self, workload=single)

    def choose_single_prompts(self, ratio: float) -> MeasurementRecords:
        """Write with the next round that blocks have one prompt, and return the records with them. ``ratio``: of the
        candidate's untimed requests to the baseline's."""
        self._pending[_SINGLE_PROMPTS] = {"ratio": ratio}
        return self.as_chosen()

    def read(self, name: str, read: Callable[[Any], _Value]) -> _Value | None:
        """Return a record, also one that is not written yet; None without one.

        Raises:
            MpctlError: the record is damaged.
        """
        pending = self._pending.get(name)
        return load_record(self.store, self.id, name, read) if pending is None else read(pending)

    def add(self, name: str, record: Record) -> None:
        """Write a record with the next round."""
        self._pending[name] = record.to_record()

    def write(self) -> None:
        """Write what was added."""
        if self._pending or self._raw:
            self.store.save_all(self.id, self._pending, raw=self._raw)
            self._pending.clear()
            self._raw.clear()

    def write_blocks(self) -> None:
        """Write what was added if a block is among it: an interim analysis that is repeated is no reason to write."""
        if self._raw:
            self.write()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Write what is added inside, also when that fails."""
        try:
            yield
        except (MpctlError, KeyboardInterrupt):
            self.write()
            raise
        self.write()

    def block(self, cell: Cell, arm: str, repeat: int) -> Block | None:
        """Return one block; None if it was not measured yet."""
        name = block_name(cell, arm, repeat)
        block = self._blocks.get(name) or load_record(self.store, self.id, name, Block.from_record)
        if block is not None:
            self._blocks[name] = block
        return block

    def add_block(self, block: Block, result: LoadResult) -> None:
        """Write a block and the load client's result with the next round."""
        cell, arm, repeat = block.cell, block.arm, block.repeat
        name = block_name(cell, arm, repeat)
        self._blocks[name] = block
        self._pending[name] = block.to_record()
        self._raw[f"bench-{cell.key}-{arm}-{repeat}"] = result.packed()

    def has_round(self, arm: str, repeat: int) -> bool:
        """Return whether every block of an arm's round was measured."""
        return all(self.block(cell, arm, repeat) for cell in self.workload.cells)

    def rounds(self) -> int:
        """Return the number of whole rounds, of every arm that has a first one."""
        arms = [arm for arm in (BASELINE, CANDIDATE) if self.has_round(arm, 0)]
        done = 0
        while (
            arms and done < self.workload.repeats and all(self.has_round(arm, done) for arm in arms)
        ):
            done += 1
        return done

    def blocks(self, rounds: int | None = None) -> tuple[Block, ...]:
        """Return the blocks measured so far, round by round. ``rounds``: those of the first rounds alone."""
        blocks = (
            self.block(cell, arm, repeat)
            for repeat in range(self.workload.repeats if rounds is None else rounds)
            for cell, arm in self.order((BASELINE, CANDIDATE), repeat)
        )
        return tuple(block for block in blocks if block is not None)

    def seconds(self, arms: Sequence[str], rounds: int | None = None) -> float:
        """Return the time of the arms' blocks: not of the clock, so that it continues after a crash."""
        return sum(block.duration_s for block in self.blocks(rounds) if block.arm in arms)

    def order(self, arms: tuple[str, ...], repeat: int) -> tuple[tuple[Cell, str], ...]:
        """Return the blocks of a round in the order in which they are sent."""
        order = round_order(arms, self.workload.cells, repeat, seed=f"{self.id} {self.created}")
        if self.placement is not Placement.TURNS:
            return order
        first = order[0][1]  # an engine starts once in a round, for all cells
        return tuple(sorted(order, key=lambda block: block[1] != first))

    def conditions(self) -> dict[str, ArmConditions]:
        """Return the conditions of each arm as far as they are noted."""
        noted = {
            arm: self.read(f"conditions-{arm}", ArmConditions.from_record)
            for arm in (BASELINE, CANDIDATE)
        }
        return {arm: conditions for arm, conditions in noted.items() if conditions is not None}

    def calibration(self) -> Calibration | None:
        """Return the load client's own error; None if it was not measured."""
        return self.read(CALIBRATION, Calibration.from_record)

    def answers(self, name: str) -> AnswerCheck | None:
        """Return what the answers showed: of the pass (``ANSWERS``), or of the rounds (``ROUND_ANSWERS``)."""
        return self.read(name, AnswerCheck.from_record)

    def judge_answers(self, check: AnswerCheck, burst: Burst) -> Verdict:
        """Write what the answers before the first round showed, with the conditions that were noted, and return the
        gate's verdict on it. ``burst``: the failures among them."""
        self.add(ANSWERS, check)
        self.add(BURST, burst)
        self.write()
        return judge_run(self.run(0), self.policy)[1]

    def keep_traffic(self, traffic: UsersTraffic) -> None:
        """Write what users' requests showed so far."""
        self.store.save(self.id, _TRAFFIC, traffic.to_record())

    def traffic(self) -> UsersTraffic | None:
        """Return what users' requests showed so far; None if they were not measured."""
        return self.read(_TRAFFIC, UsersTraffic.from_record)

    def replies(self, arm: str, traffic: str) -> list[Reply]:
        """Return an arm's replies to the untimed requests of a class."""
        stored = self.read(f"{BURST}-{arm}", dict) or {}
        return [(str(error), float(seconds)) for error, seconds in stored.get(traffic, ())]

    def add_replies(self, arm: str, traffic: str, replies: Sequence[Reply]) -> None:
        """Write further replies with the next round."""
        name = f"{BURST}-{arm}"
        stored = self.read(name, dict) or {}
        self._pending[name] = {
            **stored,
            traffic: [*stored.get(traffic, ()), *map(list, replies)],
        }

    def count_sent(self, arm: str, requests: int) -> None:
        """Write with the next round that an arm was sent so many further requests."""
        sent = self.read(_SENT, dict) or {}
        self._pending[_SENT] = {**sent, arm: sent.get(arm, 0) + requests}

    def burst_of(self, traffic: str) -> Burst:
        """Return the requests before the rounds that count for a class, those of the pass of answers included."""
        others = [self._class_burst(name) for name in self.other_variants(traffic)]
        burst = replace(
            self._class_burst(traffic),
            elsewhere=sum(b.requests - b.newly_failed - b.newly_answered for b in others),
        )
        return burst + (self.read(BURST, Burst.from_record) or Burst())

    def _class_burst(self, traffic: str) -> Burst:
        return Burst.of(self.replies(BASELINE, traffic), self.replies(CANDIDATE, traffic))

    def other_variants(self, traffic: str) -> list[str]:
        """Return the other variants of a variant's class."""
        classes = {kind.name: kind.variant.of for kind in self.workload.traffic if kind.variant}
        return [
            name for name, of in classes.items() if name != traffic and of == classes.get(traffic)
        ]

    def interim(self, rounds: int) -> tuple[Analysis, Verdict]:
        """Ask the gate after ``rounds``. The intervals are adjusted for repeated interim analyses."""
        analysis, verdict = judge_run(
            self.run(rounds), self.policy, rounds=rounds, planned=self.workload.repeats
        )
        self._pending[f"interim-{rounds}"] = encode(verdict)
        return analysis, verdict

    def judged(self) -> Run:
        """The rounds that the gate judges: those that every arm has finished. Blocks beyond them were sent to one arm
        alone, and figures over them would be of other prompts than the other arm's. Without a round, all there is."""
        return self.run(self.rounds() or None)

    def run(self, rounds: int | None = None) -> Run:
        """The measurement as it stands, with everything needed to judge or repeat it. ``rounds``: the first ones
        alone."""
        workload = self.workload
        return Run(
            id=self.id,
            created=self.created,
            who=self.who,
            mpctl_version=__version__,
            client=f"mpctl {__version__}",
            blocks=self.blocks(rounds),
            arms=self.conditions(),
            prompts={
                kind.name: PromptSet(
                    kind.name, kind.digest(), kind.count, kind.repeated, kind.alike, kind.variant
                )
                for kind in workload.traffic
            },
            shares=workload.shares,
            calibration=self.calibration(),
            policy=self.policy.to_record(),
            planned=workload.repeats,
            max_tokens=workload.max_tokens,
            placement=self.placement,
            users=self.users,
            traffic=self.traffic() if self.placement.users_set_load else None,
            answers=self.answers(ANSWERS),
            round_answers=self.answers(ROUND_ANSWERS),
            accepted=workload.accepted,
            earlier=self.earlier,
            bursts={
                kind.name: burst
                for kind in workload.traffic
                if (burst := self.burst_of(kind.name)).requests
            },
        )


def load_record(
    store: Store, operation: str, name: str, read: Callable[[Json], _Value]
) -> _Value | None:
    """Read an operation's record with ``read``; None when there is none.

    Raises:
        MpctlError: the record is damaged.
    """
    record = store.load(operation, name)
    if record is None:
        return None
    hint = "restore it from a copy; a local service keeps it in its directory under operations/"
    return restored(f"record {name} of {operation}", read, record, hint=hint)


def most_sent(store: Store, operation: str) -> int:
    """Return the requests that an operation sent to one arm, timed or not: the more of two; 0 where that was not
    recorded or cannot be read."""
    with suppress(MpctlError):
        return max((load_record(store, operation, _SENT, dict) or {}).values(), default=0)
    return 0


def block_name(cell: Cell, arm: str, repeat: int) -> str:
    """Return the name of a block's record."""
    return f"block-{cell.key}-{arm}-{repeat}"
