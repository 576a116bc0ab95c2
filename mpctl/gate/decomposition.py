"""Decompose a measured throughput ratio into factors: why 2.4x and not 4.3x.

Drafts promise the acceptance length, tokens per step that carried a draft. It would be the throughput ratio if every
step carried a draft, took no longer than without, and decoding were all the work. The remaining factors:

- steps without a draft: tokens per step over acceptance length, whose counters leave such steps out;
- step time: the baseline's over the candidate's, which drafts and verifies; a step's time is the time per token times
  tokens per step;
- all but decoding: the throughput ratio over the gain in decoding; time to first token, queueing and the client.

The memory floor is the time the device takes to read the weights once; no step is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl import formatting
from mpctl.gate.analysis import Comparison, ratio


@dataclass(frozen=True)
class Part:
    """``factor`` of the throughput ratio, ``after``: the product so far, ``text``: its cause."""

    name: str
    factor: float
    after: float
    text: str


@dataclass(frozen=True)
class Floor:
    """``step_ms``: the shortest possible step on this device; ``reached``: that over the baseline's step, 0..1;
    ``best_ms``: the time per token at the acceptance length on that floor."""

    step_ms: float
    reached: float
    best_ms: float


@dataclass(frozen=True)
class Decomposition:
    """``throughput_ratio``: the product of the factors of ``parts``; ``promised``: acceptance length."""

    throughput_ratio: float
    promised: float
    parts: tuple[Part, ...]
    floor: Floor | None = None

    @property
    def sentence(self) -> str:
        """Why the throughput ratio is not what the drafts promise, the largest loss first."""
        losses = sorted((p for p in self.parts[1:] if p.factor < 0.995), key=lambda p: p.factor)
        why = "; ".join(f"{p.text} (x {p.factor:.2f})" for p in losses) or "nothing of note was lost"
        text = f"{formatting.ratio(self.throughput_ratio)} and not {formatting.ratio(self.promised)}: {why}"
        gains = [p for p in self.parts[1:] if p.factor > 1.005]
        if gains:
            text += "; in return " + "; ".join(f"{p.text} (x {p.factor:.2f})" for p in gains)
        if self.floor is not None:
            text += (
                f"; the baseline runs at {formatting.share(self.floor.reached, 0)} of what memory allows, where "
                f"{formatting.milliseconds(self.floor.best_ms)} per token would be the best"
            )
        return text

    @classmethod
    def of(cls, comparison: Comparison, *, floor_ms: float | None = None) -> Decomposition | None:
        """Decompose a cell's throughput ratio; None where the candidate does not speculate, requests arrive at a rate,
        or a figure is missing.

        ``floor_ms``: :func:`memory_floor_ms` of the model on the device, where both are known.
        """
        base, cand = comparison.baseline, comparison.candidate
        window = cand.window
        measured = comparison.throughput_ratio
        if window is None or not window.speculating or measured is None or comparison.cell.rate is not None:
            return None  # in an open loop the throughput follows the rate, however fast the engine is
        length, per_step = window.acceptance_length, window.tokens_per_step
        decode = ratio(base.tpot_ms, cand.tpot_ms)
        per_base_step = base.window.tokens_per_step if base.window else None
        if not length or not per_step or not decode or not per_base_step or not base.tpot_ms or not cand.tpot_ms:
            return None
        base_step, cand_step = base.tpot_ms * per_base_step, cand.tpot_ms * per_step
        covered = window.coverage or 0.0
        rest = measured.value / decode
        lost = "faster" if rest > 1 else "no faster"
        rows = [
            ("drafts", length, f"a step that carries a draft yields {length:.2f} tokens"),
            ("steps without a draft", per_step / length, f"{1 - covered:.0%} of the steps carried no draft"),
            (
                "baseline speculates",
                1 / per_base_step,
                f"the baseline already yields {per_base_step:.2f} tokens per step",
            ),
            (
                "step time",
                base_step / cand_step,
                f"a step that drafts and verifies takes {formatting.milliseconds(cand_step)}, "
                f"one of the baseline {formatting.milliseconds(base_step)}",
            ),
            ("all but decoding", rest, f"first tokens, queueing and the client are {lost}"),
        ]
        parts: list[Part] = []
        after = 1.0
        for name, factor, text in rows:
            if name == "baseline speculates" and per_base_step == 1.0:
                continue
            after *= factor
            parts.append(Part(name, factor, after, text))
        floor = Floor(floor_ms, floor_ms / base_step, floor_ms / length) if floor_ms else None
        return cls(measured.value, length, tuple(parts), floor)


def memory_floor_ms(weight_bytes: float, bandwidth: float) -> float:
    """Return the time in ms to read ``weight_bytes`` once at ``bandwidth`` bytes per second: Qwen3-8B in bfloat16 on an
    L4, 16.4 GB at 300 GB/s, 54.6 ms."""
    return 1000.0 * weight_bytes / bandwidth
