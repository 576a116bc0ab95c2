"""Judge a draft by counters alone, for the warm-up check and the traffic steps. The gate's rule *first position* has
the same limit, by rounds.

A head trained for another target loads, starts and serves, because engines check shapes only. The acceptance of the
first drafted token exposes it: a draft that fits has it accepted more often than not (published heads: 0.6 to 0.9),
one that does not fit is right by chance (vLLM #37150: 1.22 %). Lookup methods (ngram, suffix) are not judged like
this: their hits are rare by nature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mpctl import formatting
from mpctl.experiment.counters import Window
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome, judge_estimate
from mpctl.json_types import Json
from mpctl.stats.confidence import Interval, quotient_interval, share_interval

# Drafts of one answer resemble each other, so an interval over a handful of them would be too narrow.
MIN_DRAFTS = 50
# A sound draft may be stopped in one of 2000 warm-ups or polls.
LEVEL = 0.999


@dataclass(frozen=True)
class FirstPosition:
    """First tokens accepted among the drafts that the engine verified."""

    drafts: int
    accepted: int | None  # None where the engine counts no acceptance by position
    limit: float  # the policy's

    @classmethod
    def of(cls, policy: Policy, window: Window | None = None) -> FirstPosition:
        """Read a window of counters; nothing is counted where the engine does not speculate."""
        drafts, accepted = round((window and window.drafts) or 0.0), None
        if window is not None and window.per_position:
            accepted = min(round(window.per_position[0]), drafts)
        return cls(drafts, accepted if drafts else 0, policy.min_first_acceptance)

    def __add__(self, other: FirstPosition) -> FirstPosition:
        counted = self.accepted is not None and other.accepted is not None
        accepted = (self.accepted or 0) + (other.accepted or 0) if counted else None
        return replace(self, drafts=self.drafts + other.drafts, accepted=accepted)

    @property
    def rate(self) -> float | None:
        """First-position acceptance, 0..1; None without drafts, or where they are not counted by position."""
        return self.accepted / self.drafts if self.drafts and self.accepted is not None else None

    @property
    def interval(self) -> Interval | None:
        """First-position acceptance with its exact binomial confidence interval; None without a rate."""
        if self.accepted is None or not self.drafts:
            return None
        return share_interval(self.accepted, self.drafts, (1 - LEVEL) / 2, level=LEVEL)

    @property
    def outcome(self) -> Outcome:
        """Pass, fail, undecided (below the limit, which lies inside the interval), or missing (too few drafts, or
        no counts by position)."""
        if self.drafts < MIN_DRAFTS:
            return Outcome.MISSING
        return judge_estimate(self.rate, self.interval, self.limit)

    def describe(self) -> str:
        """Return ``first-position acceptance 71.4% of 210 drafts (at least 30%)``."""
        if not self.drafts:
            return "nothing was drafted"
        if self.rate is None:
            return f"the engine counts no acceptance by position, of {self.drafts} drafts"
        text = f"first-position acceptance {formatting.share(self.rate)} of {self.drafts} drafts "
        limit = f"at least {formatting.limit(self.limit, 'share')}"
        if self.drafts < MIN_DRAFTS:
            return f"{text}({limit}, judged from {MIN_DRAFTS} drafts on)"
        if self.outcome is Outcome.PASS:
            return f"{text}({limit})"
        return f"{text}({limit}; {formatting.confidence(self.interval, 'share')})"

    def describe_mismatch(self, *, draft: str, target: str) -> str:
        """Return the error for a draft that does not fit."""
        return f"draft {draft} does not match target {target}: {self.describe()}"

    def to_record(self) -> Json:
        """Return a JSON object for the ledger."""
        return {
            "drafts": self.drafts,
            "accepted": self.accepted,
            "rate": self.rate,
            "limit": self.limit,
            "outcome": self.outcome.value,
        }


# Drafts after which nothing more is learned in minutes: a share of so many is known to 3 % (95 %).
ENOUGH_DRAFTS = 1000


def served_enough(polls: Sequence[Window], policy: Policy, *, draft_model: bool) -> bool:
    """Return whether production traffic has shown that the drafts pass: ENOUGH_DRAFTS of them, tokens per step with the
    whole interval above the limit, and for a draft with weights of its own its first position."""
    window = Window.total(tuple(polls))
    if (window.drafts or 0) < ENOUGH_DRAFTS:
        return False
    per_step = _tokens_per_step(polls)
    if per_step is None or not per_step.above(policy.min_tokens_per_step):
        return False
    return not draft_model or FirstPosition.of(policy, window).outcome is Outcome.PASS


def _tokens_per_step(polls: Sequence[Window]) -> Interval | None:
    steps = [(poll.generation_tokens, poll.steps) for poll in polls if poll.steps]
    return quotient_interval([g for g, _ in steps], [s for _, s in steps if s], (1 - LEVEL) / 2)


def judge_served_drafts(polls: Sequence[Window], policy: Policy, *, draft_model: bool) -> str:
    """Return why a candidate's drafts do not pay on production traffic; "" while nothing shows that.

    ``polls``: the counters from poll to poll. Judged from :data:`MIN_DRAFTS` drafts on: tokens per step, whose
    confidence interval over the polls must lie below the limit, and for a draft with weights of its own its first
    position, by its spread over the polls as well.
    """
    window = Window.total(tuple(polls))
    if (window.drafts or 0) < MIN_DRAFTS:
        return ""
    reasons = []
    per_step = _tokens_per_step(polls)
    if per_step is not None and per_step.below(policy.min_tokens_per_step, strictly=True):
        reasons.append(
            f"tokens per step {per_step.value:.2f} (at least {policy.min_tokens_per_step:.2f}; "
            f"{formatting.confidence(per_step, 'tokens')})"
        )
    first = FirstPosition.of(policy, window)
    if draft_model and first.outcome is Outcome.FAIL and misses_in_all(polls, policy):
        reasons.append(first.describe())
    return (
        f"{'; '.join(reasons)}, over {window.drafts:.0f} drafts of production traffic"
        if reasons
        else ""
    )


def misses_in_all(windows: Sequence[Window], policy: Policy) -> bool:
    """Return whether the first position is below its limit by its spread over windows of time or over answers. Drafts
    of one answer resemble each other, so a few bad answers look like many bad drafts: with a correlation of 0.1 a
    sound draft was stopped in 3.5 of 100 measurements by the count of its drafts."""
    counted = [w for w in windows if w.drafts and w.per_position]
    interval = quotient_interval(
        [w.per_position[0] for w in counted], [w.drafts or 0.0 for w in counted], (1 - LEVEL) / 2
    )
    return interval is not None and interval.below(policy.min_first_acceptance, strictly=True)


MISMATCH_HINT = (
    "likely causes: a head trained for another target or another version of it, other weights than the name says, "
    "another tokenizer or chat template, other auxiliary layers than in training, a quantised target "
    "under the head of a full one; "
    "choose a draft made for this target (the drafts command lists published ones), or check both revisions"
)
