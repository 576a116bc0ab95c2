"""Windows of a service from readings of its engines' counters.

Missing data is never a window: an engine that restarted, went backwards, answered NaN or did not answer is left out,
and a service without a single whole engine is blind. A judgement is never made from what could not be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mpctl.experiment.counters import CounterError, Counters, Window


@dataclass(frozen=True, slots=True)
class Reading:
    """All engines of a service at one moment. ``at``: seconds of a clock that never goes back; ``engines``: counters by
    pod or arm; ``failed``: why an engine could not be read; ``wanted``: engines that serve, 0 where unknown."""

    at: float
    engines: Mapping[str, Counters] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    wanted: int = 0


@dataclass(frozen=True, slots=True)
class ServiceWindow:
    """A service between two readings."""

    seconds: float
    window: Window | None  # over the engines that were whole; None where ``blind`` says why
    engines: int = 0  # that were whole
    restarted: tuple[str, ...] = ()  # engines whose counters began again
    started: tuple[str, ...] = ()  # engines that the first reading did not have
    speculating: bool | None = (
        None  # engines export the counters of speculation; None where no engine was read
    )
    blind: str = ""


def window_between(before: Reading, after: Reading, gap_s: float) -> ServiceWindow:
    """Subtract two readings, engine by engine, and sum what is whole. ``gap_s``: the longest time between them."""
    seconds = after.at - before.at
    speculating = _speculating(after)
    if seconds <= 0:
        return ServiceWindow(seconds, None, speculating=speculating, blind="the clock went back")
    if (
        seconds > gap_s
    ):  # an engine that loads for minutes leaves such a gap: that it restarted is known all the same
        names = tuple(
            n
            for n, c in after.engines.items()
            if n in before.engines and restarted(before.engines[n], c)
        )
        blind = f"no reading for {seconds:.0f} s"
        return ServiceWindow(seconds, None, restarted=names, speculating=speculating, blind=blind)
    windows, again, unusable = [], [], []
    for name, counters in after.engines.items():
        if name not in before.engines:
            continue
        if restarted(before.engines[name], counters):
            again.append(name)
            continue
        try:
            windows.append(Window.between(before.engines[name], counters))
        except CounterError as error:
            unusable.append(f"{name}: {error}")
    started = tuple(name for name in after.engines if name not in before.engines)
    blind = "" if windows else _why_blind(after, tuple(again), started, tuple(unusable))
    if windows and 2 * len(windows) < after.wanted:
        blind = f"{len(windows)} of {after.wanted} engines could be read"
    window = None if blind else windows[0] if len(windows) == 1 else Window.total(tuple(windows))
    return ServiceWindow(seconds, window, len(windows), tuple(again), started, speculating, blind)


def restarted(before: Counters, after: Counters) -> bool:
    """Return whether an engine's counters restarted between two readings."""
    if before.started != after.started:
        return True
    return (after.generation_tokens or 0.0) < (before.generation_tokens or 0.0)


def _speculating(reading: Reading) -> bool | None:
    """False only where every engine that was read says so and none is missing."""
    if not reading.engines:
        return None
    if any(c.drafts is not None for c in reading.engines.values()):
        return True
    answered = all(c.generation_tokens is not None for c in reading.engines.values())
    return False if answered and not reading.failed else None


def _why_blind(
    after: Reading, again: tuple[str, ...], started: tuple[str, ...], unusable: tuple[str, ...]
) -> str:
    if unusable:
        return unusable[0]
    if after.failed:
        name, why = next(iter(sorted(after.failed.items())))
        return f"{name}: {why}" if name else why
    if again:
        return f"{again[0]} restarted"
    if started:
        return f"{started[0]} is new"
    return "no engine could be read"
