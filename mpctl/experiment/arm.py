"""An arm in one cell, condensed to its figures, and its slowest requests.

The load client times chunks as they arrive. On a machine with too few processors the API server and the client get
less of them than the engine: chunks reach the client merged, in the extreme a whole answer at once, so that the first
token seems to come with the last one (722 ms at p99 where the engine's mean is 15 ms). A tool parser holds chunks back
as well. Then the report says why it has no percentile of single tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mpctl.experiment.block import Block
from mpctl.experiment.counters import Window
from mpctl.experiment.run import Calibration
from mpctl.stats.numerics import np

NO_TEXT = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Spread:
    """Times of ``n`` requests in ms, by the load client's clock."""

    mean: float
    p50: float
    p90: float
    p99: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Condense the values that were measured; None if there are none."""
        present = [v for v in values if v is not None]
        if not present:
            return None
        p50, p90, p99 = np.percentile(present, (50, 90, 99))
        return cls(float(np.mean(present)), float(p50), float(p90), float(p99), len(present))


@dataclass(frozen=True)
class ArmSummary:
    """An arm over all its blocks; ``seconds`` is their summed wall time, ``throughput`` tokens per second of it.

    ``ttft``, ``tpot`` and ``e2e`` are the load client's. Chunks reach a busy client merged, which shifts time from the
    later tokens to the first; :attr:`ttft_ms` and :attr:`tpot_ms` are therefore the engine's own means where it has
    them. ``steps``: medians over the blocks of the step time's p50, p90 and p99. ``held_ms``: mean time that the client
    held an answered request back. ``cut`` as in :class:`mpctl.experiment.block.Block`.
    """

    arm: str
    blocks: int
    requests: int
    failed: int
    output_tokens: int
    seconds: float
    ttft: Spread | None
    tpot: Spread | None
    e2e: Spread | None
    steps: tuple[float, float, float] | None
    window: Window | None
    held_ms: float = 0.0
    cut: int | None = None

    @classmethod
    def of(cls, arm: str, blocks: Sequence[Block]) -> ArmSummary:
        """Condense the blocks of ``arm``; other arms are left out."""
        mine = [b for b in blocks if b.arm == arm]
        done = [s for b in mine for s in b.completed]
        seconds = sum(b.duration_s for b in mine)
        return cls(
            arm=arm,
            blocks=len(mine),
            requests=sum(len(b.samples) for b in mine),
            failed=sum(bool(s.error) for b in mine for s in b.samples),
            output_tokens=sum(s.tokens for s in done),
            seconds=seconds,
            ttft=Spread.of(s.ttft_ms for s in done),
            tpot=Spread.of(s.tpot_ms for s in done),
            e2e=Spread.of(s.e2e_ms for s in done),
            steps=_middle([b.step_ms for b in mine if b.step_ms is not None]),
            window=Window.total(tuple(b.window for b in mine)) if mine else None,
            held_ms=sum(b.held_ms * len(b.completed) for b in mine) / len(done) if done else 0.0,
            cut=_total(b.cut for b in mine),
        )

    @property
    def throughput(self) -> float | None:
        """Output tokens per second; None where nothing was answered."""
        return self.output_tokens / self.seconds if self.seconds and self.output_tokens else None

    @property
    def requests_per_second(self) -> float | None:
        """Answered requests per second."""
        return (self.requests - self.failed) / self.seconds if self.seconds else None

    @property
    def ttft_ms(self) -> float | None:
        """Mean time to first token by the engine's clock, plus the time the client held requests back, ms; the
        client's median where the engine reports none."""
        by_engine = self.window.ttft_ms if self.window else None
        return (
            by_engine + self.held_ms
            if by_engine is not None
            else (self.ttft.p50 if self.ttft else None)
        )

    @property
    def tpot_ms(self) -> float | None:
        """Mean time per output token by the engine's clock, ms; the client's median where the engine reports none."""
        by_engine = self.window.tpot_ms if self.window else None
        return by_engine if by_engine is not None else (self.tpot.p50 if self.tpot else None)

    @property
    def position_rates(self) -> tuple[float, ...]:
        """Share of drafts accepted at each position; empty without drafts."""
        return self.window.position_rates if self.window else ()

    @property
    def e2e_ms(self) -> float | None:
        """Median time of a whole request, ms, by the client."""
        return self.e2e.p50 if self.e2e else None

    @property
    def client_lag(self) -> float | None:
        """Difference of the client's and the engine's mean TTFT, relative to the client's mean time of a request, 0..1:
        the part of a request's time that the client assigns to the wrong token. None where either is missing.
        """
        by_engine = self.window.ttft_ms if self.window else None
        if by_engine is None or self.ttft is None or self.e2e is None or not self.e2e.mean:
            return None
        return abs(self.ttft.mean - self.held_ms - by_engine) / self.e2e.mean


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum; None where a block has no such count."""
    every = list(counts)
    return None if None in every else sum(filter(None, every))


def _middle(blocks: list[tuple[float, float, float]]) -> tuple[float, float, float] | None:
    if not blocks:
        return None
    p50, p90, p99 = np.median(blocks, axis=0)
    return float(p50), float(p90), float(p99)


MERGED = 0.05  # of a request's time that the client assigns to the wrong token
_PARSER = "--enable-auto-tool-choice"


@dataclass(frozen=True)
class Tail:
    """A 99th percentile in ms, as the load client saw it. ``error_ms``: what the client itself adds at p99, by its
    calibration; ``why``: the reason why there is no value."""

    value_ms: float | None = None
    error_ms: float | None = None
    why: str = ""


def tail_of(
    arm: ArmSummary, name: str, calibration: Calibration | None, argv: Sequence[str]
) -> Tail:
    """The 99th percentile of ``ttft``, ``tpot`` or ``e2e``. ``argv``: the engine's arguments."""
    spread = getattr(arm, name)
    why = "" if name == "e2e" else client_unfit(arm, argv)
    if why:
        return Tail(why=why)
    if spread is None:
        return Tail()
    return Tail(spread.p99, _error_ms(arm, name, calibration))


def client_unfit(arm: ArmSummary, argv: Sequence[str] = ()) -> str:
    """The reason why the load client cannot time this arm's tokens; empty when it can or no engine time exists."""
    if _PARSER in argv:
        return f"the engine's tool parser ({_PARSER}) holds chunks back"
    lag = arm.client_lag
    if lag is not None and lag > MERGED:
        return f"chunks reached the load client merged, {lag:.0%} of a request's time went to the wrong token"
    return ""


def _error_ms(arm: ArmSummary, name: str, calibration: Calibration | None) -> float | None:
    """An error of the whole answer is shared by its tokens."""
    if calibration is None:
        return None
    answered = max(arm.requests - arm.failed, 1)
    return (
        calibration.p99_ms / max(arm.output_tokens / answered, 1.0)
        if name == "tpot"
        else calibration.p99_ms
    )
