"""One block: a slice of prompts sent to one arm, as ``vllm bench serve`` saw it and as the engine counted it.

Tokens come from the server's usage record; the gate holds their sum against the engine's own counter. Stream chunks
are never counted, because a chunk carries several tokens under speculation and a busy client merges chunks anyway.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mpctl.experiment.cell import Cell
from mpctl.experiment.counters import Counters, Window
from mpctl.experiment.raw import held

SHORTEST_MS = 0.001  # no clock here resolves less, and ratios of such times stay finite


class BlockError(ValueError):
    """A bench result that cannot be used; the message says which field."""


@dataclass(frozen=True)
class Sample:
    """One request: time to first token and whole time in ms, output tokens from usage, sha256 of the text, error or ''.

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
            if isinstance(value, float) and 0 < value < SHORTEST_MS:
                object.__setattr__(self, name, SHORTEST_MS)

    @property
    def tpot_ms(self) -> float | None:
        """Time per output token after the first, ms; None below two tokens."""
        if self.ttft_ms is None or self.e2e_ms is None or self.tokens < 2:
            return None
        return (self.e2e_ms - self.ttft_ms) / (self.tokens - 1)


@dataclass(frozen=True)
class Block:
    """``started``: ISO 8601; ``duration_s``: wall time of the whole block; ``samples``: in the order of the prompts.

    ``step_ms``: p50, p90 and p99 of the time between stream chunks, which is the time of an engine step and not of a
    token; shown, never judged, since a busy client receives chunks merged. None where no answer had two chunks.
    ``held_ms``: mean time that the client held an answered request back after it was due, which is part of the samples'
    time to first token and of which the engine's clock knows nothing.
    """

    arm: str
    cell: Cell
    repeat: int
    started: str
    duration_s: float
    samples: tuple[Sample, ...]
    window: Window
    step_ms: tuple[float, float, float] | None = None
    held_ms: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.duration_s, float) and 0 < self.duration_s < SHORTEST_MS / 1000:
            object.__setattr__(self, "duration_s", SHORTEST_MS / 1000)

    @property
    def ttft_ms(self) -> float | None:
        """Mean time to first token by the engine's clock, from when requests were due, ms; None where it keeps none."""
        own = self.window.ttft_ms
        return None if own is None else own + self.held_ms

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

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        samples = [[s.ttft_ms, s.e2e_ms, s.tokens, s.text_digest, s.error, s.prompt] for s in self.samples]
        return {
            **self.__dict__,
            "cell": self.cell.to_record(),
            "samples": samples,
            "window": self.window.to_record(),
            "step_ms": list(self.step_ms) if self.step_ms else None,
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Block:
        """The value :meth:`to_record` wrote."""
        steps = record["step_ms"]
        return cls(
            **{
                **record,
                "cell": Cell.from_record(record["cell"]),
                "samples": tuple(Sample(*s) for s in record["samples"]),
                "window": Window.from_record(record["window"]),
                "step_ms": (steps[0], steps[1], steps[2]) if steps else None,
            }
        )

    def checked(self) -> Block:
        """Itself, when it holds what a block can hold: figures in a file may have been written by anybody.

        Raises:
            ValueError: a figure is none, or one that was never measured; the message names it.
        """
        whole_number("repeat", self.repeat)
        if finite_number("duration_s", self.duration_s) == 0:
            raise ValueError("duration_s must be above zero")
        if self.arm not in ("baseline", "candidate"):
            raise ValueError(f"arm must be baseline or candidate, not {self.arm!r}")
        for number, sample in enumerate(self.samples, start=1):
            whole_number(f"tokens of request {number}", sample.tokens)
            for name in ("ttft_ms", "e2e_ms"):
                value = getattr(sample, name)
                if value is not None:
                    finite_number(f"{name} of request {number}", value)
            if not all(isinstance(text, str) for text in (sample.text_digest, sample.error, sample.prompt)):
                raise ValueError(f"request {number} has a digest, an error or a prompt that is no text")
        for name, value in self.window.to_record().items():
            if name == "per_position":
                for rate in value:
                    finite_number("per_position", rate)
            elif value is not None or name == "generation_tokens":
                finite_number(f"window's {name}", value)
        self.window.check()
        for value in self.step_ms or ():
            finite_number("step_ms", value)
        finite_number("held_ms", self.held_ms)
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
        already put right by :func:`mpctl.experiment.raw.corrected`.

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
        duration = float(result.get("duration") or 0.0)
        if not math.isfinite(duration) or duration <= 0:
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


def finite_number(name: str, value: Any) -> float:
    """The value, if it is a finite number of zero or more; raises ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _physical(value):
        raise ValueError(f"{name} must be a number of zero or more, not {value!r:.40}")
    return value


def _physical(value: float) -> bool:
    return value == 0 or _SMALLEST <= value <= _LARGEST


def whole_number(name: str, value: Any) -> int:
    """The value, if it is a whole number of zero or more; raises ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LARGEST:
        raise ValueError(f"{name} must be a whole number of zero or more, not {value!r:.40}")
    return value


_SMALLEST = 1e-12  # above zero, of anything that is counted or timed; quotients of such figures stay finite
_LARGEST = 1e18  # of anything that is counted or timed; sums of such figures stay finite
_DETAIL = ("ttfts", "itls", "output_lens", "generated_texts", "errors")


def _list(result: dict[str, Any], key: str) -> list[Any]:
    value = result.get(key)
    if not isinstance(value, list):
        raise BlockError(f"bench result: {key} is missing; was it run with --save-detailed")
    return value


def _started(result: dict[str, Any]) -> str:
    """When the client began, with a zone: it writes local time without one, to the second (``20261121-045846``)."""
    try:
        return datetime.fromisoformat(str(result.get("date"))).astimezone().isoformat()
    except ValueError as error:
        raise BlockError(f"bench result: date is {result.get('date')!r}") from error


def _sample(ttft: float, itls: list[float], tokens: int, text: str, error: str, prompt: str) -> Sample:
    digest = hashlib.sha256((text or "").encode()).hexdigest()
    name = prompt_digest(prompt)
    if error or not tokens:
        lines = (error or "").strip().splitlines() or ["no output"]
        return Sample(None, None, 0, digest, lines[-1][:300], name)
    total = ttft + math.fsum(itls)  # the intervals telescope, whatever the chunks were
    if not math.isfinite(total):
        raise BlockError(f"bench result: a request took {total} s")
    return Sample(1000.0 * ttft, 1000.0 * total, int(tokens), digest, prompt=name)


def prompt_digest(prompt: str) -> str:
    """The name by which a sample keeps its prompt: 12 hex digits, two of a million prompts share one at 1 in 560."""
    return hashlib.sha256(prompt.encode()).hexdigest()[:12]


def _steps(itls: list[list[float]]) -> tuple[float, float, float] | None:
    gaps = [gap for request in itls for gap in request]
    if not gaps:
        return None
    import numpy as np

    p50, p90, p99 = 1000.0 * np.percentile(gaps, (50, 90, 99))
    return float(p50), float(p90), float(p99)
