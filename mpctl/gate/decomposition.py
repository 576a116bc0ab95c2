"""Why 2.4x and not 4.3x: a measured speedup taken apart into factors that multiply to it.

Drafts promise the acceptance length, tokens per step that carried a draft. It would be the speedup if every step
carried one, a step took no longer than without, and generating were all there is. What is left of it:

- steps without a draft: tokens per step over acceptance length; the counters leave such steps out of the acceptance;
- the step: the baseline's step time over the candidate's, whose step drafts and verifies; a step's time is the time per
  token times tokens per step;
- the rest: what throughput gained over what decoding gained; time to first token, queueing, the client are no faster.

The memory floor is the time the device takes to read the weights once; no step without a batch is shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpctl.gate.analysis import Comparison, ratio


@dataclass(frozen=True)
class Part:
    """``factor`` of the speedup, ``after``: the product so far, ``text``: where it comes from."""

    name: str
    factor: float
    after: float
    text: str


@dataclass(frozen=True)
class Floor:
    """``step_ms``: the shortest a step can be on this device; ``reached``: that over the baseline's step, 0..1;
    ``best_ms``: the time per token at the acceptance length on that floor."""

    step_ms: float
    reached: float
    best_ms: float


@dataclass(frozen=True)
class Decomposition:
    """``speedup``: ratio of throughputs, the product of the factors of ``parts``; ``promised``: acceptance length."""

    speedup: float
    promised: float
    parts: tuple[Part, ...]
    floor: Floor | None = None

    @property
    def sentence(self) -> str:
        """Why the speedup is not what the drafts promise, the largest loss first."""
        losses = sorted((p for p in self.parts[1:] if p.factor < 0.995), key=lambda p: p.factor)
        why = "; ".join(f"{p.text} (x {p.factor:.2f})" for p in losses) or "nothing of note was lost"
        text = f"{self.speedup:.2f}x and not {self.promised:.2f}x: {why}"
        gains = [p for p in self.parts[1:] if p.factor > 1.005]
        if gains:
            text += "; in return " + "; ".join(f"{p.text} (x {p.factor:.2f})" for p in gains)
        if self.floor is not None:
            text += (
                f"; the baseline runs at {self.floor.reached:.0%} of what memory allows, where "
                f"{self.floor.best_ms:.1f} ms per token would be the best"
            )
        return text

    @classmethod
    def of(cls, comparison: Comparison, *, floor_ms: float | None = None) -> Decomposition | None:
        """Take a cell's speedup apart; None where the candidate does not speculate, requests arrive at a rate,
        or a figure is missing.

        ``floor_ms``: :func:`memory_floor_ms` of the model on the device, where both are known.
        """
        base, cand = comparison.baseline, comparison.candidate
        window = cand.window
        speedup = comparison.speedup
        if window is None or not window.speculating or not speedup or comparison.cell.rate is not None:
            return None  # in an open loop as many tokens come out as are asked for, however fast the engine is
        length, per_step = window.acceptance_length, window.tokens_per_step
        decode = ratio(base.tpot_ms, cand.tpot_ms)
        per_base_step = base.window.tokens_per_step if base.window else None
        if not length or not per_step or not decode or not per_base_step or not base.tpot_ms or not cand.tpot_ms:
            return None
        base_step, cand_step = base.tpot_ms * per_base_step, cand.tpot_ms * per_step
        covered = window.coverage or 0.0
        rest = speedup / decode
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
                f"a step that drafts and verifies takes {cand_step:.3g} ms, one of the baseline {base_step:.3g} ms",
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
        return cls(speedup, length, tuple(parts), floor)

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "speedup": self.speedup,
            "promised": self.promised,
            "sentence": self.sentence,
            "parts": [dict(p.__dict__) for p in self.parts],
            "floor": dict(self.floor.__dict__) if self.floor else None,
        }


def memory_floor_ms(weight_bytes: float, bandwidth: float) -> float:
    """The time in ms to read ``weight_bytes`` once at ``bandwidth`` bytes per second: Qwen3-8B in bfloat16 on an L4,
    16.4 GB at 300 GB/s, 54.6 ms."""
    return 1000.0 * weight_bytes / bandwidth
