"""A profile of live traffic, in counts: how long answers are, how many requests run at once, and how drafts are
accepted. No text and no request is kept, and its size does not grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mpctl.watch.assess import Figures
from mpctl.watch.reference import Reference

_MEMORY = 240.0  # windows: an hour at the default interval
_LEAST = 40.0  # windows of a profile that is compared
_OTHER = math.log(2.0)  # a mean that doubled or halved
_BATCHES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


@dataclass(frozen=True, slots=True)
class Profile:
    """Exponentially weighted means over windows. ``loads``: share of the windows by requests at once (powers of two);
    ``answer_tokens``: mean length of an answer."""

    weight: float = 0.0
    answer_tokens: float | None = None
    tokens_per_step: float | None = None
    loads: tuple[float, ...] = (0.0,) * (len(_BATCHES) + 1)

    def after(self, figures: Figures) -> Profile:
        """With one more window."""
        weight = min(self.weight + 1.0, _MEMORY)
        part = 1.0 / weight
        place = sum(1 for least in _BATCHES if (figures.batch or 0.0) >= least)
        return replace(
            self,
            weight=weight,
            answer_tokens=_towards(self.answer_tokens, figures.answer_tokens, part),
            tokens_per_step=_towards(self.tokens_per_step, figures.tokens_per_step, part),
            loads=tuple(old + part * (float(i == place) - old) for i, old in enumerate(self.loads)),
        )

    def unlike(self, reference: Reference) -> tuple[str, ...]:
        """Differences of the traffic from what the gate measured; empty while it resembles it or little is known."""
        if self.weight < _LEAST:
            return ()
        differences = []
        measured = [b.answer_tokens for b in reference.bands if b.answer_tokens]
        if measured and self.answer_tokens and _outside(self.answer_tokens, measured):
            differences.append(f"answers have {self.answer_tokens:.0f} tokens, measured were {_span(measured)}")
        most = max(b.batch for b in reference.bands) * 1.25
        above = math.fsum(s for least, s in zip(_BATCHES, self.loads[1:], strict=True) if least > most)
        if above > 0.2:
            differences.append(f"{above:.0%} of the time more requests decode at once than the {most:.0f} measured")
        return tuple(differences)


def _towards(old: float | None, new: float | None, part: float) -> float | None:
    if new is None:
        return old
    return new if old is None else old + part * (new - old)


def _outside(value: float, measured: list[float]) -> bool:
    return value > max(measured) * math.exp(_OTHER) or value < min(measured) / math.exp(_OTHER)


def _span(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
