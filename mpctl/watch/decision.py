"""Decide what the watch does about a finding: nothing, report, restart, fall back, or try the replaced spec again.

The decision is a function of values, which mpctl.app.watch carries out. Without a policy that says so it is never more
than a report. An action is held back, in this order, by another operation or operator, a finding that does not last,
the cool-down of the service, its limit per day, the brake over the fleet, and the pause after an action that failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mpctl.watch.assessment import ANSWERS, Assessment, Signal
from mpctl.watch.watch_policy import NOTIFY, PREVIOUS, WatchPolicy

_DAY_S = 86400.0
# Findings that another spec ends. A costlier step slows the baseline, too; restarts and missing data are no verdict.
ACTIONABLE = ANSWERS | {
    Signal.WORSE_DRAFT,
    Signal.PAST_CROSSOVER,
    Signal.STEP_TO_ZERO,
    Signal.NO_DRAFTS,
    Signal.CACHE_LOST,
}
_SAY_NOTHING_OF_PAY = frozenset({Signal.NO_DRAFTS, Signal.CACHE_LOST})  # acted on as they are


class WatchAct(StrEnum):
    """The action of the watch."""

    NOTHING = "nothing"
    REPORT = "report"
    HOLD = "hold"
    RESTART = "restart"
    FALL_BACK = "fall back"
    RE_ARM = "re-arm"
    RESUME = "resume"


CHANGES = frozenset(WatchAct) - {WatchAct.NOTHING, WatchAct.REPORT, WatchAct.HOLD}  # operations


@dataclass(frozen=True)
class Rung:
    """A recorded revision that served, with what it runs."""

    revision: int
    method: str
    spec: str


@dataclass(frozen=True)
class Situation:
    """The situation of a service besides its assessment. Times are seconds of one clock."""

    now: float
    found_at: float  # when the present finding began
    changes: tuple[float, ...] = ()  # times of the watch's own changes of the spec
    fallbacks: tuple[float, ...] = ()  # those of them that were fallbacks
    rungs: tuple[Rung, ...] = ()  # what can be restored, the best first
    replaced_spec: str = ""  # the spec that a fallback of the watch replaced, in words
    busy: str = ""  # the operator or operation at work
    interrupted: str = ""  # an unfinished operation that the watch itself began
    restarts: tuple[float, ...] = ()  # when the watch restarted the engines
    retry_at: float = 0.0


@dataclass(frozen=True)
class Fleet:
    """All services of this watch: how many, and when the watch acted on a finding of any of them."""

    services: int
    actions: tuple[float, ...] = ()

    def most(self, policy: WatchPolicy) -> int:
        """Services that may be changed within the policy's window."""
        return max(1, int(policy.fleet_share * self.services)) if policy.fleet_share > 0 else 0

    def braked(self, policy: WatchPolicy, now: float) -> bool:
        """True when the number of actions within the window has reached its limit."""
        recent = [when for when in self.actions if now - when < policy.fleet_window_s]
        return len(recent) >= self.most(policy)


@dataclass(frozen=True)
class WatchDecision:
    """``act`` with its reason for people; ``rung``: where a fallback goes."""

    act: WatchAct
    reason: str
    rung: Rung | None = None
    brake: bool = False


def decide(
    policy: WatchPolicy, assessment: Assessment, situation: Situation, fleet: Fleet
) -> WatchDecision:
    """Decide about one service."""
    decision = _decide_on_signal(policy, assessment, situation, fleet)
    if decision.act in CHANGES and situation.now < situation.retry_at:
        remaining_s = situation.retry_at - situation.now
        return WatchDecision(
            WatchAct.HOLD, f"{decision.act.value} failed, and is tried again in {remaining_s:.0f} s"
        )
    return decision


def _decide_on_signal(
    policy: WatchPolicy, assessment: Assessment, situation: Situation, fleet: Fleet
) -> WatchDecision:
    if situation.interrupted:
        acts = policy.fall_back or policy.re_arm
        what = f"{situation.interrupted} of the watch was interrupted"
        return WatchDecision(WatchAct.RESUME if acts else WatchAct.REPORT, what)
    if not assessment.finding or assessment.signal is Signal.FELL_BACK:
        return _without_finding(policy, assessment, situation)
    if reported := _only_reported(policy, assessment):
        return WatchDecision(WatchAct.REPORT, reported)
    restart = _restarts_first(policy, assessment, situation)
    at_once = assessment.signal in ANSWERS
    if reason := _reason_to_wait(policy, situation, restart=restart, at_once=at_once):
        return WatchDecision(WatchAct.HOLD, reason)
    if not situation.rungs and not restart:
        return WatchDecision(
            WatchAct.REPORT, f"{assessment.text}; no revision of the ladder was recorded"
        )
    if fleet.braked(policy, situation.now):
        most = f"{fleet.most(policy)} of {fleet.services} services within {policy.fleet_window_s:.0f} s"
        return WatchDecision(
            WatchAct.HOLD,
            f"the brake of the fleet holds: the watch already changed {most}",
            brake=True,
        )
    if restart:
        return WatchDecision(WatchAct.RESTART, f"{assessment.signal.value}: {assessment.text}")
    return WatchDecision(
        WatchAct.FALL_BACK, f"{assessment.signal.value}: {assessment.text}", situation.rungs[0]
    )


def _only_reported(policy: WatchPolicy, assessment: Assessment) -> str:
    """The report on a finding that nothing is done about; empty for one that is acted on."""
    if not policy.fall_back or assessment.signal not in ACTIONABLE:
        return assessment.text
    if assessment.signal in ANSWERS:
        return assessment.text if policy.wrong_answers == NOTIFY else ""
    if assessment.pays is not False and assessment.signal not in _SAY_NOTHING_OF_PAY:
        return f"{assessment.text}; " + (
            "speculation still pays" if assessment.pays else "whether it pays is not certain yet"
        )
    return ""


def _restarts_first(policy: WatchPolicy, assessment: Assessment, situation: Situation) -> bool:
    """Return whether fresh engines are tried before another spec: the fault of an engine whose acceptance fell to zero
    ends with its process (vllm #52873), and a poisoned cache with its blocks. Once in a day: a fault that comes back is
    one that restarts do not end."""
    recent = any(situation.now - when < _DAY_S for when in situation.restarts)
    ends = assessment.signal in (Signal.STEP_TO_ZERO, Signal.POISONED_CACHE)
    return policy.restart and ends and not recent


def _reason_to_wait(
    policy: WatchPolicy, situation: Situation, *, restart: bool, at_once: bool
) -> str:
    """Why an action has to wait; empty when it need not. A restart changes no spec, so limits on that do not hold
    it. ``at_once``: users get wrong answers until it is done."""
    if situation.busy:
        return situation.busy
    lasted = situation.now - situation.found_at
    if lasted < policy.confirm_s and not at_once:
        return f"the finding has lasted {lasted:.0f} of {policy.confirm_s:.0f} s"
    if restart:
        return ""
    if not at_once and (reason := _cooling(policy, situation)):
        return reason
    recent = sum(1 for when in situation.fallbacks if situation.now - when < _DAY_S)
    if recent >= policy.per_day:
        return f"{recent} fallbacks within a day, {policy.per_day} are allowed"
    return ""


def _cooling(policy: WatchPolicy, situation: Situation) -> str:
    """The time that is left of the cool-down after the watch's last change of the spec; empty when it is over."""
    last = max(situation.changes, default=None)
    if last is not None and situation.now - last < policy.cool_down_s:
        return f"cool-down: {policy.cool_down_s - (situation.now - last):.0f} s are left"
    return ""


def _without_finding(
    policy: WatchPolicy, assessment: Assessment, situation: Situation
) -> WatchDecision:
    sound = (
        *(Signal.HEALTHY, Signal.NO_REFERENCE, Signal.UNMEASURED_LOAD),
        *(Signal.FELL_BACK, Signal.IDLE),
    )
    if not (policy.re_arm and situation.replaced_spec and assessment.signal in sound):
        return WatchDecision(
            WatchAct.REPORT if assessment.finding else WatchAct.NOTHING, assessment.text
        )
    if situation.busy:
        return WatchDecision(WatchAct.HOLD, situation.busy)
    if reason := _cooling(policy, situation):
        return WatchDecision(WatchAct.REPORT if assessment.finding else WatchAct.NOTHING, reason)
    return WatchDecision(
        WatchAct.RE_ARM, f"the cool-down is over: {situation.replaced_spec} is measured again"
    )


def ladder(
    policy: WatchPolicy, served: Sequence[Rung], live: Rung, previous: int | None
) -> tuple[Rung, ...]:
    """Revisions that can replace the live one, in the policy's order.

    ``served``: recorded revisions that served, oldest first; ``previous``: the revision before the promotion. The
    newest revision of a method is taken; rungs above the live one and the live one itself are left out.
    """
    names = list(policy.ladder)
    if live.method in names:
        names = names[names.index(live.method) + 1 :]
    rungs: list[Rung] = []
    for name in names:
        fits = [
            r for r in served if (r.revision == previous if name == PREVIOUS else r.method == name)
        ]
        rung = fits[-1] if fits else None
        if (
            rung is not None
            and rung.revision != live.revision
            and rung.spec != live.spec
            and rung not in rungs
        ):
            rungs.append(rung)
    return tuple(rungs)
