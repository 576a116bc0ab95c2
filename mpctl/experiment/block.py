"""A block: a slice of prompts sent to one arm, by ``vllm bench serve``'s report and the engine's counters.

Tokens come from the server's usage record; the gate compares their sum with the engine's own counter. Stream chunks are
never counted: a chunk carries several tokens under speculation, and a busy client merges chunks. The client's own JSON
is stored without its texts, and corrected where it is known to be wrong.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from datetime import datetime
from typing import Any

from mpctl import bounded
from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Counters, Window
from mpctl.records import Record, decode, form

_ENCODING = "gzip+base64"


_TEXTS = ("generated_texts", "token_ids", "errors")  # answers, and messages that may repeat a prompt


def pack(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a small JSON object that holds a large one. Texts are left out: they may be users'; a block has their
    digests."""
    figures = {key: value for key, value in result.items() if key not in _TEXTS}
    data = gzip.compress(json.dumps(figures).encode(), mtime=0)
    return {"encoding": _ENCODING, "data": base64.b64encode(data).decode()}


def unpack(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object that :func:`pack` was given.

    Raises:
        ValueError: the record is damaged.
    """
    if record.get("encoding") != _ENCODING:
        raise ValueError(f"encoding is {record.get('encoding')!r}, not {_ENCODING}")
    loaded = bounded.loads(bounded.gunzip(base64.b64decode(record["data"], validate=True)))
    if not isinstance(loaded, dict):
        raise ValueError(f"holds no JSON object but a {type(loaded).__name__}")
    return loaded


def corrected(result: Mapping[str, Any], cell: Cell) -> dict[str, Any]:
    """Return the result with times that begin when a request was due.

    The client starts its clock when it sends. In an open loop with a limit in flight it may hold a request back before
    that, and a user would wait: the time is added to the time to first token, as vLLM's own
    ``e2els_including_queue`` does for whole requests. In a closed loop nothing is added.
    """
    waits = held(result, cell)
    return {**result, "ttfts": [t + w for t, w in zip(result["ttfts"], waits, strict=True)]} if waits else dict(result)


def held(result: Mapping[str, Any], cell: Cell) -> list[float]:
    """Return how long the client held each request back after it was due, s; empty in a closed loop or if unknown."""
    waits, ttfts = result.get("queue_times"), result.get("ttfts")
    if cell.rate is None or not isinstance(waits, list) or not isinstance(ttfts, list) or len(waits) != len(ttfts):
        return []
    if not all(isinstance(value, int | float) for value in (*waits, *ttfts)):
        return []
    return [max(w, 0.0) for w in waits]


BASELINE, CANDIDATE = "baseline", "candidate"  # the arms
SHORTEST_MS = 0.001  # no clock here resolves less, and ratios of such times stay finite


class BlockError(ValueError):
    """A bench result that cannot be used; the message says which field."""


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
    import msgspec

    return tuple(Sample(*row) for row in msgspec.convert(rows, list[_SampleRow]))


@dataclass(frozen=True)
class Block(Record):
    """``started``: ISO 8601; ``duration_s``: wall time of the whole block; ``samples``: in the order of the prompts.

    ``step_ms``: p50, p90 and p99 of the time between stream chunks, which is that of an engine step and not of a token;
    shown, never judged, because a busy client receives chunks merged. None where no answer had two chunks. ``held_ms``:
    mean time that the client held an answered request back after it was due; part of the samples' time to first token,
    invisible to the engine's clock.
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
    def output_tokens(self) -> int:
        """Sum over answered requests, from usage."""
        return sum(s.tokens for s in self.completed)

    @property
    def throughput(self) -> float:
        """Output tokens per second."""
        return self.output_tokens / self.duration_s

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Block:
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
    def from_bench(
        cls,
        result: dict[str, Any],
        *,
        arm: str,
        cell: Cell,
        repeat: int,
        prompts: tuple[str, ...],
        before: Counters,
        after: Counters,
    ) -> Block:
        """Read the JSON that ``vllm bench serve --save-detailed`` wrote for ``prompts``, sent in this order, with times
        already corrected by :func:`mpctl.experiment.block.corrected`.

        Raises:
            BlockError: a per-request list is missing, of another length than the prompts, or a time or the
                date cannot be read.
            CounterError: the counters around the block cannot be differenced.
        """
        lists = {key: _list(result, key) for key in _DETAIL}
        if len({len(v) for v in lists.values()}) != 1:
            lengths = {k: len(v) for k, v in lists.items()}
            raise BlockError(f"bench result: per-request lists of different length {lengths}")
        if len(lists["errors"]) != len(prompts):
            raise BlockError(f"bench result: {len(lists['errors'])} requests, {len(prompts)} prompts were sent")
        rows = zip(*lists.values(), prompts, strict=True)
        duration = result.get("duration") or 0.0
        if not _is_number(duration) or not math.isfinite(duration) or duration <= 0:
            raise BlockError(f"bench result: duration is {duration}")
        waits = [w for w, error in zip(held(result, cell), lists["errors"], strict=False) if not error]
        return cls(
            arm=arm,
            cell=cell,
            repeat=repeat,
            held_ms=1000.0 * math.fsum(waits) / len(waits) if waits else 0.0,
            started=_started(result),
            duration_s=duration,
            samples=tuple(_sample(*row) for row in rows),
            window=Window.between(before, after),
            step_ms=_steps(lists["itls"]),
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


_SMALLEST = 1e-12  # above zero, of anything that is counted or timed; quotients of such figures stay finite
_LARGEST = 1e18  # of anything that is counted or timed; sums of such figures stay finite
_REPEATED = 24  # characters of a prompt in a message that are no coincidence
_DETAIL = ("ttfts", "itls", "output_lens", "generated_texts", "errors")


def _list(result: dict[str, Any], key: str) -> list[Any]:
    value = result.get(key)
    if not isinstance(value, list):
        raise BlockError(f"bench result: {key} is missing; was it run with --save-detailed")
    for number, item in enumerate(value):
        if not _FORM[key](item):
            raise BlockError(f"bench result: {key}[{number}] is {item!r:.60}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST


def _is_text(value: object) -> bool:
    return value is None or isinstance(value, str)


_FORM: dict[str, Callable[[Any], bool]] = {
    "ttfts": _is_number,
    "itls": lambda value: isinstance(value, list) and all(map(_is_number, value)),
    "output_lens": lambda value: value is None or (_is_number(value) and value == int(value)),
    "generated_texts": _is_text,
    "errors": _is_text,
}


def _started(result: dict[str, Any]) -> str:
    """Start time of the client, with a zone: it writes local time without one, to the second (``20261121-045846``)."""
    try:
        return datetime.fromisoformat(str(result.get("date"))).astimezone().isoformat()
    except ValueError as error:
        raise BlockError(f"bench result: date is {result.get('date')!r}") from error


def _sample(ttft: float, itls: list[float], tokens: int, text: str, error: str, prompt: str) -> Sample:
    digest = hashlib.sha256((text or "").encode(errors="surrogatepass")).hexdigest()
    name = prompt_digest(prompt)
    if error or not tokens:
        lines = (error or "").strip().splitlines() or ["no output"]
        return Sample(None, None, 0, digest, _without_prompt(lines[-1], prompt)[:300], name)
    total = ttft + math.fsum(itls)  # the intervals telescope, whatever the chunks were
    if not math.isfinite(total):
        raise BlockError(f"bench result: a request took {total} s")
    return Sample(1000.0 * ttft, 1000.0 * total, int(tokens), digest, prompt=name)


def _without_prompt(message: str, prompt: str) -> str:
    """The engine's message, unless it repeats a part of the prompt, which no record keeps."""
    repeats = any(
        prompt[start : start + _REPEATED] in message for start in range(0, max(len(prompt) - _REPEATED, 0) + 1, 8)
    )
    return "the engine's message repeats the prompt and is left out" if prompt and repeats else message


def prompt_digest(prompt: str) -> str:
    """The name by which a sample keeps its prompt: 12 hex digits, two of a million prompts share one at 1 in 560."""
    return hashlib.sha256(prompt.encode(errors="surrogatepass")).hexdigest()[:12]


def _steps(itls: list[list[float]]) -> tuple[float, float, float] | None:
    gaps = [gap for request in itls for gap in request]
    if not gaps:
        return None
    import numpy as np

    p50, p90, p99 = 1000.0 * np.percentile(gaps, (50, 90, 99))
    return float(p50), float(p90), float(p99)
