"""What a report says, as one value: every format is written from it and from nothing else, so they cannot disagree.

Units are in the names. None means that a figure was not measured; every format shows it as ``?`` or null, never as
zero. Figures that JSON cannot carry (NaN, infinities) are None by the time they are here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

METRICS = ("ttft", "tpot", "e2e")


@dataclass(frozen=True)
class Figure:
    """A value with its interval: ``level`` is the coverage of [low, high], 0..1; ``n`` what it rests on; ``method``
    how the interval was made."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    level: float | None = None
    method: str = ""

    @property
    def known(self) -> bool:
        """Whether there is a value at all."""
        return self.value is not None


@dataclass(frozen=True)
class Rule:
    """One rule of the gate. ``outcome``: pass, fail, undecided (more of the same would decide), missing (a datum is not
    there) or skip (it does not apply). ``limit`` in words, as "at least 1.05x"; ``unit``: "x", "ms", "share" (0..1) or
    "" and others for counts; ``needed``: about how many more requests per arm would decide."""

    name: str
    outcome: str
    message: str
    limit: str = ""
    unit: str = ""
    figure: Figure = field(default_factory=Figure)
    needed: int | None = None


@dataclass(frozen=True)
class ArmFigures:
    """One arm in one cell. Times by name: ``mean`` by the engine's clock where it has one, ``p50``, ``p90`` and ``p99``
    by the client's. ``quantiles``: metric -> 101 values in ms, the 0th to the 100th percentile. ``goodput``: requests
    per second that met the policy's targets. ``step_ms``: time between stream chunks, one engine step and no token."""

    requests: int
    failed: int
    output_tokens: int
    tokens_per_second: float | None = None
    requests_per_second: float | None = None
    goodput: float | None = None
    ttft_ms: Mapping[str, float | None] = field(default_factory=dict)
    tpot_ms: Mapping[str, float | None] = field(default_factory=dict)
    e2e_ms: Mapping[str, float | None] = field(default_factory=dict)
    step_ms: Mapping[str, float | None] = field(default_factory=dict)
    queue_wait_ms: float | None = None
    tokens_per_step: float | None = None
    acceptance_rate: float | None = None
    acceptance_length: float | None = None
    coverage: float | None = None
    acceptance_by_position: tuple[float, ...] = ()
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    preemptions: float | None = None
    quantiles: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class CellReport:
    """One traffic class at one load. ``speedup``: of a request, paired by prompt; ``throughput``: the ratio of tokens
    per second. ``share`` of the traffic, 0..1, None where nobody gave it."""

    traffic: str
    load: str
    concurrency: int
    temperature: float
    outcome: str
    reasons: tuple[str, ...]
    speedup: Figure
    rules: tuple[Rule, ...]
    baseline: ArmFigures
    candidate: ArmFigures
    throughput: Figure = field(default_factory=Figure)
    rate: float | None = None
    share: float | None = None

    @property
    def label(self) -> str:
        """The cell as people name it."""
        return f"{self.traffic}, {self.load}"


@dataclass(frozen=True)
class ArmFacts:
    """How an arm was run, secrets already hidden."""

    spec: str
    engine_version: str
    argv: tuple[str, ...]
    model: str
    model_digest: str
    device: str
    kv_pool_tokens: int | None = None


@dataclass(frozen=True)
class Part:
    """One step from the promised to the measured speedup: ``factor``, ``speedup`` after it, ``why`` in a sentence."""

    name: str
    factor: float | None
    speedup: float | None
    why: str = ""


@dataclass(frozen=True)
class Decomposition:
    """Why the measured speedup of a cell is not what the drafts promise; ``parts`` run from the promised on."""

    cell: str
    title: str
    sentence: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Offer:
    """A price of the machine with its cost per million output tokens on each arm, in USD. ``saving``: share of the
    baseline's cost that the candidate saves, 0..1, negative where it costs more."""

    name: str
    usd_per_hour: float
    as_of: str
    source: str
    baseline_usd: float | None
    candidate_usd: float | None
    saving: Figure


@dataclass(frozen=True)
class ApiPrice:
    """What a hosted model takes per million output tokens, USD."""

    name: str
    output_usd: float
    as_of: str


@dataclass(frozen=True)
class Cost:
    """Cost per million output tokens; ``missing`` says why there is none. ``api`` is for orientation: other models."""

    offers: tuple[Offer, ...] = ()
    api: tuple[ApiPrice, ...] = ()
    missing: str = ""
    basis: str = ""


@dataclass(frozen=True)
class PromptFacts:
    """One prompt set: how many prompts, how many repeated ones were found in it."""

    name: str
    digest: str
    count: int
    repeated: int


@dataclass(frozen=True)
class ClientFacts:
    """What the load client itself adds to a latency, against a server of known timing."""

    p50_ms: float | None
    p99_ms: float | None
    requests: int
    concurrency: int


@dataclass(frozen=True)
class Report:
    """A whole run. ``sentence``: the verdict in one sentence; ``crossovers``: where speculation stops to pay."""

    run: str
    created: str
    who: str
    mpctl_version: str
    service: str
    outcome: str
    sentence: str
    reasons: tuple[str, ...]
    crossovers: tuple[str, ...]
    speedup: Figure
    cells: tuple[CellReport, ...]
    baseline: ArmFacts
    candidate: ArmFacts
    prompts: tuple[PromptFacts, ...]
    client: ClientFacts | None
    policy: Mapping[str, Any]
    cost: Cost
    commands: tuple[str, ...]
    decomposition: tuple[Decomposition, ...] = ()
    notes: tuple[str, ...] = ()

    def to_record(self) -> dict[str, Any]:
        """A JSON object by docs/schema/report.json; names are in camel case, figures rounded to six digits."""
        record: dict[str, Any] = _record(self)
        name = record.pop("run")
        metadata = {"name": name, **{k: record.pop(k) for k in ("created", "who", "mpctlVersion", "service")}}
        return {"metadata": metadata, **record}


def _record(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__"):
        return {_camel(f.name): _record(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _record(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_record(v) for v in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def finite(value: float | None) -> float | None:
    """The value, or None where it is none: NaN and infinities say that nothing was measured."""
    return value if value is not None and math.isfinite(value) else None
