"""Decompose a measured throughput ratio into factors: why 2.4x and not 4.3x.

Drafts promise the acceptance length, tokens per step that carried a draft. It would be the throughput ratio if every
step carried a draft, took no longer than without, and decoding were all the work. The remaining factors:

- steps without a draft: tokens per step over acceptance length, whose counters leave such steps out;
- step time: the baseline's over the candidate's, which drafts and verifies, by the engine's own count of steps;
- all but decoding: the throughput ratio over the gain in decoding; time to first token, queueing and the client.
"""

from __future__ import annotations

from dataclasses import dataclass

from mpctl import formatting
from mpctl.experiment.arm import ArmSummary
from mpctl.gate.analysis import Comparison

_NOTABLE = 1.005  # a factor that is printed as another than 1.00


@dataclass(frozen=True)
class Part:
    """``factor`` of the throughput ratio, ``after``: the product so far, ``text``: its cause."""

    name: str
    factor: float
    after: float
    text: str


@dataclass(frozen=True)
class Decomposition:
    """``throughput_ratio``: the product of the factors of ``parts``; ``promised``: acceptance length."""

    throughput_ratio: float
    promised: float
    parts: tuple[Part, ...]

    @property
    def sentence(self) -> str:
        """The reasons why the throughput ratio is not what the drafts promise, the largest loss first."""
        losses = sorted(
            (p for p in self.parts[1:] if p.factor < 1 / _NOTABLE), key=lambda p: p.factor
        )
        why = (
            "; ".join(f"{p.text} (x {p.factor:.2f})" for p in losses) or "nothing of note was lost"
        )
        text = f"{formatting.ratio(self.throughput_ratio)} and not {formatting.ratio(self.promised)}: {why}"
        gains = [p for p in self.parts[1:] if p.factor > _NOTABLE]
        if gains:
            text += "; in return " + "; ".join(f"{p.text} (x {p.factor:.2f})" for p in gains)
        return text

    @classmethod
    def of(cls, comparison: Comparison) -> Decomposition | None:
        """Decompose a cell's throughput ratio; None where the candidate does not speculate, requests arrive at a rate,
        or a figure is missing."""
        base, cand = comparison.baseline, comparison.candidate
        window = cand.window
        measured = comparison.throughput_ratio
        if (
            window is None
            or not window.speculating
            or measured is None
            or comparison.cell.rate is not None
        ):
            return (
                None  # in an open loop the throughput follows the rate, however fast the engine is
            )
        length, per_step = window.acceptance_length, window.tokens_per_step
        per_base_step = base.window.tokens_per_step if base.window else None
        base_step, cand_step = step_times(base, cand)
        if not length or not per_step or not per_base_step or not base_step or not cand_step:
            return None
        bare = formatting.share(1.0 - (window.coverage or 0.0), 0)
        outside_decoding = measured.value / (per_step / per_base_step * base_step / cand_step)
        lost = (
            "faster"
            if outside_decoding > _NOTABLE
            else "no faster"
            if outside_decoding < 1 / _NOTABLE
            else "as fast as decoding"
        )
        rows = [
            ("drafts", length, f"a step that carries a draft yields {length:.2f} tokens"),
            ("steps without a draft", per_step / length, f"{bare} of the steps carried no draft"),
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
            (
                "all but decoding",
                outside_decoding,
                f"first tokens, queueing and the client are {lost}",
            ),
        ]
        parts: list[Part] = []
        after = 1.0
        for name, factor, text in rows:
            if name == "baseline speculates" and per_base_step == 1.0:
                continue
            after *= factor
            parts.append(Part(name, factor, after, text))
        return cls(measured.value, length, tuple(parts))


def step_times(base: ArmSummary, cand: ArmSummary) -> tuple[float | None, float | None]:
    """Return the mean time of a step of each arm, ms: by the engines' own count of steps, else time per token times
    tokens per step, in which a short answer weighs as much as a long one."""
    windows = base.window, cand.window
    counted = [w.step_ms if w else None for w in windows]
    if None not in counted:
        return counted[0], counted[1]
    tokens = [w.tokens_per_step if w else None for w in windows]
    times = [
        t * n if t and n else None
        for t, n in zip((base.tpot_ms, cand.tpot_ms), tokens, strict=True)
    ]
    return times[0], times[1]
