"""vLLM's counters, read from /metrics and differenced around a block.

Drafts are counted only in steps that carried a proposal, so for methods that do not always propose (ngram, suffix) the
acceptance length overstates the gain. Figures over all steps use the engine's own count of them,
``steps = inter-token latencies + first tokens``: with G tokens generated from D drafts, ``tokens per step = G / steps``
and ``coverage = D / steps``. Generated minus accepted tokens is no count of steps: what is accepted beyond the end of
an answer is never generated (4.00 tokens per step were read so where 1.00 was true, with answers of 4 tokens).

Every counter has a ``_created`` gauge beside it and one series per data-parallel ``engine``: series are selected by
their exact sample name and summed over all labels but ``position`` before anything is divided. Averages of ratios per
engine break the identity ``acceptance length = 1 + sum of per-position rates``, which is checked on every window.

The page is another's text. Only lines of the series above are parsed, and they are limited in number, length and
labels, because the parser's time grows with the square of the labels of a line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING

from mpctl.json_types import Json

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

_SPEC = "vllm:spec_decode_num_"
_PLAIN = {
    "generation_tokens": "vllm:generation_tokens_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "preemptions": "vllm:num_preemptions_total",
    "prefix_queries": "vllm:prefix_cache_queries_total",
    "prefix_hits": "vllm:prefix_cache_hits_total",
    "queue_seconds": "vllm:request_queue_time_seconds_sum",
    "queue_count": "vllm:request_queue_time_seconds_count",
    "ttft_seconds": "vllm:time_to_first_token_seconds_sum",
    "ttft_count": "vllm:time_to_first_token_seconds_count",
    "itl_seconds": "vllm:inter_token_latency_seconds_sum",
    "itl_count": "vllm:inter_token_latency_seconds_count",
    "tpot_seconds": "vllm:request_time_per_output_token_seconds_sum",
    "tpot_count": "vllm:request_time_per_output_token_seconds_count",
    "drafts": f"{_SPEC}drafts_total",
    "draft_tokens": f"{_SPEC}draft_tokens_total",
    "accepted": f"{_SPEC}accepted_tokens_total",
}
_PER_POSITION = f"{_SPEC}accepted_tokens_per_pos_total"
_LATENCY = "vllm:e2e_request_latency_seconds"
_READ_ONCE = {  # gauges, and what is read of a process since its start: no window differences them
    "running": "vllm:num_requests_running",
    "waiting": "vllm:num_requests_waiting",
    "latency_seconds": f"{_LATENCY}_sum",
    "latency_count": f"{_LATENCY}_count",
}
_LATENCY_BUCKET = f"{_LATENCY}_bucket"
_FIELD_OF = {sample: field for field, sample in {**_PLAIN, **_READ_ONCE}.items()}
_STARTED = "process_start_time_seconds"
_YEAR_2100 = 4_102_444_800
_ENDED = "vllm:request_success_total"
_UNFINISHED = ("abort", "error")  # the reasons of requests that ended without a whole answer
_NAMES = frozenset((*_FIELD_OF, _LATENCY_BUCKET, _PER_POSITION, _STARTED, _ENDED))

# vLLM 0.32 exports 70 of these series per data-parallel engine, with 2 or 3 labels and 100 characters each.
_MOST_SERIES = 10_000
_MOST_LABELS = 64
_LONGEST_LINE = 8192
_SHAPE = re.compile(r"[ \t]*([A-Za-z_:][A-Za-z0-9_:]*)[ \t]*[{ \t]")


Buckets = tuple[tuple[float, float], ...]
"""Cumulative counts of a histogram by upper bound in seconds; what is above the last bound is in no bucket."""


class CounterError(ValueError):
    """Two readings that cannot be subtracted; the message names the series."""

    hint = "run the same command again"


class WrongCounters(CounterError):
    """What answers is not vLLM's /metrics, which another try does not change."""

    hint = "let vLLM answer /metrics with its own counters: names of another engine or of a proxy cannot be read"


@dataclass(frozen=True)
class CacheUse:
    """Requests, the tokens of their prompts, and how many of these the prefix cache held."""

    requests: float = 0.0
    asked: float = 0.0
    held: float = 0.0

    def __add__(self, other: CacheUse) -> CacheUse:
        return CacheUse(
            self.requests + other.requests, self.asked + other.asked, self.held + other.held
        )

    @property
    def prompt_tokens(self) -> float:
        """Mean tokens of a prompt."""
        return self.asked / self.requests

    @property
    def cached_tokens(self) -> float:
        """Mean tokens of a prompt that the cache held."""
        return self.held / self.requests


@dataclass(frozen=True)
class _Counts:
    """What a reading holds, and the difference of two. None means the series is absent: for the speculation counters,
    that it is off."""

    generation_tokens: float | None = None
    preemptions: float | None = None
    queue_seconds: float | None = None
    queue_count: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted: float | None = None
    per_position: tuple[float, ...] = ()
    ttft_seconds: float | None = None
    ttft_count: float | None = None
    tpot_seconds: float | None = None
    tpot_count: float | None = None
    itl_seconds: float | None = None
    itl_count: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None

    @property
    def requests(self) -> float:
        """Requests that got their first token, or that were scheduled where nobody counts those."""
        return (self.queue_count if self.ttft_count is None else self.ttft_count) or 0.0

    @property
    def cache_use(self) -> CacheUse | None:
        """What the prefix cache held of the prompts; None where it is off or not counted, or nobody asked."""
        if not self.requests or not self.prefix_queries or self.prefix_hits is None:
            return None
        return CacheUse(self.requests, self.prefix_queries, self.prefix_hits)


@dataclass(frozen=True)
class Counters(_Counts):
    """A reading, summed over engines.

    ``started`` is process_start_time_seconds (Unix time), which tells a restart that a counter alone may hide.
    ``running`` and ``waiting`` requests at this moment; ``latency_*``: of whole requests since the process started;
    ``unfinished``: requests since then that were aborted or failed.
    """

    prompt_tokens: float | None = None
    started: float | None = None
    running: float | None = None
    waiting: float | None = None
    latency_seconds: float | None = None
    latency_count: float | None = None
    latency_buckets: Buckets = ()
    unfinished: float | None = None
    tokens_by_engine: tuple[float, ...] = field(
        default=(), compare=False
    )  # of which generation_tokens is the sum

    @property
    def started_at(self) -> str:
        """RFC 3339 time at which the process started, "" where it does not say one that is possible."""
        started = self.started or 0
        possible = 0 < started < _YEAR_2100
        return (
            datetime.fromtimestamp(started, UTC).isoformat(timespec="seconds") if possible else ""
        )

    @classmethod
    def parse(cls, text: str) -> Counters:
        """Read a Prometheus text exposition.

        Raises:
            CounterError: the text is no exposition, a counter is NaN or infinite, or a series is duplicate.
        """
        known_series: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
        sums: dict[str, float] = {}
        buckets: dict[float, float] = {}
        positions: dict[int, float] = {}
        engines: list[tuple[list[tuple[str, str]], float]] = []
        for sample in samples(text, _NAMES):
            if sample.name == _STARTED:
                sums["started"] = _finite(sample.name, sample.value)
                continue
            series = (sample.name, tuple(sorted(sample.labels.items())))
            if series in known_series:  # summed, it would double what was counted
                raise WrongCounters(
                    f"duplicate series in /metrics: {sample.name} with labels {sample.labels}"
                )
            known_series.add(series)
            if sample.name in _FIELD_OF:
                name = _FIELD_OF[sample.name]
                sums[name] = sums.get(name, 0.0) + _finite(sample.name, sample.value)
                if name == "generation_tokens":
                    engines.append((sorted(sample.labels.items()), sample.value))
            elif sample.name == _ENDED:
                if sample.labels.get("finished_reason") in _UNFINISHED:
                    value = _finite(sample.name, sample.value)
                    sums["unfinished"] = sums.get("unfinished", 0.0) + value
            elif sample.name == _PER_POSITION:
                position = sample.labels.get("position", "")
                if not position.isdecimal():
                    raise CounterError(f"{_PER_POSITION} has the position {position!r}")
                index = int(position)
                positions[index] = positions.get(index, 0.0) + _finite(sample.name, sample.value)
            else:
                bound = _bound(sample.labels.get("le", "inf"))
                if math.isfinite(bound):
                    buckets[bound] = buckets.get(bound, 0.0) + _finite(sample.name, sample.value)
        values: Json = {**sums}
        return cls(
            latency_buckets=tuple(sorted(buckets.items())),
            per_position=tuple(positions[i] for i in sorted(positions)),
            tokens_by_engine=tuple(value for _, value in sorted(engines)),
            **values,
        )

    @property
    def latency_s(self) -> float | None:
        """Mean time of a whole request since the process started, in seconds."""
        return _ratio(self.latency_seconds, self.latency_count)

    @property
    def latency_p99_s(self) -> float | None:
        """Upper bound of the 99th percentile of it, by the engine's histogram; None where it is above all bounds."""
        if not self.latency_count:
            return None
        most = 0.99 * self.latency_count
        return next((bound for bound, below in self.latency_buckets if below >= most), None)


def samples(text: str, names: Collection[str]) -> Iterator[Sample]:
    """Parse the samples of these names from a Prometheus text exposition; no other line is parsed.

    Raises:
        CounterError: the text is no exposition, or has more or larger series of these names than an engine exports.
    """
    lines = list(_lines_of(text, names))
    from prometheus_client.parser import (
        text_string_to_metric_families,
    )  # brings an HTTP server with it

    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n" if lines else ""):
            yield from family.samples
    except (ValueError, KeyError) as error:
        raise WrongCounters(f"/metrics is not a Prometheus exposition ({error})") from error


def _lines_of(text: str, names: Collection[str]) -> Iterator[str]:
    """Lines of the samples of these names, each within its limits. Of any other line only the beginning is read."""
    number = start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        shape = _SHAPE.match(text, start, end)
        if shape is None:
            if text[start:end].strip()[:1] not in ("", "#"):
                raise WrongCounters(
                    "/metrics is not a Prometheus exposition (a line is neither a sample nor a comment)"
                )
        elif shape[1] in names:
            number += 1
            line = text[start : min(end, start + _LONGEST_LINE + 1)]
            if number > _MOST_SERIES:
                raise WrongCounters(
                    f"/metrics has more than {_MOST_SERIES} series of vLLM's counters"
                )
            if len(line) > _LONGEST_LINE or line.count("=") > _MOST_LABELS:
                raise WrongCounters(
                    f"/metrics: a line of {shape[1]} has more than {_MOST_LABELS} labels or {_LONGEST_LINE} characters"
                )
            yield line
        start = end + 1


def _bound(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise WrongCounters(
            f"/metrics is not a Prometheus exposition (a bucket ends at {text[:80]!r})"
        ) from error


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise CounterError(f"{name} is {value}")
    return value


@dataclass(frozen=True)
class Window(_Counts):
    """The difference of two readings. Token counts are exact; ratios are None where their denominator is zero or
    absent. ``prefix_expected``: hits that the prompts of the measurement itself explain
    (:class:`mpctl.experiment.prefixes.PrefixCache`); None where nobody counted them."""

    generation_tokens: float = 0.0
    prefix_expected: float | None = None

    @classmethod
    def between(cls, before: Counters, after: Counters) -> Window:
        """Subtract two readings of one engine.

        Raises:
            CounterError: the generated-token counter is missing, the process restarted, a counter went backwards or
                disappeared, or the differences contradict each other (more accepted than drafted, per-position sum
                unequal to accepted).
        """
        if before.started != after.started:
            raise CounterError(
                "the engine restarted inside the window (process_start_time_seconds changed)"
            )
        engines = (before.tokens_by_engine, after.tokens_by_engine)
        if len(engines[0]) == len(engines[1]) > 1 and any(
            a < b for b, a in zip(*engines, strict=True)
        ):
            raise CounterError("one of the engines behind the address restarted inside the window")
        deltas: dict[str, float | None] = {}
        for name, sample in _PLAIN.items():
            deltas[name] = _delta(sample, getattr(before, name), getattr(after, name))
        if deltas["generation_tokens"] is None:
            raise WrongCounters("vllm:generation_tokens_total is missing from /metrics")
        pairs = zip_longest(before.per_position, after.per_position)
        positions = tuple(
            _delta(f"{_PER_POSITION} of position {i}", b, a) or 0.0
            for i, (b, a) in enumerate(pairs)
        )
        deltas.pop("prompt_tokens")
        window = cls(per_position=positions, **deltas)  # type: ignore[arg-type]
        window.check()
        return window

    @classmethod
    def total(cls, windows: tuple[Window, ...]) -> Window:
        """Pool windows of one arm: counts are summed, ratios computed from the sums."""
        width = max((len(w.per_position) for w in windows), default=0)
        positions = tuple(
            sum(w.per_position[i] for w in windows if i < len(w.per_position)) for i in range(width)
        )
        sums: Json = {}
        for name in _SUMMED:
            values = [getattr(w, name) for w in windows]
            sums[name] = None if any(v is None for v in values) else sum(values)
        return cls(per_position=positions, **sums)

    def check(self) -> None:
        """Raise CounterError where the counts contradict each other."""
        if self.accepted is None or self.draft_tokens is None:
            return
        if self.accepted > self.draft_tokens:
            raise CounterError(
                f"{self.accepted:.0f} tokens accepted of {self.draft_tokens:.0f} drafted"
            )
        if self.per_position and abs(sum(self.per_position) - self.accepted) > 0.5:
            raise CounterError(
                f"per-position acceptances add up to {sum(self.per_position):.0f}, "
                f"the accepted counter says {self.accepted:.0f}"
            )

    @property
    def speculating(self) -> bool:
        """True when speculation is on (absent series: off; zero: on and idle)."""
        return self.drafts is not None

    @property
    def steps(self) -> float | None:
        """Steps per sequence: every step brings at least one token, and carries at most one draft.

        The engine counts them: one inter-token latency per step after the first, and the first. An engine without
        that count has at least generated minus accepted tokens, and at least a draft's step per draft and a first step
        per request. That is too few for short answers: acceptances are counted before an answer is cut at its stop or
        its limit, so up to K tokens per answer are accepted and never generated.

        The engine observes the latency of a step when its output is read. A step of a request that was over by then (a
        stop string, a client that left), or that is read after the window, is in no latency, and its draft is counted
        all the same. More drafts than latencies are therefore as many steps as drafts.
        """
        if self.accepted is None or self.drafts is None or not self.generation_tokens:
            return None
        first = self.ttft_count if self.ttft_count is not None else self.queue_count
        if self.itl_count is not None and first is not None:
            return max(self.itl_count + first, self.drafts) or None
        return max(self.generation_tokens - self.accepted, self.drafts + (first or 0.0)) or None

    @property
    def tokens_per_step(self) -> float | None:
        """Generated tokens per step; 1.0 without speculation."""
        if not self.speculating:
            return 1.0 if self.generation_tokens else None
        return _ratio(self.generation_tokens, self.steps)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted over drafted tokens, 0..1."""
        return _ratio(self.accepted, self.draft_tokens)

    @property
    def acceptance_length(self) -> float | None:
        """1 + accepted / drafts: tokens per step *that carried a draft*, bonus token included."""
        ratio = _ratio(self.accepted, self.drafts)
        return None if ratio is None else 1.0 + ratio

    @property
    def coverage(self) -> float | None:
        """Share of steps that carried a draft, 0..1."""
        return _ratio(self.drafts, self.steps)

    @property
    def prefix_hit_share(self) -> float | None:
        """Share of the prompts' tokens that the prefix cache held, 0..1."""
        return _ratio(self.prefix_hits, self.prefix_queries)

    @property
    def position_rates(self) -> tuple[float, ...]:
        """Share of drafts whose token at position i was accepted, position 0 first."""
        return tuple(p / self.drafts for p in self.per_position) if self.drafts else ()

    @property
    def queue_wait_ms(self) -> float | None:
        """Mean wait between arrival and first scheduling, in milliseconds."""
        return _ms(_ratio(self.queue_seconds, self.queue_count))

    @property
    def ttft_ms(self) -> float | None:
        """Mean time to first token, as the engine saw it, in milliseconds."""
        return _ms(_ratio(self.ttft_seconds, self.ttft_count))

    @property
    def tpot_ms(self) -> float | None:
        """Mean time per output token after the first, as the engine saw it, in milliseconds."""
        return _ms(_ratio(self.tpot_seconds, self.tpot_count))

    @property
    def step_ms(self) -> float | None:
        """Mean time of a decode step, as the engine saw it, in milliseconds: vLLM observes its inter-token latency once
        per output of a step and not per token."""
        return _ms(_ratio(self.itl_seconds, self.itl_count))

    @property
    def time_per_token_ms(self) -> float | None:
        """Mean time of a decode step over tokens per step, in milliseconds: unlike :attr:`tpot_ms` it counts requests
        that have not finished."""
        step, tokens = self.step_ms, self.tokens_per_step
        return None if step is None or not tokens else step / tokens


_SUMMED = ({*_PLAIN} - {"prompt_tokens"}) | {"prefix_expected"}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000.0 * seconds


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _delta(name: str, before: float | None, after: float | None) -> float | None:
    if after is None:
        if before is not None:
            raise CounterError(f"{name} disappeared inside the window")
        return None
    if after < (before or 0.0):
        raise CounterError(f"{name} went back from {before:.0f} to {after:.0f}")
    return after - (before or 0.0)
