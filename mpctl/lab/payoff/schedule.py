"""K by batch size: the schedule that an engine drafts by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpctl.lab.payoff.grid import Choice
from mpctl.methods.preflight.engine_rules import SCHEDULED_SINCE
from mpctl.methods.versions import Version, show


def schedule(choices: Sequence[Choice], engine: Version | None) -> str:
    """``num_speculative_tokens_per_batch_size`` for the best K of each concurrency, or why one K is better."""
    ranges = _batch_ranges(
        {choice.concurrency: choice.k if _pays(choice) else 0 for choice in choices}
    )
    if len(ranges) < 2:
        return ""
    text = _setting(ranges)
    if engine is None:
        return f"{text}, from vLLM {show(SCHEDULED_SINCE)} on; older engines do not honour it"
    if engine < SCHEDULED_SINCE:
        return f"one K: vLLM {show(engine)} does not honour a schedule; from {show(SCHEDULED_SINCE)} on {text}"
    return text


def _pays(choice: Choice) -> bool:
    return choice.entry.prediction.throughput.value > 1


def _setting(ranges: Sequence[tuple[int, int, int]]) -> str:
    """The setting, as ``--set`` takes it."""
    return "num_speculative_tokens_per_batch_size=" + str([list(span) for span in ranges]).replace(
        " ", ""
    )


def _batch_ranges(best: Mapping[float, int]) -> list[tuple[int, int, int]]:
    """``(first, last, K)`` of batch sizes from the best K by concurrency; 0 where speculation loses."""
    ranges: list[tuple[int, int, int]] = []
    ordered = sorted(best)
    for index, concurrency in enumerate(ordered):
        k, first = best[concurrency], 1 if index == 0 else ranges[-1][1] + 1
        following = ordered[index + 1] if index + 1 < len(ordered) else concurrency
        last = max(int((concurrency * following) ** 0.5), first)
        if ranges and ranges[-1][2] == k:
            ranges[-1] = (ranges[-1][0], last, k)
        else:
            ranges.append((first, last, k))
    return ranges
