"""A run: one measurement with everything needed to judge or repeat it.

A run holds raw samples, so every reported figure can be computed again, also by a later version. One arm each of two
runs make one run, if they were measured alike.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from mpctl.errors import InputError
from mpctl.experiment.answers import AnswerCheck
from mpctl.experiment.block import BASELINE, CANDIDATE, Block, require_figures
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import CacheUse
from mpctl.experiment.users import Placement, UserLoad, UsersTraffic
from mpctl.experiment.variants import Variant
from mpctl.json_types import Json, JsonView
from mpctl.methods import Spec
from mpctl.records import Record, decode, encode, form
from mpctl.stats.sequential import MOST_LOOKS

API_VERSION = "mpctl.dev/v1alpha1"
STALL = 3.0  # times as long as its partner and its arm's median a request takes that stalls
_BUSY, _SATURATED = 0.8, 1.25


@dataclass(frozen=True)
class ArmConditions(Record):
    """The conditions of one arm."""

    spec: str  # its speculation in words, or the address of an engine that mpctl did not start
    engine_version: str
    argv: tuple[str, ...]  # of the engine, without secrets
    model: str
    model_digest: str  # sha256 over the model's files or its revision, "" where unknown
    device: str  # its name by the driver
    kv_pool_tokens: int | None  # that fit the KV cache, by the engine's log
    served_tokens: float | None = (
        None  # that the process had generated before the measurement, None where unknown
    )
    speculation: Spec | None = None  # None where nobody read it
    context_tokens: int | None = None  # longest request with its answer, as served
    draft_digest: str = ""  # as model_digest, of the draft
    image: str = ""  # of the engine's container, with its digest as the node runs it
    cache_unit: int | None = None  # tokens that its prefix cache keeps or forgets together
    cache_sparse: bool = False  # and where prompts end only
    started: str = ""  # RFC 3339 time at which its process started, "" where unknown
    cache_use: CacheUse | None = None  # by the process before the measurement, None where unknown


Reply = tuple[str, float]
"""The error of a request, empty where it was answered, and its time in s, 0 where nobody took it."""


@dataclass(frozen=True)
class Burst(Record):
    """Requests that both arms were sent before the rounds, several at once. Failures count, times do not, except that
    ``stalls`` has the candidate's requests that stall where the baseline's do not, over the median of its arm.
    ``requests``: answered by one arm or both."""

    requests: int = 0
    baseline_failed: int = 0
    candidate_failed: int = 0
    newly_failed: int = 0  # answered by the baseline alone
    newly_answered: int = 0
    new_error: str = ""
    stalls: tuple[float, ...] = ()
    elsewhere: int = 0  # requests of other variants that both arms answered alike, which say something of this one, too

    @classmethod
    def of(cls, baseline: Sequence[Reply], candidate: Sequence[Reply]) -> Burst:
        """Compare both arms' replies to the same requests. What neither answers is no request that they serve."""
        pairs = [
            pair
            for pair in zip(baseline, candidate, strict=False)
            if not (pair[0][0] and pair[1][0])
        ]
        worse = [cand[0] for _, cand in pairs if cand[0]]
        better = sum(bool(base[0]) for base, _ in pairs)
        times = times_of_both(pairs)
        typical = statistics.median(cand for _, cand in times) if times else 0.0
        stalls = tuple(cand / typical for base, cand in times if cand > STALL * max(base, typical))
        return cls(
            len(pairs), better, len(worse), len(worse), better, next(iter(worse), ""), stalls
        )

    def __add__(self, other: Burst) -> Burst:
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Burst(**{**sums, "new_error": self.new_error or other.new_error})


def times_of_both(pairs: Iterable[tuple[Reply, Reply]]) -> list[tuple[float, float]]:
    """Return both arms' times in seconds of the requests that both answered."""
    return [
        (base[1], cand[1])
        for base, cand in pairs
        if not (base[0] or cand[0]) and base[1] and cand[1]
    ]


@dataclass(frozen=True)
class PromptSet:
    """``digest``: sha256 over the prompts in order; ``count``: distinct prompts; ``repeated``: prompts that occurred
    more than once in the source. Prefix caches and suffix decoding replay what they saw, so repeats flatter.
    ``alike``: the share of prompts, 0..1, that share most of their sequences of words with an earlier one.
    ``variant``: where the class is one."""

    name: str
    digest: str
    count: int
    repeated: int
    alike: float = 0.0
    variant: Variant | None = None


@dataclass(frozen=True)
class Calibration(Record):
    """The load client's own error in ms, measured against a server of known timing: at the median and at the 99th
    percentile over ``requests``, ``concurrency`` at once. ``slowdown``: the time it took over the server's own, which
    is far faster than an engine; a client that is busy all the time takes longer, and reads ``chunks_per_s`` at
    most."""

    GONE = frozenset({"pods"})

    p50_ms: float
    p99_ms: float
    requests: int
    concurrency: int
    slowdown: float = 1.0
    chunks_per_s: float = 0.0

    def limits(self, chunks_per_s: float) -> bool:
        """Return whether the client is more than four fifths busy with so many chunks per second; False where the
        calibration did not find its limit."""
        return self.slowdown > _SATURATED and 0 < _BUSY * self.chunks_per_s < chunks_per_s


def _read_blocks(records: Any) -> tuple[Block, ...]:
    if not isinstance(records, list | tuple):
        raise ValueError("blocks must be a list")
    return tuple(_read_block(number, record) for number, record in enumerate(records, start=1))


def _read_block(number: int, record: Json) -> Block:
    try:
        return Block.from_record(record)
    except (InputError, ValueError) as error:
        raise ValueError(f"block {number}: {error}") from error


@dataclass(frozen=True)
class Run:
    """``arms`` by name (baseline, candidate); ``prompts`` and ``shares`` by class of traffic; a share is the part of
    the service's requests that are of the class, 0..1. ``planned``: rounds at most, each followed by an interim
    analysis, to which the intervals are adjusted; 0 where all rounds are analysed once. ``max_tokens``: limit of an
    answer; 0 where it is unknown. ``placement``: the engines that were measured; ``users``: the load that users brought
    to the service before, None where nobody read it; ``traffic``: their requests on both arms, where these were
    measured; ``answers``: what the pass of answers before the rounds showed, None where there was none;
    ``round_answers``: what the greedy answers of the rounds themselves showed, None where nothing compared them."""

    id: str
    created: str
    who: str
    mpctl_version: str
    arms: Mapping[str, ArmConditions] = field(
        metadata=form(
            write=lambda arms: {name: arm.to_record() for name, arm in arms.items()},
            read=lambda arms: {n: ArmConditions.from_record(record) for n, record in arms.items()},
        )
    )
    prompts: Mapping[str, PromptSet]
    shares: Mapping[str, float]
    calibration: Calibration | None
    policy: Mapping[str, float | None]  # the gate's limits by name, which mpctl.gate.policy reads
    blocks: tuple[Block, ...] = field(
        metadata=form(
            write=lambda blocks: [block.to_record() for block in blocks], read=_read_blocks
        )
    )
    planned: int = 0
    max_tokens: int = 0
    placement: Placement = Placement.SERVICE
    users: UserLoad | None = None
    traffic: UsersTraffic | None = None
    answers: AnswerCheck | None = None
    round_answers: AnswerCheck | None = None
    joined: bool = False  # of two measurements: one arm was measured apart from the other, whatever their clocks say
    accepted: tuple[
        str, ...
    ] = ()  # names of differences between the arms that are part of the change
    earlier: int = 0  # measurements of the same pair that did not promote
    bursts: Mapping[str, Burst] = field(
        default_factory=dict
    )  # by class of traffic, of requests before the rounds
    client: str = ""  # the load client with its version

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells measured, sorted."""
        return tuple(sorted({b.cell for b in self.blocks}))

    def of_cell(self, cell: Cell) -> tuple[Block, ...]:
        """Return the blocks of one cell, in the order they were measured."""
        return tuple(b for b in self.blocks if b.cell == cell)

    def to_record(self) -> Json:
        """Return a JSON object with apiVersion and kind."""
        return {"apiVersion": API_VERSION, "kind": "Run", **encode(self)}

    @classmethod
    def from_record(cls, record: JsonView, *, file: str | None = None) -> Run:
        """Read the value that :meth:`to_record` wrote.

        Raises:
            InputError: the record is no whole Run, or of a version that is not read; ``file`` names it in the message.
        """
        version, kind = (
            record.get(key) if isinstance(record, Mapping) else None
            for key in ("apiVersion", "kind")
        )
        if kind != "Run":
            raise InputError(f"must be Run, not {kind!r}", file=file, field="kind")
        if version != API_VERSION:
            raise InputError(
                f"must be {API_VERSION}, not {version!r}", file=file, field="apiVersion"
            )
        values = {k: v for k, v in record.items() if k not in ("apiVersion", "kind")}
        try:
            return decode(cls, values).checked()
        except (ValueError, OverflowError) as error:
            raise InputError(f"not a whole Run record: {error}", file=file) from error

    def checked(self) -> Run:
        """Return the run if its figures can have been measured.

        Raises:
            ValueError: one cannot; the message names it.
        """
        require_figures("", {**vars(self), "policy": None, "blocks": None})
        if max(self.planned, len({b.repeat for b in self.blocks})) > MOST_LOOKS:
            raise ValueError(f"planned rounds and repeats of blocks must be at most {MOST_LOOKS}")
        places = Counter((b.arm, b.cell.key, b.repeat) for b in self.blocks)
        twice = next((key for key, count in places.items() if count > 1), None)
        if twice:
            raise ValueError(f"duplicate block: {twice[0]}, {twice[1]}, repeat {twice[2]}")
        return self


def arm_of(run: Run, asked: str | None) -> str:
    """Return the arm asked for, else the only arm, else the candidate.

    Raises:
        InputError: the run has no such arm.
    """
    arms = sorted({b.arm for b in run.blocks})
    if not arms:
        raise InputError(f"{run.id} holds no block")
    chosen = asked or (arms[0] if len(arms) == 1 else CANDIDATE)
    if chosen not in arms:
        raise InputError(f"{run.id} has no arm {chosen}; known: {', '.join(arms)}")
    return chosen


def combine(first: Run, first_arm: str, second: Run, second_arm: str) -> Run:
    """Return ``first_arm`` of ``first`` as baseline and ``second_arm`` of ``second`` as candidate, over the blocks with
    the same prompts; repeats are numbered anew.

    Raises:
        InputError: the two have no block with the same prompts.
    """
    blocks: list[Block] = []
    theirs: dict[object, list[Block]] = {}
    for block in second.blocks:
        if block.arm == second_arm:
            theirs.setdefault((block.cell, _sent(block)), []).append(block)
    numbers: dict[object, int] = {}
    for block in first.blocks:
        matching = theirs.get((block.cell, _sent(block)), []) if block.arm == first_arm else []
        if matching:
            repeat = numbers.get(block.cell, 0)
            numbers[block.cell] = repeat + 1
            blocks.append(replace(block, arm=BASELINE, repeat=repeat))
            blocks.append(replace(matching.pop(0), arm=CANDIDATE, repeat=repeat))
    if not blocks:
        raise InputError(
            f"{first.id} and {second.id} have no block with the same prompts under the same conditions",
            hint="measure both with the same prompts, requests, concurrency and temperature",
        )
    arms = {BASELINE: first.arms.get(first_arm), CANDIDATE: second.arms.get(second_arm)}
    return replace(
        second,
        id=f"{first.id}:{first_arm} and {second.id}:{second_arm}",
        arms={name: arm for name, arm in arms.items() if arm is not None},
        blocks=tuple(blocks),
        calibration=_worse(first.calibration, second.calibration),
        planned=0,
        round_answers=None,
        joined=True,
    )


def _worse(first: Calibration | None, second: Calibration | None) -> Calibration | None:
    """Return the calibration with the larger error; None where one is missing."""
    return (
        max(first, second, key=lambda c: (c.p99_ms, -c.concurrency)) if first and second else None
    )


def _sent(block: Block) -> tuple[str, ...]:
    return tuple(s.prompt for s in block.samples)
