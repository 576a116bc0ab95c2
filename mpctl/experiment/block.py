"""A block: a slice of prompts sent to one arm, by the load client's times and the engine's counters.

Tokens come from the server's usage record; the gate compares their sum with the engine's own counter. Stream chunks are
never counted: a chunk carries several tokens under speculation, and a busy client merges chunks. What the client timed
is stored without its texts.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

import msgspec

from mpctl import safe_text
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Counters, Window
from mpctl.experiment.prompt_files import Chat, Prompt, text_of
from mpctl.json_types import Json, JsonView
from mpctl.records import Record, decode, form
from mpctl.stats.numerics import np

_ENCODING = "gzip+base64"


@dataclass(frozen=True)
class StreamedRequest:
    """A request as the load client timed it. ``prompt_ids`` and ``ids``: tokens of prompt and answer, if reported;
    ``finish``: the engine's reason for the end of the answer."""

    ttft_s: float  # from the moment it was due to the first part of its answer; 0 without one
    held_s: float  # part of that time in which the client held it back
    gaps_s: tuple[float, ...]  # between the parts of the answer
    tokens: int  # by the usage record
    text: str
    error: str
    prompt_ids: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    finish: str = ""


@dataclass(frozen=True)
class LoadResult:
    """What the load client timed of a block: when it started (ISO 8601), and its requests in their order."""

    started: str
    duration_s: float
    requests: tuple[StreamedRequest, ...]

    @classmethod
    def read(cls, record: object) -> LoadResult:
        """Read what the load client returns.

        Raises:
            BlockError: a field is missing or of another type.
        """
        try:
            return msgspec.convert(record, cls)
        except msgspec.ValidationError as error:
            raise BlockError(f"the load client's result: {error}") from error

    @property
    def chunks(self) -> int:
        """Number of parts of answers that arrived."""
        return sum(1 + len(request.gaps_s) for request in self.requests if request.ttft_s)

    def packed(self) -> Json:
        """Return a small JSON object with the times. Texts are left out: they may be users'; a block has their
        digests."""
        rows = [(r.ttft_s, r.held_s, r.gaps_s, r.tokens) for r in self.requests]
        data = gzip.compress(msgspec.json.encode(rows), mtime=0)
        return {"encoding": _ENCODING, "data": base64.b64encode(data).decode()}


BASELINE, CANDIDATE = "baseline", "candidate"  # the arms
CUT = "length"  # the finish reason of an answer that ended at a limit of tokens
SHORTEST_MS = 0.001  # no clock here resolves less, and ratios of such times stay finite


class BlockError(ValueError):
    """A result of the load client that cannot be used; the message says which field."""

    hint = "run the same command again"


class UnansweredError(BlockError):
    """The engine answered no request of a block; the message has the first reason."""

    hint = "send one of the prompts with curl; the engine's log has more, and the same command continues"


@dataclass(frozen=True)
class Sample:
    """A request: time to first token and whole time in ms, output tokens from usage, sha256 of the text, error or ''.

    A failed request has no times. ``prompt``: the first 12 hex digits of the prompt's sha256, by which the arms are
    paired.
    """

    ttft_ms: float | None
    e2e_ms: float | None
    tokens: int
    text_digest: str
    error: str = ""
    prompt: str = ""

    def __post_init__(self) -> None:
        for name in ("ttft_ms", "e2e_ms"):
            value = getattr(self, name)
            if value is not None and 0 < value < SHORTEST_MS:
                object.__setattr__(self, name, SHORTEST_MS)

    @property
    def tpot_ms(self) -> float | None:
        """Time per output token after the first, ms; None below two tokens."""
        if self.ttft_ms is None or self.e2e_ms is None or self.tokens < 2:
            return None
        return (self.e2e_ms - self.ttft_ms) / (self.tokens - 1)


_SampleRow = tuple[float | None, float | None, int, str, str, str]


def _sample_rows(samples: tuple[Sample, ...]) -> list[_SampleRow]:
    """A sample is a list in records: a run has thousands."""
    return [(s.ttft_ms, s.e2e_ms, s.tokens, s.text_digest, s.error, s.prompt) for s in samples]


def _read_samples(rows: Any) -> tuple[Sample, ...]:
    return tuple(Sample(*row) for row in msgspec.convert(rows, list[_SampleRow]))


@dataclass(frozen=True)
class Block(Record):
    """``started``: ISO 8601; ``duration_s``: wall time of the whole block; ``samples``: in the order of the prompts.

    ``step_ms``: p50, p90 and p99 of the time between stream chunks, which is that of an engine step and not of a token;
    shown, never judged, because a busy client receives chunks merged. None where no answer had two chunks. ``held_ms``:
    mean time that the client held an answered request back after it was due; part of the samples' time to first token,
    invisible to the engine's clock. ``cut``: answers that ended at a limit of tokens; ``id_count``: the token ids of
    all answers; both None where an answer came without.
    """

    arm: str
    cell: Cell
    repeat: int
    started: str
    duration_s: float
    samples: tuple[Sample, ...] = field(metadata=form(write=_sample_rows, read=_read_samples))
    window: Window
    step_ms: tuple[float, float, float] | None = None
    held_ms: float = 0.0
    cut: int | None = None
    id_count: int | None = None

    def __post_init__(self) -> None:
        if 0 < self.duration_s < SHORTEST_MS / 1000:
            object.__setattr__(self, "duration_s", SHORTEST_MS / 1000)

    @property
    def ttft_ms(self) -> float | None:
        """Mean time to first token by the engine's clock, from the due time on, ms; None where it reports none."""
        by_engine = self.window.ttft_ms
        return None if by_engine is None else by_engine + self.held_ms

    @property
    def completed(self) -> tuple[Sample, ...]:
        """Requests that were answered."""
        return tuple(s for s in self.samples if not s.error)

    @property
    def first_error(self) -> str:
        """The reason of the first request that failed; empty without one."""
        return next((s.error for s in self.samples if s.error), "")

    @property
    def output_tokens(self) -> int:
        """Sum over answered requests, from usage."""
        return sum(s.tokens for s in self.completed)

    @property
    def throughput(self) -> float:
        """Output tokens per second."""
        return self.output_tokens / self.duration_s

    @classmethod
    def from_record(cls, record: JsonView) -> Block:
        """Read the value that :meth:`to_record` wrote.

        Raises:
            ValueError: a field is missing, unknown, of another type, or a figure that cannot have been measured.
        """
        return decode(cls, record).checked()

    def checked(self) -> Block:
        """Return the block if it holds what a block can hold: anybody may have written the figures of a file.

        Raises:
            ValueError: a figure cannot have been measured; the message names it.
        """
        if self.arm not in (BASELINE, CANDIDATE):
            raise ValueError(f"arm must be baseline or candidate, not {self.arm!r}")
        if self.duration_s == 0:
            raise ValueError("duration_s must be above zero")
        for number, sample in enumerate(self.samples, start=1):
            require_figures(f"request {number}", vars(sample))
        require_figures("", {**vars(self), "cell": None, "samples": None, "window": None})
        require_figures("window", vars(self.window))
        self.window.check()
        return self

    @classmethod
    def of(
        cls,
        result: LoadResult,
        *,
        arm: str,
        cell: Cell,
        repeat: int,
        prompts: tuple[Prompt, ...],
        before: Counters,
        after: Counters,
        expected_hits: int | None = None,
    ) -> Block:
        """Return what was measured of ``prompts``, sent in this order. ``expected_hits``: their tokens that the prefix
        cache holds by what was sent before; None where nobody counted them.

        Raises:
            BlockError: there is not one request per prompt, a figure cannot have been measured, or every request
                failed.
            CounterError: the counters around the block cannot be differenced.
        """
        requests = result.requests
        if len(requests) != len(prompts):
            raise BlockError(
                f"the load client reports {len(requests)} requests, {len(prompts)} prompts were sent"
            )
        try:
            for number, request in enumerate(requests, start=1):
                require_figures(
                    f"request {number}",
                    (request.ttft_s, request.held_s, request.gaps_s, request.tokens),
                )
            require_figures("duration_s", result.duration_s or -1.0)  # none takes no time
        except ValueError as error:
            raise BlockError(f"the load client's result: {error}") from error
        samples = tuple(map(_sample, requests, prompts))
        if samples and all(sample.error for sample in samples):
            raise UnansweredError(
                f"all {len(samples)} requests failed, the first with {samples[0].error}"
            )
        answered = [r for r, sample in zip(requests, samples, strict=True) if not sample.error]
        held = [1000.0 * request.held_s for request in answered]
        return cls(
            arm=arm,
            cell=cell,
            repeat=repeat,
            held_ms=math.fsum(held) / len(held) if held and cell.rate is not None else 0.0,
            started=result.started,
            duration_s=result.duration_s,
            samples=samples,
            window=replace(Window.between(before, after), prefix_expected=expected_hits),
            step_ms=_steps([gap for request in requests for gap in request.gaps_s]),
            cut=sum(r.finish == CUT for r in answered) if all(r.finish for r in answered) else None,
            id_count=sum(len(r.ids) for r in answered) if all(r.ids for r in answered) else None,
        )


def require_figures(where: str, value: Any) -> None:
    """Check that every number below a value is zero or more and of a size that can be measured, and every text
    printable.

    Raises:
        ValueError: one is not; the message names it by ``where``.
    """
    if isinstance(value, Mapping):
        for name, item in value.items():
            require_figures(f"{where}.{name}" if where else str(name), item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            require_figures(f"{where}[{number}]", item)
    elif is_dataclass(value):
        require_figures(where, vars(value))
    elif isinstance(value, str):
        value.encode()  # half of a surrogate pair can be read from JSON and never be printed
    elif isinstance(value, int | float) and not (value == 0 or _SMALLEST <= value <= _LARGEST):
        raise ValueError(f"{where} must be a number of zero or more, not {value!r:.40}")


_SMALLEST = (
    1e-12  # above zero, of anything that is counted or timed; quotients of such figures stay finite
)
_LARGEST = 1e18  # of anything that is counted or timed; sums of such figures stay finite
_REPEATED = 24  # characters of a prompt in a message that are no coincidence


def _sample(request: StreamedRequest, prompt: Prompt) -> Sample:
    digest = hashlib.sha256(request.text.encode(errors="surrogatepass")).hexdigest()
    name = prompt_digest(prompt)
    if request.error or not request.tokens:
        lines = request.error.strip().splitlines() or ["no output"]
        reason = lines[-1]
        for text in _texts_of(prompt):
            reason = _without_prompt(reason, text)
        return Sample(None, None, 0, digest, safe_text.line(reason)[:300], name)
    total_s = request.ttft_s + math.fsum(
        request.gaps_s
    )  # the gaps telescope, whatever the chunks were
    return Sample(1000.0 * request.ttft_s, 1000.0 * total_s, request.tokens, digest, prompt=name)


def _texts_of(prompt: Prompt) -> list[str]:
    """Return what a message of the engine must not repeat: the prompt, and its messages unless they are so short that
    any message may hold them."""
    contents = (
        [message.get("content") for message in prompt.body["messages"]]
        if isinstance(prompt, Chat)
        else []
    )
    parts = [part["text"] for content in contents if isinstance(content, list) for part in content]
    return [
        text_of(prompt),
        *(t for t in (*contents, *parts) if isinstance(t, str) and len(t) >= _REPEATED // 2),
    ]


def _without_prompt(message: str, prompt: str) -> str:
    """The engine's message, unless it repeats a part of the prompt, which no record keeps."""
    repeats = any(
        prompt[start : start + _REPEATED] in message
        for start in range(0, max(len(prompt) - _REPEATED, 0) + 1, 8)
    )
    return (
        "the engine's message repeats the prompt and is left out" if prompt and repeats else message
    )


def prompt_digest(prompt: Prompt) -> str:
    """The name by which a sample keeps its prompt: 12 hex digits, two of a million prompts share one at 1 in 560."""
    return hashlib.sha256(text_of(prompt).encode(errors="surrogatepass")).hexdigest()[:12]


def _steps(gaps_s: list[float]) -> tuple[float, float, float] | None:
    if not gaps_s:
        return None
    p50, p90, p99 = 1000.0 * np.percentile(gaps_s, (50, 90, 99))
    return float(p50), float(p90), float(p99)
