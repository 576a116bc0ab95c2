"""Decide whether a draft that went stale is trained anew: what is measured first, what a training may cost, and how
often it is tried.

A function of values, which mpctl.app.watch carries out. In the order in which they hold a training back: a policy that
only proposes, free methods that nobody measured, too few prompts, too little to gain, attempts, the pause between
them, GPU hours of the week.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from mpctl.methods import METHODS

DAY_S = 86400.0
WEEK_S = 7 * DAY_S
LOOKUPS = tuple(
    name for name, row in METHODS.items() if row.is_lookup
)  # the first needs no package
UNKNOWN_LICENCE = "unknown-licence"  # the finding that a training may ignore
LEAST_GAIN = 0.05  # of throughput over what serves now, below which no training is worth its risk


_Some = Annotated[int, Meta(ge=1)]
_Amount = Annotated[float, Meta(ge=0, le=1e9)]


@dataclass(frozen=True)
class RefreshPolicy:
    """Limits on trainings of stale drafts.

    - ``prompts``: files of the service's own traffic by class, the oldest prompt first; ``min_prompts``: the fewest.
    - ``apply``: train, instead of proposing the command. ``free_methods``: methods without weights, each of which is
      measured once per finding before anything is trained.
    - ``trainer``: the command of the training stage, ``trainer_image``, ``steps``, ``queue`` and ``storage_class``: as
      ``mpctl drafts train`` takes them; ``deadline_s``: of one training, which the budget counts in full until its card
      says what it took.
    - ``accepted``: findings that do not hold a training back, as ``mpctl drafts train --accept``.
    - ``gpu_hours_per_week``; ``attempts`` for one stale draft; ``cool_down_s`` between two trainings of the service.
    """

    prompts: Annotated[dict[str, str], Meta(min_length=1)]
    min_prompts: _Some = 500
    gpu_hours_per_week: _Amount = 8.0
    attempts: Annotated[int, Meta(ge=0)] = 2
    cool_down_s: _Amount = DAY_S
    free_methods: tuple[str, ...] = LOOKUPS[:1]
    trainer: str = ""
    trainer_image: str = ""
    steps: _Some = 1000
    queue: str | None = None
    storage_class: str | None = None
    deadline_s: _Amount = 6 * 3600.0
    accepted: tuple[str, ...] = ()
    apply: bool = False


class RefreshAct(StrEnum):
    """The next act of a refresh."""

    NOTHING = "nothing"
    PROPOSE = "propose"
    MEASURE = "measure"
    TRAIN = "train"


@dataclass(frozen=True)
class StaleDraft:
    """A draft that was found wanting, and all that was tried since. Times are seconds of one clock.

    ``draft``: the head or model; ``cause``: the finding; ``prompts``: how many there are to train on; ``unmeasured``:
    free methods without a measurement since; ``gain``: predicted throughput ratio less 1 over what serves now, None
    where nothing predicts it; ``attempts``: trainings that began with it; ``trained_at``: of the service's last
    training; ``spent_gpu_hours``: of the last week; ``needed_gpu_hours``: of one more training, None where nothing
    here can train, so that a training is only proposed.
    """

    draft: str
    cause: str
    prompts: int = 0
    unmeasured: tuple[str, ...] = ()
    gain: float | None = None
    attempts: int = 0
    trained_at: float | None = None
    spent_gpu_hours: float = 0.0
    needed_gpu_hours: float | None = None


@dataclass(frozen=True)
class RefreshDecision:
    """``act`` with its reason for people; ``method``: the free method to measure."""

    act: RefreshAct
    reason: str
    method: str = ""


def decide_refresh(policy: RefreshPolicy, stale: StaleDraft, now: float) -> RefreshDecision:
    """Decide about one stale draft."""
    if not policy.apply or stale.needed_gpu_hours is None:
        if reason := _useless(policy, stale):
            return RefreshDecision(RefreshAct.NOTHING, reason)
        return RefreshDecision(RefreshAct.PROPOSE, f"{stale.draft} went stale ({stale.cause})")
    if reason := _useless(policy, stale) or _over_limit(policy, stale, now):
        return RefreshDecision(RefreshAct.NOTHING, f"{stale.draft} is not trained anew: {reason}")
    if stale.unmeasured:
        method = stale.unmeasured[0]
        return RefreshDecision(
            RefreshAct.MEASURE, f"{method} needs no training and is measured first", method
        )
    return RefreshDecision(
        RefreshAct.TRAIN, f"{stale.draft} went stale ({stale.cause}) and is trained anew"
    )


def _useless(policy: RefreshPolicy, stale: StaleDraft) -> str:
    """Why a training cannot help; empty where it may."""
    if stale.prompts < policy.min_prompts:
        return f"{stale.prompts} prompts, min_prompts is {policy.min_prompts}"
    if stale.gain is not None and stale.gain < LEAST_GAIN:
        return (
            f"the predicted gain over what serves now is {stale.gain:.0%}, below {LEAST_GAIN:.0%}"
        )
    return ""


def _over_limit(policy: RefreshPolicy, stale: StaleDraft, now: float) -> str:
    """The limit of the policy that forbids a training now; empty where none does."""
    if stale.attempts >= policy.attempts:
        return f"{stale.attempts} attempts were made, {policy.attempts} are allowed"
    if stale.trained_at is not None and now - stale.trained_at < policy.cool_down_s:
        return f"cool-down: {policy.cool_down_s - (now - stale.trained_at):.0f} s are left"
    needed = stale.needed_gpu_hours or 0.0
    hours = stale.spent_gpu_hours + needed
    if hours > policy.gpu_hours_per_week or not policy.gpu_hours_per_week:
        spent = f"{stale.spent_gpu_hours:.1f} were spent and {needed:.1f} are needed"
        return f"{policy.gpu_hours_per_week:g} GPU hours a week are allowed, {spent}"
    return ""
