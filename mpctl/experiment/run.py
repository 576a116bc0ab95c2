"""One measurement with everything a stranger needs to judge it or to repeat it.

A run holds raw samples, so whatever is reported can be computed again, and by a later version differently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from mpctl.errors import InputError
from mpctl.experiment.block import Block, finite_number, whole_number
from mpctl.experiment.cell import Cell
from mpctl.gate.policy import Policy
from mpctl.stats.alpha_spending import MOST_LOOKS

API_VERSION = "mpctl.dev/v1alpha1"


@dataclass(frozen=True)
class ArmConditions:
    """What one arm was. ``spec``: its speculation in words; ``argv``: the engine's own arguments, without secrets;
    ``model_digest``: sha256 over the model's files or its revision, "" where unknown; ``device``: as the driver names
    it; ``kv_pool_tokens``: tokens that fit the KV cache, by the engine's own log."""

    spec: str
    engine_version: str
    argv: tuple[str, ...]
    model: str
    model_digest: str
    device: str
    kv_pool_tokens: int | None


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
    """What the client itself adds to a time, in ms, measured against a server of known timing: the difference at the
    median and at the 99th percentile over ``requests``, ``concurrency`` at once."""

    p50_ms: float
    p99_ms: float
    requests: int
    concurrency: int


@dataclass(frozen=True)
class Run:
    """``arms`` by name (baseline, candidate); ``prompts`` and ``shares`` by class of traffic; a share is the part of
    the service's requests that are of the class, 0..1. ``planned``: rounds at most, each followed by a look, so that
    the intervals are as wide as they were when the gate looked; 0 where it looks once. ``max_tokens``: limit of an
    answer; 0 where it is not known."""

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

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The traffic conditions measured, sorted."""
        return tuple(sorted({b.cell for b in self.blocks}))

    def of_cell(self, cell: Cell) -> tuple[Block, ...]:
        """The blocks of one traffic condition, in the order they were measured."""
        return tuple(b for b in self.blocks if b.cell == cell)

    def to_record(self) -> dict[str, Any]:
        """A JSON object with apiVersion and kind."""
        return {
            "apiVersion": API_VERSION,
            "kind": "Run",
            **self.__dict__,
            "arms": {name: {**arm.__dict__, "argv": list(arm.argv)} for name, arm in self.arms.items()},
            "prompts": {name: dict(prompts.__dict__) for name, prompts in self.prompts.items()},
            "shares": dict(self.shares),
            "calibration": dict(self.calibration.__dict__) if self.calibration else None,
            "policy": self.policy.to_record(),
            "blocks": [b.to_record() for b in self.blocks],
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any], *, file: str | None = None) -> Run:
        """The value :meth:`to_record` wrote.

        Raises:
            InputError: it is no such record, or of a version that is not read; ``file`` names it in the message.
        """
        version, kind = (record.get(key) if isinstance(record, Mapping) else None for key in ("apiVersion", "kind"))
        if kind != "Run":
            raise InputError(f"must be Run, not {kind!r}", file=file, field="kind")
        if version != API_VERSION:
            raise InputError(f"must be {API_VERSION}, not {version!r}", file=file, field="apiVersion")
        values = {k: v for k, v in record.items() if k not in ("apiVersion", "kind")}
        try:
            calibration = values["calibration"]
            return cls(
                **{
                    **values,
                    "arms": {k: ArmConditions(**{**v, "argv": tuple(v["argv"])}) for k, v in values["arms"].items()},
                    "prompts": {k: PromptSet(**v) for k, v in values["prompts"].items()},
                    "calibration": Calibration(**calibration) if calibration else None,
                    "policy": Policy.from_stored(values["policy"], file=file),
                    "blocks": tuple(_block(number, b) for number, b in enumerate(values["blocks"], start=1)),
                }
            ).checked()
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise InputError(f"not a whole Run record: {error}", file=file) from error

    def checked(self) -> Run:
        """Itself, when its own figures are what they have to be.

        Raises:
            ValueError: one is not; the message names it.
        """
        for name in ("planned", "max_tokens"):
            whole_number(name, getattr(self, name))
        if max(self.planned, len({b.repeat for b in self.blocks})) > MOST_LOOKS:
            raise ValueError(f"planned rounds and repeats of blocks must be at most {MOST_LOOKS}")
        places = Counter((b.arm, b.cell.key, b.repeat) for b in self.blocks)
        twice = next((place for place, count in places.items() if count > 1), None)
        if twice:
            raise ValueError(f"the block of the {twice[0]}, {twice[1]}, repeat {twice[2]} stands there twice")
        for name in ("id", "created", "who", "mpctl_version"):
            _check(getattr(self, name), str, name)
        for kind, share in self.shares.items():
            finite_number(f"share of {kind}", share)
        for kind, arm in self.arms.items():
            _check(arm, ArmConditions, f"arms.{kind}")
        for kind, prompts in self.prompts.items():
            _check(prompts, PromptSet, f"prompts.{kind}")
        if self.calibration is not None:
            _check(self.calibration, Calibration, "calibration")
        return self


def _check(value: Any, kind: Any, name: str) -> None:
    """Raises ValueError unless ``value`` is of the ``kind`` that a record's field is said to have."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        for field in fields(kind):
            _check(getattr(value, field.name), hints[field.name], f"{name}.{field.name}")
    elif get_origin(kind) is tuple:
        for number, item in enumerate(value):
            _check(item, get_args(kind)[0], f"{name}[{number}]")
    elif kind is float:
        finite_number(name, value)
    elif kind is int or (kind == int | None and value is not None):
        whole_number(name, value)
    elif kind is str and not isinstance(value, str):
        raise ValueError(f"{name} must be a text, not {value!r}")
    elif kind is str:
        value.encode()  # half of a surrogate pair can be read from JSON and never be printed


def _block(number: int, record: dict[str, Any]) -> Block:
    try:
        return Block.from_record(record).checked()
    except (InputError, ValueError) as error:
        raise ValueError(f"block {number}: {error}") from error
