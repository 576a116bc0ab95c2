"""One block: a slice of prompts sent to one arm, as ``vllm bench serve`` saw it and as the engine counted it.

Tokens come from the server's usage record; the gate holds their sum against the engine's own counter. Stream chunks
are never counted, because a chunk carries several tokens under speculation and a busy client merges chunks anyway.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

from mpctl.measure.counters import Counters, Window


class BlockError(ValueError):
    """A bench result that cannot be used; the message says which field."""


@dataclass(frozen=True)
class Sample:
    """One request: time to first token and whole time in ms, output tokens from usage, sha256 of the text, error or ''.

    A failed request has no times.
    """

    ttft_ms: float | None
    e2e_ms: float | None
    tokens: int
    text_digest: str
    error: str = ""

    @property
    def tpot_ms(self) -> float | None:
        """Time per output token after the first, ms; None below two tokens."""
        if self.ttft_ms is None or self.e2e_ms is None or self.tokens < 2:
            return None
        return (self.e2e_ms - self.ttft_ms) / (self.tokens - 1)


@dataclass(frozen=True)
class Block:
    """``duration_s`` is the wall time of the whole block; ``samples`` are in prompt order."""

    arm: str
    repeat: int
    concurrency: int
    duration_s: float
    samples: tuple[Sample, ...]
    window: Window

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
        samples = [[s.ttft_ms, s.e2e_ms, s.tokens, s.text_digest, s.error] for s in self.samples]
        return {**self.__dict__, "samples": samples, "window": self.window.to_record()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Block:
        """The value :meth:`to_record` wrote."""
        samples = tuple(Sample(*s) for s in record["samples"])
        return cls(**{**record, "samples": samples, "window": Window.from_record(record["window"])})

    @classmethod
    def from_bench(cls, result: dict[str, Any], *, arm: str, repeat: int, before: Counters, after: Counters) -> Block:
        """Read the JSON that ``vllm bench serve --save-detailed`` wrote.

        Raises:
            BlockError: a per-request list is missing, of another length, or a time is not finite.
            CounterError: the counters around the block cannot be differenced.
        """
        lists = {key: _list(result, key) for key in _DETAIL}
        if len({len(v) for v in lists.values()}) != 1:
            lengths = {k: len(v) for k, v in lists.items()}
            raise BlockError(f"bench result: per-request lists of different length {lengths}")
        samples = tuple(_sample(*row) for row in zip(*lists.values(), strict=True))
        duration = float(result.get("duration") or 0.0)
        if not math.isfinite(duration) or duration <= 0:
            raise BlockError(f"bench result: duration is {duration}")
        return cls(
            arm=arm,
            repeat=repeat,
            concurrency=int(result.get("max_concurrency") or 0),
            duration_s=duration,
            samples=samples,
            window=Window.between(before, after),
        )


_DETAIL = ("ttfts", "itls", "output_lens", "generated_texts", "errors")


def _list(result: dict[str, Any], key: str) -> list[Any]:
    value = result.get(key)
    if not isinstance(value, list):
        raise BlockError(f"bench result: {key} is missing; was it run with --save-detailed")
    return value


def _sample(ttft: float, itls: list[float], tokens: int, text: str, error: str) -> Sample:
    digest = hashlib.sha256((text or "").encode()).hexdigest()
    if error or not tokens:
        lines = (error or "").strip().splitlines() or ["no output"]
        return Sample(None, None, 0, digest, lines[-1][:300])
    total = ttft + math.fsum(itls)  # the intervals telescope, whatever the chunks were
    if not math.isfinite(total):
        raise BlockError(f"bench result: a request took {total} s")
    return Sample(1000.0 * ttft, 1000.0 * total, int(tokens), digest)
