"""Acceptance per position: of any K, from what was measured or published. Pure.

``rates[i]``: the share of drafts whose first i + 1 tokens were all accepted. With it, tokens per step are exact:
1 + coverage * sum of rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Origin = Literal["measured", "published", "class"]

_TOLERANCE = 0.03  # of a published acceptance length against its own rates: both are rounded

# Tokens per draft that a class of traffic reached in published tables, as an acceptance rate of the first position and
# the ratio from one position to the next; the spread is a factor of 1.4 up or down (docs/explanation/payoff.md).
CLASSES: dict[str, dict[str, tuple[float, float]]] = {
    "head": {"code": (0.68, 0.64), "chat": (0.66, 0.60), "math": (0.72, 0.68), "summary": (0.62, 0.58)},
    "draft-model": {"code": (0.74, 0.74), "chat": (0.75, 0.77), "math": (0.80, 0.80), "summary": (0.70, 0.72)},
    "lookup": {"code": (0.37, 0.90), "chat": (0.15, 0.80), "math": (0.09, 0.60), "summary": (0.15, 0.76)},
}


@dataclass(frozen=True)
class Acceptance:
    """``rates`` per position over drafts, ``coverage``: drafts over steps. ``origin``: how it is known; ``drafts``:
    how many stand behind a measurement, None when unknown."""

    rates: tuple[float, ...]
    coverage: float = 1.0
    origin: Origin = "measured"
    drafts: int | None = None

    def tokens_per_step(self, k: int) -> float:
        """Tokens that one step yields at ``k``."""
        return 1 + self.coverage_at(k) * sum(self.at(k))

    def coverage_at(self, k: int) -> float:
        """The coverage at another K: the same part of the answers is drafted, in more steps by shorter drafts."""
        if self.coverage >= 1:
            return 1.0
        drafted = self.coverage * (1 + sum(self.rates)) / (1 + sum(self.at(k)))
        return drafted / (drafted + 1 - self.coverage)

    def at(self, k: int) -> tuple[float, ...]:
        """The rates of ``k`` positions: those known, then each the last conditional rate times the one before."""
        known = list(self.rates[:k])
        if len(known) < k and known:
            last = known[-1] / known[-2] if len(known) > 1 and known[-2] > 0 else known[-1]
            while len(known) < k:
                known.append(known[-1] * min(last, 1.0))
        return tuple(known)


def check_rates(rates: Sequence[float], length: float | None = None) -> str | None:
    """Return what is wrong with rates: outside 0..1, rising, or another acceptance length than theirs; else None."""
    if not rates:
        return "no rate is given"
    if any(not 0 <= rate <= 1 for rate in rates):
        return "every rate must be from 0 to 1"
    if any(later > earlier + 1e-9 for earlier, later in pairwise(rates)):
        return "rates must not rise: each is the share of drafts accepted up to that position"
    if length is not None and abs(1 + sum(rates) - length) > max(_TOLERANCE * length, 0.02):
        return f"acceptance length {length:g} contradicts the rates, which give {1 + sum(rates):.2f}"
    return None


def from_length(length: float, k: int) -> tuple[float, ...]:
    """Rates of independent acceptances that give ``length`` tokens at ``k``."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if sum(middle**i for i in range(k + 1)) < length:
            low = middle
        else:
            high = middle
    return tuple(low ** (i + 1) for i in range(k))


def of_class(family: str, traffic: str, k: int) -> tuple[float, ...]:
    """Rates of a class of traffic for a family of methods."""
    first, ratio = CLASSES[family][traffic]
    return tuple(first * ratio**i for i in range(k))
