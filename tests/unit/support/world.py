"""A world in memory for the tests of mpctl.rollout: platform, store, meter, clock and progress, and a way to die.

:meth:`MemoryWorld.die_at` makes the n-th boundary raise :class:`Crash`, which nothing may catch. A boundary lies before
and after every call that acts, before every reading of the platform and the meter, and in the middle of ``replace``
and ``retire``, which act on several engines. What survives is what would survive a process: engines, manifest, route,
ledger lines, revisions, saved records.

Left out: real processes, time and text formats of a platform; ``adopt`` is one atomic write as on the local platform;
the store's reading calls are no boundaries, since dying there is dying at the boundary before; leases and torn files
(``tests/unit/platform``); statistics (the meter answers with constant times).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from mpctl.errors import Conflict, InputError, Refused
from mpctl.experiment.answers import Answer, Scored
from mpctl.experiment.block import LoadResult, StreamedRequest
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Counters
from mpctl.experiment.run import Calibration
from mpctl.experiment.workload import Traffic, Workload
from mpctl.gate.policy import Policy
from mpctl.manifest import foreign_changes, load_one
from mpctl.methods import Spec
from mpctl.rollout.context import Context
from mpctl.rollout.decide import Decision, History, decide_rollback
from mpctl.rollout.ledger import Entry, live_revisions, read_ledger
from mpctl.rollout.operation import operations, unfinished_operation
from mpctl.rollout.plan import BakePlan, Kind, Plan, RollbackPlan, Strategy, TrafficPlan, UsersPlan
from mpctl.rollout.ports import (
    Arm,
    ArmState,
    Demand,
    Endpoint,
    EngineFacts,
    Fit,
    Live,
    LoadOrder,
    Phase,
    PhaseProgress,
    PruneResult,
    RoundProgress,
    SentBlock,
)
from mpctl.rollout.revision import Manifest, Revision, text_digest

BASELINE_TEXT = "# mine, with a trailing space \nspeculation: none\r\n"
CANDIDATE_TEXT = "# mine, with a trailing space \nspeculation: ngram\r\n"
OTHER_TEXT = "speculation: somebody else's\n"
PROMPTS = tuple(f"prompt {i}" for i in range(9))
WORKLOAD = Workload(traffic=(Traffic("edits", PROMPTS),), repeats=2, requests=4, warmup=1)
TOKENS = 10
NGRAM = Spec("ngram", {"num_speculative_tokens": 4})
NONE = Spec("none")
SPECS = {BASELINE_TEXT: NONE, CANDIDATE_TEXT: NGRAM}


# Eight prompts cannot show that few fail or differ.
FEW = Policy(max_failed_excess=1.0)


class Crash(BaseException):
    """The process ends here. No handler of the product may catch it."""


@dataclass(frozen=True)
class Engine:
    """A running engine. ``polls``: how often it was looked at; the second look finds it ready, or failed."""

    manifest: str
    phase: Phase = Phase.STARTING
    polls: int = 0
    counters: Counters = field(
        default_factory=lambda: Counters(generation_tokens=0.0, queue_seconds=0.0, queue_count=0.0)
    )


@dataclass(frozen=True)
class Behaviour:
    """How an engine of one manifest behaves. ``failures``: starts that fail before one succeeds."""

    seconds: float = 0.1
    speculates: bool = False
    answer: str = "text"
    tokens: tuple[int, ...] = (5, 6, 7, 8, 9, 10, 11, 12)  # of every answer in a pass of answers
    failures: int = 0
    matches: bool = True


def argv_of(manifest: str) -> tuple[str, ...]:
    """What an engine of that manifest is started with."""
    spec = SPECS.get(manifest)
    try:
        config = spec.config() if spec else load_one(manifest, None).speculation()
    except InputError:
        config = None
    return (
        "vllm",
        "serve",
        "model",
        *(("--speculative-config", json.dumps(config)) if config else ()),
    )


class MemoryPlatform:
    """``mpctl.rollout.ports.Platform`` on a dictionary."""

    name = "memory"
    replaces_pods_itself = False
    scaler = None
    router = None
    engines = property(lambda self: self)

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world

    def read(self) -> Live:
        self._world.boundary("read")
        disk = self._world.disk
        return Live("svc", "chat", disk.text, text_digest(disk.text), disk.routed)

    def fits(self, *demands: Demand) -> tuple[Fit, ...]:
        return tuple(Fit.of(self.check, demand) for demand in demands)

    def check(self, demand: Demand) -> tuple[str, ...]:
        room = 2 if demand.pair else 1
        if demand.side_by_side and room > self._world.room:
            raise Refused(f"room for {self._world.room} engines")
        return ()

    def added_fields(self, arm: Arm, live: Live) -> tuple[str, ...] | None:
        return () if live.text == arm.manifest else None

    def foreign_changes(self, before: str, after: str) -> tuple[str, ...]:
        return foreign_changes(before, after) if "apiVersion" in before else ()

    def describe_foreign_change(self, known: tuple[Arm, ...], scaling: object = None) -> str | None:
        self._world.boundary("read")
        text = self._world.disk.text
        return (
            None
            if text in {arm.manifest for arm in known}
            else "service chat/svc was changed by somebody"
        )

    def device(self, arm: Arm) -> str:
        return "L4"

    def lost_pods(self) -> tuple[str, ...]:
        return self._world.lost_pods

    def settled_text(self, text: str, known: tuple[str, ...]) -> str:
        return text

    def restarted_text(self, at: str) -> str:
        return f"{self._world.disk.text}# restarted at {at}\n"

    def live_text(self) -> str:
        return self._world.disk.text

    def configs(self) -> tuple[str, ...]:
        return ()

    def scaling(self) -> None:
        return None

    def retained_baseline(self) -> None:
        return None

    def route(
        self, name: str | None, steps: tuple[int, ...], *, mirror: int = 0, force: bool = False
    ) -> Any:
        raise InputError("no route leads to an engine in memory")

    def restore_strategy(self, arm: Arm) -> None:
        pass

    def start(self, arm: Arm) -> None:
        with self._world.acting("start"):
            self._start(arm)

    def replace(self, arm: Arm, *, expect: tuple[Arm, ...], downtime: bool) -> None:
        disk = self._world.disk
        with self._world.acting("replace"):
            for other in [i for i in disk.engines if i != arm.id]:
                del disk.engines[other]
                self._world.boundary("amid replace")
            self._start(arm)
            self._world.boundary("amid replace")
            disk.routed = arm.id

    def promote(
        self,
        arm: Arm,
        *,
        expect: tuple[Arm, ...],
        downtime: bool = False,
        candidate_serves: bool = False,
    ) -> None:
        disk = self._world.disk
        with self._world.acting("promote"):
            if disk.text not in {known.manifest for known in expect}:
                raise Conflict("service chat/svc was changed by somebody else meanwhile")
            disk.text, disk.routed = arm.manifest, arm.id

    def stop_all_except(self, arm: Arm) -> None:
        with self._world.acting("stop_all_except"):
            for other in [i for i in self._world.disk.engines if i != arm.id]:
                del self._world.disk.engines[other]
                self._world.boundary("amid stop_all_except")

    def stop(self, arm: Arm) -> None:
        with self._world.acting("stop"):
            self._world.disk.engines.pop(arm.id, None)

    def state(self, arm: Arm) -> ArmState:
        self._world.boundary("state")
        return self._state(arm.id, arm.id)

    def _state(self, arm_id: str, key: str) -> ArmState:
        """Of the engine that stands under ``key``."""
        disk = self._world.disk
        engine = disk.engines.get(key)
        if engine is None:
            return ArmState(arm_id, Phase.ABSENT)
        behaviour = self._world.behaviours[engine.manifest]
        if engine.phase is Phase.STARTING:
            engine = replace(engine, polls=engine.polls + 1)
            if engine.polls > 1 and disk.failed.get(engine.manifest, 0) < behaviour.failures:
                disk.failed[engine.manifest] = disk.failed.get(engine.manifest, 0) + 1
                engine = replace(engine, phase=Phase.FAILED)
            elif engine.polls > 1:
                engine = replace(engine, phase=Phase.READY)
            disk.engines[key] = engine
        ready = engine.phase is Phase.READY
        return ArmState(
            id=arm_id,
            phase=engine.phase,
            endpoint=Endpoint(f"http://{key}", "svc") if ready else None,
            argv=argv_of(engine.manifest) if ready else None,
            matches=ready and behaviour.matches,
            message="the engine exited with code 3" if engine.phase is Phase.FAILED else "",
        )

    def describe_failure(self, arm: Arm) -> str:
        return "ValueError: scripted"

    def _start(self, arm: Arm) -> None:
        engines = self._world.disk.engines
        if arm.id not in engines or engines[arm.id].phase is Phase.FAILED:
            engines[arm.id] = Engine(arm.manifest)


class MemoryStore:
    """``mpctl.rollout.ports.Store`` on lists; every entry passes through its line. Revisions and records are on the
    disk with the next entry, as a cluster's are within the lease, and records with every ``SEALED``-th write, where a
    cluster goes by time; so a command that dies loses the ones since."""

    SEALED = 2

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world
        self._waiting: list[Entry] = []
        self._added: list[Revision] = []
        self._unsealed: dict[tuple[str, str], dict[str, Any]] = {}
        self._writes = 0

    def revisions(self) -> tuple[Revision, ...]:
        return (*self._world.disk.revisions, *self._added)

    def add_revision(self, revision: Revision) -> None:
        with self._world.acting("add_revision"):
            assert revision.number == len(self.revisions()) + 1
            self._added.append(Revision.from_record(revision.to_record()))

    def entries(self) -> tuple[Entry, ...]:
        return (*self._world.disk.ledger, *self._waiting)

    def append(self, *entries: Entry, with_next: bool = False) -> None:
        self._waiting += entries
        if with_next:
            return
        with self._world.acting("append"):
            disk = self._world.disk
            disk.ledger.extend(Entry.from_line(entry.to_line()) for entry in self._waiting)
            disk.revisions += self._added
            self._waiting, self._added = [], []
            self._seal()

    def save(
        self, operation: str, name: str, record: dict[str, Any], *, only: bool = False
    ) -> None:
        with self._world.acting("save"):
            self._world.disk.records[operation, name] = record

    def save_all(self, operation: str, records: Any, *, raw: Any = None) -> None:
        with self._world.acting("save"):
            for name, record in {**(raw or {}), **records}.items():
                self._unsealed[operation, name] = record
            self._writes += 1
            if self._writes == self.SEALED:
                self._seal()

    def _seal(self) -> None:
        self._world.disk.records |= self._unsealed
        self._unsealed, self._writes = {}, 0

    def load(self, operation: str, name: str, *, again: bool = False) -> dict[str, Any] | None:
        return self._records().get((operation, name))

    def _records(self) -> dict[tuple[str, str], dict[str, Any]]:
        return {**self._world.disk.records, **self._unsealed}

    def seal(self, value: dict[str, Any]) -> bool:
        self._world.disk.sealed = value
        return True

    def unseal(self) -> dict[str, Any] | None:
        return self._world.disk.sealed

    def prune(self, operations: frozenset[str]) -> PruneResult:
        records = self._world.disk.records
        going = [key for key in records if key[0] in operations]
        for key in going:
            del records[key]
        return PruneResult(len(going), 0, len(records), 0)

    @contextmanager
    def lease(self, purpose: str) -> Iterator[None]:
        yield


class MemoryMeter:
    """``mpctl.rollout.ports.Meter``: each prompt is answered with ten tokens after the behaviour's seconds."""

    def __init__(self, world: MemoryWorld) -> None:
        self._world = world
        self.sent: list[tuple[str, str]] = []
        self.salts: list[tuple[str, str]] = []
        self.asked: list[tuple[str, int, int]] = []  # manifest, requests, at once
        self.scored: list[tuple[str, int, int]] = []  # manifest, answers, alternatives

    def prepare(self) -> None:
        self._world.boundary("prepare")

    def complete(self, endpoint: Endpoint) -> None:
        self._world.boundary("complete")
        self._engine(endpoint)

    def counters(self, endpoint: Endpoint) -> Counters:
        self._world.boundary("counters")
        return self._engine(endpoint).counters

    def describe(self, endpoint: Endpoint, draft: str | None = None) -> EngineFacts:
        self._world.boundary("describe")
        self._engine(endpoint)
        return EngineFacts(
            engine_version="0.32.0", model="model", device="cpu", kv_pool_tokens=1000
        )

    def calibrate(self, concurrency: int) -> Calibration:
        self._world.boundary("calibrate")
        return Calibration(p50_ms=0.1, p99_ms=0.2, requests=10, concurrency=concurrency)

    def run(
        self, endpoint: Endpoint, prompts: tuple[str, ...], cell: Cell, max_tokens: int
    ) -> LoadResult:
        with self._world.acting("run"):
            engine = self._engine(endpoint)
            behaviour = self._world.behaviours[engine.manifest]
            count = len(prompts)
            self.sent += [(engine.manifest, p) for p in prompts]
            counters = replace(
                engine.counters,
                generation_tokens=(engine.counters.generation_tokens or 0) + TOKENS * count,
                queue_seconds=0.001 * count + (engine.counters.queue_seconds or 0),
                queue_count=count + (engine.counters.queue_count or 0),
            )
            if behaviour.speculates:
                accepted = (engine.counters.accepted or 0.0) + 5 * count
                counters = replace(
                    counters,
                    drafts=accepted,
                    draft_tokens=2 * accepted,
                    accepted=accepted,
                    per_position=(accepted,),
                )
            arm_id = endpoint.base_url.removeprefix("http://")
            self._world.disk.engines[arm_id] = replace(engine, counters=counters)
            gaps = ((behaviour.seconds - 0.01) / 9,) * 9
            requests = (
                StreamedRequest(0.01, 0.0, gaps, TOKENS, f"{behaviour.answer} {p}", "")
                for p in prompts
            )
            return LoadResult(
                "2026-01-01T00:00:00+00:00", behaviour.seconds * count, tuple(requests)
            )

    def ask(
        self, endpoint: Endpoint, asks: Any, *, concurrency: int, salt: str, alternatives: int = 2
    ) -> tuple[Answer, ...]:
        self._world.boundary("ask")
        behaviour = self._world.behaviours[self._engine(endpoint).manifest]
        self.asked.append((self._engine(endpoint).manifest, len(asks), concurrency))
        tokens = behaviour.tokens
        rows = tuple({token: 0.0, 99: -12.0} for token in tokens) if alternatives > 2 else ()
        certain = (0.0,) * len(tokens)
        answer = Answer((1, 2), tokens, behaviour.answer, "", (), "stop", certain, certain, rows)
        return (answer,) * len(asks)

    def score(
        self, endpoint: Endpoint, answers: Any, *, alternatives: int, concurrency: int, salt: str
    ) -> tuple[Scored | None, ...]:
        self._world.boundary("score")
        tokens = self._world.behaviours[self._engine(endpoint).manifest].tokens
        self.scored.append((self._engine(endpoint).manifest, len(answers), alternatives))

        def scored(answer: Answer) -> Scored:
            right = cycled(tokens, len(answer.ids))
            owns = [
                0.0 if token == best else -12.0
                for token, best in zip(answer.ids, right, strict=True)
            ]
            return Scored(tuple(owns), tuple((0.0, -12.0) for _ in owns), right)

        return tuple(scored(answer) for answer in answers)

    def tokenize(
        self, endpoint: Endpoint, asks: Any, answers: Any, *, concurrency: int
    ) -> tuple[Answer, ...]:
        self._world.boundary("tokenize")
        return tuple(answers)

    def send(self, endpoint: Endpoint, order: LoadOrder) -> SentBlock:
        before = self.counters(endpoint)
        self.salts.append((self._engine(endpoint).manifest, order.salt))
        result = self.run(endpoint, order.prompts, order.cell, order.max_tokens)
        if order.token_ids:
            tokens = self._world.behaviours[self._engine(endpoint).manifest].tokens
            ids = {"prompt_ids": (1, 2), "ids": cycled(tokens, TOKENS)}
            result = replace(
                result, requests=tuple(replace(request, **ids) for request in result.requests)
            )
        return SentBlock(result, before, self.counters(endpoint))

    def _engine(self, endpoint: Endpoint) -> Engine:
        engine = self._world.disk.engines[endpoint.base_url.removeprefix("http://")]
        assert engine.phase is Phase.READY
        return engine


def cycled(tokens: tuple[int, ...], count: int) -> tuple[int, ...]:
    """As many tokens as an answer has."""
    return (tokens * (count // len(tokens) + 1))[:count]


class MemoryClock:
    """``mpctl.rollout.ports.Clock``: time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class Silent:
    """``mpctl.rollout.ports.Progress`` that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.rounds: list[RoundProgress] = []
        self.shown_phases: list[tuple[PhaseProgress, ...]] = []

    def phases(self, phases: Sequence[PhaseProgress]) -> None:
        self.shown_phases.append(tuple(phases))

    def step(self, name: str, detail: str) -> None:
        self.lines.append(f"{name}: {detail}")

    def update(self, detail: str) -> None:
        self.lines.append(detail)

    def note(self, text: str) -> None:
        self.lines.append(text)

    def round(self, progress: RoundProgress) -> None:
        self.rounds.append(progress)


@dataclass
class Disk:
    """Everything that outlives the command."""

    text: str = BASELINE_TEXT
    routed: str = Arm(BASELINE_TEXT).id
    engines: dict[str, Engine] = field(
        default_factory=lambda: {Arm(BASELINE_TEXT).id: Engine(BASELINE_TEXT, Phase.READY)}
    )
    ledger: list[Entry] = field(default_factory=list)
    revisions: list[Revision] = field(default_factory=list)
    records: dict[tuple[str, str], dict[str, Any]] = field(
        default_factory=lambda: {("workload-1", "workload"): WORKLOAD.to_record()}
    )
    failed: dict[str, int] = field(default_factory=dict)
    sealed: dict[str, Any] | None = None

    def copy(self) -> Disk:
        """An independent one; the values inside are never changed."""
        return Disk(**{k: copy.copy(v) for k, v in self.__dict__.items()})


class MemoryWorld:
    """One disk and a command that works on it. ``watch`` is called at every boundary."""

    def __init__(
        self,
        behaviours: dict[str, Behaviour],
        disk: Disk | None = None,
        prompts: dict[str, Any] | None = None,
    ) -> None:
        self.behaviours = behaviours
        self.room = 2  # for engines beside the service
        self.lost_pods: tuple[str, ...] = ()
        self.prompts = {"edits": PROMPTS} if prompts is None else prompts
        self.disk = disk or Disk()
        self.meter = MemoryMeter(self)
        self.progress = Silent()
        self.trail: list[str] = []
        self.watch = lambda where: None
        self._fatal = 0
        self.context = Context(
            MemoryPlatform(self),
            MemoryStore(self),
            self.meter,
            MemoryClock(),
            self.progress,
            "somebody@here",
            self.prompts,
        )

    def die_at(self, boundary: int) -> None:
        """Crash at that boundary, counted from 1 in this world."""
        self._fatal = boundary

    def again(self) -> MemoryWorld:
        """A new command on a copy of the same disk."""
        return MemoryWorld(self.behaviours, self.disk.copy(), self.prompts)

    def boundary(self, where: str) -> None:
        self.trail.append(where)
        self.watch(where)
        if len(self.trail) == self._fatal:
            raise Crash(where)

    @contextmanager
    def acting(self, what: str) -> Iterator[None]:
        self.boundary(f"before {what}")
        yield
        self.boundary(f"after {what}")

    # What tests ask

    def live(self) -> Live:
        return Live("svc", "chat", self.disk.text, text_digest(self.disk.text), self.disk.routed)

    def unfinished(self):
        return unfinished_operation(self.disk.ledger)

    def operations(self):
        return operations(self.disk.ledger)

    def history(self) -> History:
        return History.of(tuple(self.disk.ledger), tuple(self.disk.revisions))

    def decide_back(self, to_revision: int | None = None, **options: Any) -> Decision:
        """What ``mpctl rollback`` decides; the engine's arguments are those of the live manifest."""
        serving = SPECS.get(self.disk.text)
        return decide_rollback(self.live(), self.history(), to_revision, serving=serving, **options)

    def live_revisions(self) -> list[str]:
        """Texts of the revisions that were live, oldest first."""
        numbers = live_revisions(self.disk.ledger)
        return [r.text for r in self.disk.revisions if r.number in numbers]

    def endings(self) -> list[str | None]:
        return [op.ending.value if op.ending else None for op in self.operations()]

    def check_ledger(self) -> None:
        """The chain holds when it is read back as text."""
        text = "".join(entry.to_line() + "\n" for entry in self.disk.ledger)
        assert read_ledger(text, where="ledger") == tuple(self.disk.ledger)


_VALUES = {
    "placement": (UsersPlan, "users", "placement"),
    "users": (UsersPlan, "users", "load"),
    "users_share_percent": (UsersPlan, "users", "share_percent"),
    "traffic_steps": (TrafficPlan, "traffic", "steps"),
    "step_duration_s": (TrafficPlan, "traffic", "step_duration_s"),
    "mirror_percent": (TrafficPlan, "traffic", "mirror_percent"),
    "bake_s": (BakePlan, "bake", "seconds"),
    "bake_baseline": (BakePlan, "bake", "restarts_baseline"),
    **{
        name: (RollbackPlan, "rollback", name)
        for name in (
            "undoes",
            "automatic",
            "uses_retained_baseline",
            "restored_revision",
            "kept_fields",
        )
    },
}


def with_values(planned: Plan | None = None, /, **changes: Any) -> dict[str, Any]:
    """The fields of a plan from flat names; those of ``planned`` where a value is changed in part."""
    fields: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in _VALUES:
            fields[name] = value
            continue
        kind, field_name, part = _VALUES[name]
        before = fields.get(field_name) or (getattr(planned, field_name) if planned else kind())
        fields[field_name] = replace(before, **{part: value})
    return fields


def changed(planned: Plan, **changes: Any) -> Plan:
    """The plan with other fields, by flat names."""
    return replace(planned, **with_values(planned, **changes))


def plan(strategy: Strategy, **changes: Any) -> Plan:
    """The rollout of ngram onto the baseline; ``baseline`` and ``goal`` may be given as texts, values by flat names."""
    chosen: dict[str, Any] = {
        "kind": Kind.ROLLOUT,
        "strategy": strategy,
        "baseline": BASELINE_TEXT,
        "goal": CANDIDATE_TEXT,
        "spec": NGRAM,
        "baseline_spec": NONE,
        "workload": "workload-1",
        "why": "rollout of ngram",
        "policy": FEW,
        **with_values(**changes),
    }
    for name in ("baseline", "goal"):
        if isinstance(chosen[name], str):
            chosen[name] = Manifest.of(chosen[name])
    return Plan(**chosen)


FASTER = {BASELINE_TEXT: Behaviour(), CANDIDATE_TEXT: Behaviour(seconds=0.05, speculates=True)}
SLOWER = {BASELINE_TEXT: Behaviour(), CANDIDATE_TEXT: Behaviour(seconds=0.2, speculates=True)}
BROKEN = {BASELINE_TEXT: Behaviour(), CANDIDATE_TEXT: Behaviour(failures=1000)}
