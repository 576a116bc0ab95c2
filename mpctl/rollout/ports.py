"""Protocols for a rollout's surroundings: a platform, a store, a meter, a clock and a progress display.

An *arm* is one way the service can run: a manifest and the engine made from it. Its id follows from the manifest's
bytes, so starting the same arm twice is one arm, and a retained arm is found again by its id.

Every method that acts is idempotent: called again after a crash it finishes what it began, or finds it done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Protocol

from mpctl import commands
from mpctl.errors import MpctlError, Refused
from mpctl.experiment.block import Block, LoadResult
from mpctl.experiment.prompt_files import Prompt
from mpctl.formatting import duration
from mpctl.json_types import Json
from mpctl.rollout.revision import text_digest

if TYPE_CHECKING:
    from mpctl.experiment.answers import Answer, Ask, Scored
    from mpctl.experiment.cell import Cell
    from mpctl.experiment.counters import CacheUse, Counters
    from mpctl.experiment.run import Calibration
    from mpctl.rollout.ledger import Entry
    from mpctl.rollout.revision import Revision

COPY = "-copy"


@dataclass(frozen=True)
class Arm:
    """A manifest that can be run; ``manifest`` is the whole text. ``copy``: of the arm that serves, beside it and
    without users."""

    manifest: str
    copy: bool = False

    @property
    def id(self) -> str:
        """``arm-`` and ten hex digits of the manifest's sha256; of a copy followed by ``-copy``."""
        return f"arm-{text_digest(self.manifest)[:10]}{COPY if self.copy else ''}"


@dataclass(frozen=True)
class Demand:
    """The engines that have to fit on a platform at once."""

    arm: Arm
    side_by_side: bool = False  # a second engine runs next to the serving one
    pair: bool = False  # and a copy of the serving one, too
    downtime: bool = False  # the service may be down while an engine starts
    retain: bool = False  # the baseline keeps running after the promotion
    load_job: bool = False  # a Job sends the prompts


@dataclass(frozen=True)
class Fit:
    """Whether the engines of a demand can run: notes on running them, or the fault that keeps them from it, with what
    to do about it."""

    notes: tuple[str, ...] = ()
    fault: str = ""
    hint: str | None = None

    @classmethod
    def of(cls, check: Callable[[Demand], tuple[str, ...]], demand: Demand) -> Fit:
        """The answer of a check that refuses what cannot run."""
        try:
            return cls(check(demand))
        except Refused as refused:
            return cls(fault=refused.message, hint=refused.hint)

    def require(self) -> tuple[str, ...]:
        """The notes.

        Raises:
            Refused: the engines cannot run.
        """
        if self.fault:
            raise Refused(self.fault, hint=self.hint)
        return self.notes


class Phase(StrEnum):
    """Phase of an arm: absent (never started or stopped), starting, ready, failed (will not get ready by itself)."""

    ABSENT = "Absent"
    STARTING = "Starting"
    READY = "Ready"
    FAILED = "Failed"


@dataclass(frozen=True)
class Endpoint:
    """The endpoint of an arm.

    ``base_url`` without a path; ``model``, the name that requests carry; ``token``, what requests are authorised with,
    kept out of every text; ``inside``: the URL inside the cluster, where there is one. ``socket``: the unix socket that
    leads to ``base_url``, where there is one.
    ``same_user``: an engine that this user started on this machine; whoever else listens there gets nothing.
    """

    base_url: str
    model: str
    token: str | None = field(default=None, repr=False)
    inside: str | None = None
    socket: str | None = None
    same_user: bool = False

    @property
    def address(self) -> str:
        """Where the engine itself listens, however it is reached."""
        return self.inside or self.base_url


class BlockLost(MpctlError):
    """A part of the load client was lost in the middle of a block. What it measured is of another load; the block can
    be sent again."""


@dataclass(frozen=True)
class LoadOrder:
    """The requests of a block, to be sent once and in order."""

    prompts: tuple[Prompt, ...]
    cell: Cell
    max_tokens: int
    key: str = (
        ""  # names the block: a client that outlives a command finds by it what it sent already
    )
    salt: str = ""  # of the prefix cache: requests with different salts share nothing in it
    token_ids: bool = False  # ask for those of prompts and answers


@dataclass(frozen=True)
class SentBlock:
    """A block that was sent: what the load client timed, and the engine's counters right before and after it.
    ``expected_hits``: as :meth:`mpctl.experiment.block.Block.of` takes them."""

    result: LoadResult
    before: Counters
    after: Counters
    expected_hits: int | None = None

    def block(self, cell: Cell, *, arm: str, repeat: int, prompts: tuple[Prompt, ...]) -> Block:
        """Return what was measured of ``prompts``, sent in this order under ``cell``.

        Raises:
            BlockError: the client's result cannot be used.
            CounterError: the counters cannot be differenced.
        """
        return Block.of(
            self.result,
            arm=arm,
            cell=cell,
            repeat=repeat,
            prompts=prompts,
            before=self.before,
            after=self.after,
            expected_hits=self.expected_hits,
        )


@dataclass(frozen=True)
class EngineFacts:
    """The conditions of a measurement, recorded so that anyone can repeat it.

    ``engine_version`` and ``model`` (a repository or a path): the engine's own answers; ``device``: the GPU or CPU
    model's name; ``model_digest``: hex, of the model's files (a revision where there are none here);
    ``draft_digest``: the same of the draft; ``kv_pool_tokens``: tokens the KV cache holds; ``served_tokens``: generated
    since the process started; ``context_tokens``: longest request with its answer; ``cache_unit``: tokens that the
    prefix cache keeps together; ``cache_sparse``: where prompts end only; ``started``: RFC 3339 time of the process;
    ``cache_use``: what its prefix cache held since then.
    """

    engine_version: str = ""
    model: str = ""
    device: str = ""
    model_digest: str = ""
    kv_pool_tokens: int | None = None
    served_tokens: float | None = None
    context_tokens: int | None = None
    draft_digest: str = ""
    cache_unit: int | None = None
    cache_sparse: bool = False
    started: str = ""
    cache_use: CacheUse | None = None


@dataclass(frozen=True)
class ArmState:
    """The state of one arm. ``argv``: the arguments that the running engine was started with; None while nothing runs.

    ``matches``: the running engine's own arguments are those of the manifest. ``message`` says why an arm failed or
    waits. ``kv_pool_tokens``: tokens that fit its KV cache, by the engine's own log; None where that is not at hand.
    ``pods_ready``: how many of several engines are ready, where an arm has several. ``retained_since``: RFC 3339
    time of a retained baseline; empty otherwise. ``traffic``: its share of production traffic as text, where an
    HTTPRoute splits it. ``draining``: an engine of it that was stopped finishes its requests and may hold a GPU.
    ``image``: of its container with its digest, as a node reports it.
    """

    id: str
    phase: Phase
    endpoint: Endpoint | None = None
    argv: tuple[str, ...] | None = None
    matches: bool = False
    message: str = ""
    restarts: int = 0
    kv_pool_tokens: int | None = None
    pods_ready: int = 0
    retained_since: str = ""
    traffic: str = ""
    draining: bool = False
    image: str = ""


@dataclass(frozen=True)
class RetainedBaseline:
    """The baseline kept running after promotion. ``since``: RFC 3339; ``route``: the HTTPRoute that can return the
    traffic to it; ``pods_ready`` of it, ``pods`` of the service."""

    arm: str
    since: str
    route: str
    pods_ready: int
    pods: int


@dataclass(frozen=True)
class Live(commands.OnService):
    """The service as it is now: the manifest's text, a version that changes with every write, and the arm that gets
    the traffic."""

    name: str
    namespace: str
    text: str
    version: str
    routed: str | None


@dataclass(frozen=True)
class PruneResult:
    """Objects (files on this machine) that a pruning deleted and those that remain, with their sizes in bytes."""

    objects: int
    size: int
    remaining: int
    remaining_size: int


class Scaler(Protocol):
    """Adds and removes engines of a service by itself."""

    def pin(self, scaling: Json) -> None:
        """Pin the autoscaler at the recorded number of engines, unless another writer changed it since."""

    def unpin(self, scaling: Json) -> tuple[str, ...]:
        """Unpin the autoscaler as recorded. Returns what was left unchanged because another writer changed it."""


class Router(Protocol):
    """Splits users' traffic between a service and its second arm."""

    def shift(self, route: Json, percent: int) -> None:
        """Give the second arm ``percent`` of the route's traffic, 1..100. Returns once the route is in effect."""

    def require_shifted(self, route: Json, percent: int) -> None:
        """Raise MpctlError unless the route is as :meth:`shift` left it."""

    def mirror(self, route: Json, percent: int) -> None:
        """Copy ``percent`` of the route's requests, 1..100, to the second arm, whose answers nobody reads. Returns once
        the route is in effect."""

    def require_mirrored(self, route: Json, percent: int) -> None:
        """Raise MpctlError unless the route is as :meth:`mirror` left it."""

    def unshift(self, route: Json) -> tuple[str, ...]:
        """Restore the route as recorded and let the second arm finish its requests. Returns what was left unchanged
        because another writer changed it."""

    def counters(self, arm: Arm) -> Mapping[str, Counters]:
        """Counters of every ready pod of an arm by its name, without those that cannot be read."""

    def start_retained(self, arm: Arm, route: Json) -> None:
        """Start a retained baseline with as many engines as the service, without traffic."""


class Engines(Protocol):
    """The engines of a service, by arm."""

    def start(self, arm: Arm) -> None:
        """Start ``arm`` side by side with the serving one, without traffic; a copy of the serving one, too."""

    def stop(self, arm: Arm) -> None:
        """Stop this arm alone, which does not serve; no-op when it does not exist."""

    def stop_all_except(self, arm: Arm) -> None:
        """Stop every other arm."""

    def state(self, arm: Arm) -> ArmState:
        """The state of an arm; phase ABSENT for an unknown arm."""

    def describe_failure(self, arm: Arm) -> str:
        """The engine's own last words, for an error message."""

    def device(self, arm: Arm) -> str:
        """Return the name of the GPU that an arm runs on; empty where it is unknown."""

    def lost_pods(self) -> tuple[str, ...]:
        """Describe how the pods that were measured last ended, where somebody else ended them."""


class Platform(Protocol):
    """The platform that runs a service. Errors are those of ``mpctl.errors``."""

    name: str
    replaces_pods_itself: bool
    """True when writing an arm as the service replaces the serving pods by itself, without a second arm."""

    @property
    def engines(self) -> Engines:
        """The engines that run the service and its other arms."""

    @property
    def scaler(self) -> Scaler | None:
        """None where nothing scales services; :meth:`scaling` is None there, too."""

    @property
    def router(self) -> Router | None:
        """None where traffic cannot be shared; :meth:`route` refuses there."""

    def read(self) -> Live:
        """The service as it is now. Raises InputError when it does not exist."""

    def fits(self, *demands: Demand) -> tuple[Fit, ...]:
        """Whether each of the demands can run here, from one reading. Changes nothing."""

    def scaling(self) -> Json | None:
        """The service's autoscaler as it is, as a JSON object; None without one."""

    def route(
        self, name: str | None, steps: tuple[int, ...], *, mirror: int = 0, force: bool = False
    ) -> Json:
        """The route by which users reach the service, as it is, as a JSON object with its ``name``.

        ``name``: needed where there are several; ``steps``: percentages that a candidate is to get; ``mirror``: the
        percentage of requests it is to get copies of; ``force``: also one that somebody else writes. Raises InputError
        or Refused where there is none, or a step or the mirror is not possible.
        """

    def retained_baseline(self) -> RetainedBaseline | None:
        """The retained baseline, which one write can give the traffic back; None without one."""

    def replace(self, arm: Arm, *, expect: tuple[Arm, ...], downtime: bool) -> None:
        """Run ``arm`` in the place of the serving one. ``expect``: as with :meth:`promote`.

        Without ``downtime`` a platform that replaces pods itself keeps the old engine until the new one is ready;
        elsewhere the service is down until then.
        """

    def promote(
        self,
        arm: Arm,
        *,
        expect: tuple[Arm, ...],
        downtime: bool = False,
        candidate_serves: bool = False,
    ) -> None:
        """Make ``arm`` the service: its manifest is the live one and it gets all the traffic.

        ``candidate_serves``: the second arm serves the traffic meanwhile and keeps running.
        ``expect``: the arms whose manifests may be live now; anything else was written by somebody else and raises
        Conflict.
        """

    def restore_strategy(self, arm: Arm) -> None:
        """Restore the update strategy that a change replaced for its duration, once ``arm`` serves."""

    def added_fields(self, arm: Arm, live: Live) -> tuple[str, ...] | None:
        """Paths of the fields that ``live`` has and ``arm``'s manifest has not because the platform adds them by itself
        now; empty when both are the same, None when they differ otherwise."""

    def foreign_changes(self, before: str, after: str) -> tuple[str, ...]:
        """Paths of the fields in which two manifests differ beyond speculation and the draft's staging."""

    def describe_foreign_change(
        self, known: tuple[Arm, ...], scaling: Json | None = None
    ) -> str | None:
        """Describe what another writer did to the service: who, when and which fields; None where nothing is found.

        ``known``: the arms whose manifests may be live; ``scaling``: the autoscaler as an operation recorded it.
        """

    def settled_text(self, text: str, known: tuple[str, ...]) -> str:
        """A live manifest without what an operation sets for its duration. ``known``: manifests of the operation."""

    def restarted_text(self, at: str) -> str:
        """The live manifest with a mark that makes the platform start its engines afresh. ``at``: RFC 3339."""

    def configs(self) -> tuple[str, ...]:
        """Objects outside of the manifest that shape the service's pods, with their generations."""

    def live_text(self) -> str | None:
        """The service's manifest; None when somebody deleted the service."""

    def address(self, turn: int) -> Endpoint | None:
        """The endpoint that users send requests to, or the engine whose ``turn`` it is where that cannot be reached
        from here; None where no engine serves."""


@dataclass(frozen=True)
class RecordCounts:
    """Numbers of a service's records. ``records``: of measurements, with pieces and seals; ``others``: locks,
    logs of stopped engines, and what an older version left."""

    revisions: int = 0
    entries: int = 0
    records: int = 0
    others: int = 0

    @property
    def total(self) -> int:
        """Number of objects or files."""
        return self.revisions + self.entries + self.records + self.others

    def describe(self) -> str:
        """The numbers in words, for a question."""
        counted = (
            (self.revisions, "revision", "revisions"),
            (self.entries, "ledger entry", "ledger entries"),
            (self.records, "record of measurements", "records of measurements"),
            (self.others, "lock or log", "locks and logs"),
        )
        return ", ".join(
            f"{number} {singular if number == 1 else plural}"
            for number, singular, plural in counted
            if number
        )


class Store(Protocol):
    """Stores the history of one service, apart from the service itself."""

    def revisions(self) -> tuple[Revision, ...]:
        """All recorded revisions, oldest first."""

    def add_revision(self, revision: Revision) -> None:
        """Record a revision for good; the number must be the next one."""

    def entries(self) -> tuple[Entry, ...]:
        """The ledger, oldest first. Raises Tampered when an entry is missing or forged."""

    def append(self, *entries: Entry, with_next: bool = False) -> None:
        """Write entries durably before returning; a crash may leave the first of them. ``with_next``: they may be
        written with the next ones, and lost until then."""

    def save(self, operation: str, name: str, record: Json, *, only: bool = False) -> None:
        """Keep a record of an operation; atomic, replaces one of the same name. ``only``: the operation has no other;
        replaces one that cannot be read, too, and is durable with the next entry."""

    def save_all(
        self,
        operation: str,
        records: Mapping[str, Json],
        *,
        raw: Mapping[str, Json] | None = None,
    ) -> None:
        """Keep several records of an operation with as few writes as possible, durably with the next entry, or earlier.
        ``raw``: records that nothing reads again, left out where there is no room."""

    def load(self, operation: str, name: str, *, again: bool = False) -> Json | None:
        """A record kept by :meth:`save`, or None; ``again``: also one that another command saved since the first look.
        Raises Tampered when another writer replaced it."""

    def seal(self, value: Json) -> bool:
        """Keep a value with texts of users where secrets are kept, in place of the one before; False where there is no
        such place."""

    def unseal(self) -> Json | None:
        """The value of :meth:`seal`; None without one, or where it may not be read."""

    def prune(self, operations: frozenset[str]) -> PruneResult:
        """Delete the records of these operations, and store the rest in as few objects as possible. The lease must be
        held. Raises NotPermitted before anything is deleted."""

    def recorded(self) -> RecordCounts:
        """Count the records, also those that cannot be read."""

    def purge(self) -> None:
        """Delete all of it; may be repeated. The lease must be held. Raises NotPermitted before anything is deleted."""

    def holder(self) -> str | None:
        """The operator that holds the lock, as text; None without one."""

    def lease(self, purpose: str) -> AbstractContextManager[None]:
        """Lock the service for one operator. Raises Conflict, which names the holder."""


class Meter(Protocol):
    """Sends load and reads counters."""

    def prepare(self) -> None:
        """Called before engines start, so that a client that is slow to load can do so meanwhile."""

    def complete(self, endpoint: Endpoint) -> None:
        """A real completion of four tokens; raises MpctlError when there is none."""

    def counters(self, endpoint: Endpoint) -> Counters:
        """Read the engine's counters now."""

    def describe(self, endpoint: Endpoint, draft: str | None = None) -> EngineFacts:
        """The conditions that the running engine and its machine report; unknown ones are None or empty. ``draft``: the
        path or repository of its draft."""

    def send(self, endpoint: Endpoint, order: LoadOrder) -> SentBlock:
        """Send a block; without a key whatever was sent before."""

    def ask(
        self,
        endpoint: Endpoint,
        asks: Sequence[Ask],
        *,
        concurrency: int,
        salt: str,
        alternatives: int = 2,
    ) -> tuple[Answer, ...]:
        """Return the answers in the order of ``asks``; one that failed has its error. ``salt``: of the prefix cache;
        ``alternatives``: of each token, 2 to 20, or 0 for the text alone; more than 2 come with the answer."""

    def score(
        self,
        endpoint: Endpoint,
        answers: Sequence[Answer],
        *,
        alternatives: int,
        concurrency: int,
        salt: str,
    ) -> tuple[Scored | None, ...]:
        """Return the engine's log probabilities of answers' tokens and of as many alternatives, 1 to 20; None where it
        gives none. ``salt``: another than that of the answers."""

    def tokenize(
        self,
        endpoint: Endpoint,
        asks: Sequence[Ask],
        answers: Sequence[Answer],
        *,
        concurrency: int,
    ) -> tuple[Answer, ...]:
        """Return the answers with the token ids of their prompts and texts, of those without; an engine that does not
        tokenize leaves them as they are."""

    def calibrate(self, concurrency: int) -> Calibration:
        """Measure the load client's own error against a server of known timing."""


class Clock(Protocol):
    """Time, so that tests need none."""

    def now(self) -> datetime:
        """The current time, with a zone."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


@dataclass(frozen=True)
class RoundProgress:
    """Progress of a measurement after round ``number`` of at most ``at_most``.

    ``elapsed_s`` counts the time in blocks, so it continues after a crash; ``remaining_s`` is at most that long at the
    present pace. ``figures``: name, estimate and confidence interval of each figure so far, empty while only one arm
    was measured. ``open``: the rules that an interim analysis could not decide. ``users``: the users' requests so far,
    in words; empty where none are measured.
    """

    number: int
    at_most: int
    elapsed_s: float
    remaining_s: float
    figures: tuple[tuple[str, str, str], ...] = ()
    open: tuple[str, ...] = ()
    users: str = ""

    def describe(self) -> str:
        """Return ``round 9 of at most 12, 40 s spent, at most 13 s left: throughput ratio 1.31x (1.20 to 1.45); open:
        TTFT``."""
        spent, remaining = duration(self.elapsed_s), duration(self.remaining_s)
        line = f"round {self.number} of at most {self.at_most}, {spent} spent, at most {remaining} left"
        figures = ", ".join(
            f"{name} {estimate} ({interval})" for name, estimate, interval in self.figures
        )
        line = f"{line}: {figures}" if figures else line
        return f"{line}; open: {', '.join(self.open)}" if self.open else line


class PhaseState(Enum):
    """The state of a phase of an operation."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class PhaseProgress:
    """A phase of an operation in users' words, such as ``answers``. ``expected_s``: what it took in earlier operations
    of the service; None without one."""

    name: str
    state: PhaseState
    spent_s: float = 0.0
    expected_s: float | None = None


class Progress(Protocol):
    """Reports what happens, while it happens."""

    def phases(self, phases: Sequence[PhaseProgress]) -> None:
        """Report the phases of an operation, whenever one of its steps begins; when it ended, none is running."""

    def step(self, name: str, detail: str) -> None:
        """Report that a step begins."""

    def update(self, detail: str) -> None:
        """Report that the current step continues."""

    def note(self, text: str) -> None:
        """Report a line that stays on the screen."""

    def round(self, progress: RoundProgress) -> None:
        """Show that a round of the measurement ended."""
