"""A run: one measurement with everything needed to judge or repeat it.

A run holds raw samples, so every reported figure can be computed again, also by a later version.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from mpctl.errors import InputError
from mpctl.experiment.block import Block, require_figures
from mpctl.experiment.cell import Cell
from mpctl.experiment.traffic import UsersTraffic
from mpctl.experiment.users import Placement, UserLoad
from mpctl.gate.policy import Policy
from mpctl.records import decode, encode
from mpctl.stats.sequential import MOST_LOOKS

API_VERSION = "mpctl.dev/v1alpha1"
_BUSY, _SATURATED = 0.8, 1.25


@dataclass(frozen=True)
class ArmConditions:
    """The conditions of one arm. ``spec``: its speculation in words; ``argv``: the engine's arguments, without secrets;
    ``model_digest``: sha256 over the model's files or its revision, "" where unknown; ``device``: the driver's name of
    it; ``kv_pool_tokens``: tokens that fit the KV cache, by the engine's log; ``served_tokens``: tokens that the
    engine's process had generated before the measurement, None where unknown."""

    spec: str
    engine_version: str
    argv: tuple[str, ...]
    model: str
    model_digest: str
    device: str
    kv_pool_tokens: int | None
    served_tokens: float | None = None


@dataclass(frozen=True)
class PromptSet:
    """``digest``: sha256 over the prompts in order; ``count``: distinct prompts; ``repeated``: prompts that occurred
    more than once in the source. Prefix caches and suffix decoding replay what they saw, so repeats flatter."""

    name: str
    digest: str
    count: int
    repeated: int


@dataclass(frozen=True)
class Calibration:
    """The load client's own error in ms, measured against a server of known timing: at the median and at the 99th
    percentile over ``requests``, ``concurrency`` at once, shared by ``pods`` clients. ``slowdown``: the time it took
    over the server's own, which is far faster than an engine; a client that is busy all the time takes longer, and
    reads ``chunks_per_s`` at most."""

    p50_ms: float
    p99_ms: float
    requests: int
    concurrency: int
    slowdown: float = 1.0
    pods: int = 1
    chunks_per_s: float = 0.0

    def needed_pods(self, chunks_per_s: float) -> int:
        """Number of clients that read so many chunks per second while at most four fifths busy; as many as there are
        where the calibration did not find their limit."""
        if self.slowdown <= _SATURATED or not self.chunks_per_s:
            return self.pods
        return max(self.pods, math.ceil(self.pods * chunks_per_s / (_BUSY * self.chunks_per_s)))


@dataclass(frozen=True)
class Run:
    """``arms`` by name (baseline, candidate); ``prompts`` and ``shares`` by class of traffic; a share is the part of
    the service's requests that are of the class, 0..1. ``planned``: rounds at most, each followed by an interim
    analysis, to which the intervals are adjusted; 0 where all rounds are analysed once. ``max_tokens``: limit of an
    answer; 0 where it is unknown. ``placement``: the engines that were measured; ``users``: the load that users brought
    to the service before, None where nobody read it; ``traffic``: their requests on both arms, where these were
    measured."""

    id: str
    created: str
    who: str
    mpctl_version: str
    arms: Mapping[str, ArmConditions]
    prompts: Mapping[str, PromptSet]
    shares: Mapping[str, float]
    calibration: Calibration | None
    policy: Policy
    blocks: tuple[Block, ...]
    planned: int = 0
    max_tokens: int = 0
    placement: Placement = Placement.SERVICE
    users: UserLoad | None = None
    traffic: UsersTraffic | None = None

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells measured, sorted."""
        return tuple(sorted({b.cell for b in self.blocks}))

    def of_cell(self, cell: Cell) -> tuple[Block, ...]:
        """Return the blocks of one cell, in the order they were measured."""
        return tuple(b for b in self.blocks if b.cell == cell)

    def to_record(self) -> dict[str, Any]:
        """Return a JSON object with apiVersion and kind."""
        blocks = [b.to_record() for b in self.blocks]
        return {"apiVersion": API_VERSION, "kind": "Run", **encode(replace(self, blocks=())), "blocks": blocks}

    @classmethod
    def from_record(cls, record: Mapping[str, Any], *, file: str | None = None) -> Run:
        """Read the value that :meth:`to_record` wrote.

        Raises:
            InputError: the record is no whole Run, or of a version that is not read; ``file`` names it in the message.
        """
        version, kind = (record.get(key) if isinstance(record, Mapping) else None for key in ("apiVersion", "kind"))
        if kind != "Run":
            raise InputError(f"must be Run, not {kind!r}", file=file, field="kind")
        if version != API_VERSION:
            raise InputError(f"must be {API_VERSION}, not {version!r}", file=file, field="apiVersion")
        values = {k: v for k, v in record.items() if k not in ("apiVersion", "kind")}
        try:
            blocks = _read_blocks(values.pop("blocks", ()))
            run = decode(cls, {**values, "blocks": []}, {Policy: Policy.from_record})
            return replace(run, blocks=blocks).checked()
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
        twice = next((place for place, count in places.items() if count > 1), None)
        if twice:
            raise ValueError(f"duplicate block: {twice[0]}, {twice[1]}, repeat {twice[2]}")
        return self


def _read_blocks(records: Any) -> tuple[Block, ...]:
    if not isinstance(records, list | tuple):
        raise ValueError("blocks must be a list")
    return tuple(_read_block(number, record) for number, record in enumerate(records, start=1))


def _read_block(number: int, record: dict[str, Any]) -> Block:
    try:
        return Block.from_record(record)
    except (InputError, ValueError) as error:
        raise ValueError(f"block {number}: {error}") from error
