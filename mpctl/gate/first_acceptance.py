"""Whether a draft fits its target, by what the engine accepted of it on a warm-up.

A head trained for another target loads, starts and serves: shapes are all the engine checks. What gives it away is the
first drafted token. A draft that fits has it accepted more often than not (published heads: 0.6 to 0.9); one that does
not is right by chance. Below 30 % something is wrong, whatever the traffic (field reports: vLLM #37150 had 1.22 %, the
Alauda guide names very low acceptance as the sign of a head for another target).

Lookup methods (ngram, suffix) are not judged like this: their hits are rare by nature, and they have nothing to fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mpctl.experiment.counters import Window
from mpctl.stats.confidence import share_interval
from mpctl.stats.interval import Interval

LIMIT = 0.30
# Drafts of one answer resemble each other, so a handful say less than an interval over them claims.
MIN_DRAFTS = 50
# Stopping a rollout on a sound draft must be rarer than anybody will see.
LEVEL = 0.999


class Fit(StrEnum):
    """What a warm-up says of a draft."""

    FITS = "fits"  # at or above the limit
    DOUBTFUL = "doubtful"  # below the limit, though the truth may still lie above it
    MISMATCHED = "mismatched"  # below the limit, and the truth too
    UNKNOWN = "unknown"  # too few drafts, or no counters


@dataclass(frozen=True)
class Match:
    """``drafts`` that the engine verified, and how many of their first tokens it ``accepted``."""

    drafts: int
    accepted: int

    @classmethod
    def of(cls, window: Window) -> Match:
        """Read a window around a warm-up; nothing counted where the engine does not speculate."""
        first = window.per_position[0] if window.per_position else 0.0
        drafts = round(window.drafts or 0.0)
        return cls(drafts, min(round(first), drafts))

    def __add__(self, other: Match) -> Match:
        return Match(self.drafts + other.drafts, self.accepted + other.accepted)

    @property
    def rate(self) -> float | None:
        """Position-0 acceptance, 0..1; None without drafts."""
        return self.accepted / self.drafts if self.drafts else None

    @property
    def interval(self) -> Interval | None:
        """Position-0 acceptance with its exact binomial (Clopper-Pearson) interval; None without drafts."""
        if self.rate is None:
            return None
        return share_interval(self.accepted, self.drafts, (1 - LEVEL) / 2, level=LEVEL)

    @property
    def fit(self) -> Fit:
        """The verdict; a sample that could have come from a sound draft is never called mismatched."""
        interval = self.interval
        if interval is None or self.drafts < MIN_DRAFTS:
            return Fit.UNKNOWN
        if interval.value >= LIMIT:
            return Fit.FITS
        return Fit.MISMATCHED if interval.high < LIMIT else Fit.DOUBTFUL

    def describe(self) -> str:
        """For people: ``position-0 acceptance 71.4 % of 210 drafts (limit 30 %)``."""
        if self.rate is None:
            return "nothing was drafted"
        text = f"position-0 acceptance {self.rate:.1%} of {self.drafts} drafts (limit {LIMIT:.0%}"
        if self.fit is Fit.UNKNOWN:
            return f"{text}, judged from {MIN_DRAFTS} drafts on)"
        interval = self.interval
        if self.fit is not Fit.FITS and interval is not None:
            return f"{text}; at most {interval.high:.1%} with {LEVEL:.1%} certainty)"
        return f"{text})"

    def to_record(self) -> dict[str, Any]:
        """A JSON object for the ledger."""
        return {"drafts": self.drafts, "accepted": self.accepted, "position0": self.rate, "fit": self.fit.value}


def mismatch_message(match: Match, *, draft: str, target: str) -> str:
    """What is wrong, with the figures it was seen by."""
    return f"the draft does not match its target: {draft} drafting for {target} has {match.describe()}"


MISMATCH_HINT = (
    "likely causes: a head trained for another target or another version of it, other weights than the name says, "
    "another tokenizer or chat template, other auxiliary layers than in training, a quantised target "
    "under the head of a full one; "
    "take a draft made for this target (mpctl drafts lists published ones), or check both revisions"
)
