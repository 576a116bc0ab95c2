"""Blocks of two arms, condensed to the figures that people compare and the gate judges."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mpctl.measure.block import Block
from mpctl.measure.counters import Window

BASELINE = "baseline"
CANDIDATE = "candidate"
_NO_TEXT = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class ArmSummary:
    """One arm over all its blocks; throughput is tokens/s over the summed wall time.

    ``tpot_ms`` and ``ttft_ms`` are the engine's own means: on a busy client stream chunks arrive merged, which moves
    time from the later tokens to the first. Where the engine has no such histogram, they are the client's medians.
    ``e2e_ms`` is the client's median.
    """

    arm: str
    blocks: int
    requests: int
    failed: int
    first_error: str
    output_tokens: int
    throughput: float | None
    tpot_ms: float | None
    ttft_ms: float | None
    e2e_ms: float | None
    window: Window | None

    @classmethod
    def of(cls, arm: str, blocks: Sequence[Block]) -> ArmSummary:
        """Condense the blocks of ``arm``; other arms are left out."""
        mine = [b for b in blocks if b.arm == arm]
        done = [s for b in mine for s in b.completed]
        errors = [s.error for b in mine for s in b.samples if s.error]
        seconds = sum(b.duration_s for b in mine)
        tokens = sum(s.tokens for s in done)
        window = Window.total(tuple(b.window for b in mine)) if mine else None
        return cls(
            arm=arm,
            blocks=len(mine),
            requests=sum(len(b.samples) for b in mine),
            failed=len(errors),
            first_error=errors[0] if errors else "",
            output_tokens=tokens,
            throughput=tokens / seconds if seconds and tokens else None,
            tpot_ms=_first(window.tpot_ms if window else None, _median(s.tpot_ms for s in done)),
            ttft_ms=_first(window.ttft_ms if window else None, _median(s.ttft_ms for s in done)),
            e2e_ms=_median(s.e2e_ms for s in done),
            window=window,
        )


@dataclass(frozen=True)
class Comparison:
    """Two arms over the same prompts.

    ``throughput_ratios``: candidate over baseline, one per repeat, so that the reader sees the spread.
    ``compared`` prompts were answered by both arms; ``different`` of them gave another text; ``newly_failed`` were
    answered by the baseline alone. ``textless`` were answered by both with tokens but without text, as when a
    reasoning parser keeps it to itself: nothing says whether they are the same, so they are not compared.
    """

    baseline: ArmSummary
    candidate: ArmSummary
    throughput_ratios: tuple[float, ...]
    compared: int
    different: int
    newly_failed: int
    textless: int = 0

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Comparison:
        """Pair the blocks of both arms by repeat and their requests by prompt."""
        by_key = {(b.arm, b.repeat): b for b in blocks}
        repeats = sorted({b.repeat for b in blocks})
        ratios: list[float] = []
        compared = different = newly_failed = textless = 0
        for repeat in repeats:
            base, cand = by_key.get((BASELINE, repeat)), by_key.get((CANDIDATE, repeat))
            if base is None or cand is None:
                continue
            if base.throughput and cand.throughput:
                ratios.append(cand.throughput / base.throughput)
            for one, two in zip(base.samples, cand.samples, strict=True):
                newly_failed += bool(two.error) and not one.error
                if one.error or two.error:
                    continue
                if one.text_digest == two.text_digest == _NO_TEXT:
                    textless += 1
                else:
                    compared += 1
                    different += one.text_digest != two.text_digest
        return cls(
            ArmSummary.of(BASELINE, blocks),
            ArmSummary.of(CANDIDATE, blocks),
            tuple(ratios),
            compared,
            different,
            newly_failed,
            textless,
        )

    @property
    def speedup(self) -> float | None:
        """Ratio of throughputs over all blocks: above 1 the candidate is faster."""
        return ratio(self.candidate.throughput, self.baseline.throughput)


def ratio(part: float | None, whole: float | None) -> float | None:
    """part / whole, or None where either is missing or whole is zero."""
    return None if part is None or not whole else part / whole


def _first(own: float | None, other: float | None) -> float | None:
    return other if own is None else own


def _median(values: Iterable[float | None]) -> float | None:
    present = [v for v in values if v is not None]
    return statistics.median(present) if present else None
