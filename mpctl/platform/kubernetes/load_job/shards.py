"""One block sent by several pods: its division into shards, and the merge of their raw samples. Pure.

Pod i of N sends every N-th request of the same ordered list, with its part of the concurrency or of the arrival rate: N
independent Poisson arrivals of rate R/N are one of rate R. Percentiles are never merged; they follow from the merged
samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mpctl.experiment.cell import Cell

MOST_APART_S = 0.25  # of the pods' starts; a block of seconds would begin with a part of its load

# Lists of the bench client's result with one item per request. Whatever else it computes is of one pod's requests.
_SAMPLES = ("ttfts", "itls", "output_lens", "generated_texts", "errors", "queue_times", "input_lens")


@dataclass(frozen=True)
class Shard:
    """The part of a block that one pod sends."""

    prompts: tuple[str, ...]
    cell: Cell


@dataclass(frozen=True)
class Answer:
    """A pod's answer. ``began_s``: when its first request was due, by the clock of the command; ``waited_s``: part of
    the result's duration that the client spent at the start barrier."""

    result: dict[str, Any]
    began_s: float
    waited_s: float

    @property
    def duration_s(self) -> float:
        """Time from the start to the last answer."""
        return float(self.result.get("duration") or 0.0) - self.waited_s

    @property
    def ended_s(self) -> float:
        """Time of the last complete answer, by the clock of the command."""
        return self.began_s + self.duration_s


def split(prompts: Sequence[str], cell: Cell, pods: int) -> tuple[Shard, ...]:
    """Divide a block among at most ``pods`` pods: no pod is without a prompt or a request in flight."""
    count = max(1, min(pods, len(prompts), cell.concurrency))
    base, remainder = divmod(cell.concurrency, count)
    rate = None if cell.rate is None else cell.rate / count
    return tuple(
        Shard(tuple(prompts[i::count]), replace(cell, concurrency=base + (i < remainder), rate=rate))
        for i in range(count)
    )


def merge(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the result of the whole block: the samples in the order of the requests, and the time from the first
    start to the last answer.

    Raises:
        ValueError: the shards are not those of one list, or they did not start together.
    """
    begins = [answer.began_s for answer in answers]
    apart = max(begins) - min(begins)
    if apart > MOST_APART_S:
        raise ValueError(f"the pods started {apart:.2f} s apart, more than {MOST_APART_S:g} s")
    results = [answer.result for answer in answers]
    names = [name for name in _SAMPLES if all(isinstance(result.get(name), list) for result in results)]
    return {
        "date": min(str(result.get("date")) for result in results),
        "duration": max(answer.ended_s for answer in answers) - min(begins),
        "load_pods": len(answers),
        "started_apart_s": apart,
        **{name: _interleaved([result[name] for result in results]) for name in names},
    }


def _interleaved(lists: Sequence[Sequence[Any]]) -> list[Any]:
    total, count = sum(map(len, lists)), len(lists)
    if [len(shard) for shard in lists] != [len(range(i, total, count)) for i in range(count)]:
        raise ValueError(f"the pods report {[len(shard) for shard in lists]} requests, which is no list in turns")
    return [lists[i % count][i // count] for i in range(total)]
