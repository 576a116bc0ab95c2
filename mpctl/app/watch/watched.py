"""A watched service: its state between readings, and what follows from it."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from mpctl.app.session.base import Session
from mpctl.app.watch.ledger_facts import LedgerFacts
from mpctl.app.watch.sentinels import SentinelResult
from mpctl.watch.assessment import Assessment, Signal, State
from mpctl.watch.decision import ACTIONABLE, Situation, WatchAct, WatchDecision
from mpctl.watch.reference import Profile
from mpctl.watch.sentinel import Check, Guard, Sentinels

_QUIET = frozenset({Signal.IDLE})  # between two windows with traffic nothing began or ended
_UNJUDGED = frozenset(
    {Signal.BLIND, Signal.UNMEASURED_LOAD}
)  # such a window begins or ends no finding until it lasts
_UNJUDGED_S = 120.0  # reported when it lasts; no action is taken meanwhile
_RETRY_S, RETRY_MOST_S = 60.0, 3600.0  # after an action that failed; doubled each time
Key = tuple[str, str]


@dataclass
class WatchedService:
    """A service and its state between readings."""

    session: Session
    state: State = field(default_factory=State)
    profile: Profile = field(default_factory=Profile)
    facts: LedgerFacts = field(default_factory=LedgerFacts)
    read_at: float | None = None  # when the facts were read; None: they are to be read again
    assessment: Assessment = field(default_factory=lambda: Assessment(Signal.BLIND, "not read yet"))
    unjudged_since: float | None = None  # the first of the last windows that could not be judged
    finding: Signal | None = None
    found_at: float = (
        0.0  # when the finding began; the confirmation time of an action counts from it
    )
    is_read: bool = False  # its ledger was read, once at least
    fault: str = ""  # of the watch's own on this service, as last reported
    announced: bool = False  # its first judgement was reported, or was not worth an event
    reported: Signal | None = None  # the signal of the last event
    unpaid: bool = False  # that event said that speculation costs more than it gains
    hold_reasons: set[str] = field(
        default_factory=set
    )  # reported reasons for holding an action back
    guard: Guard = field(default_factory=Guard)
    sentinels: Sentinels | None = None  # that this process recorded
    asking: Future[SentinelResult] | None = None
    traffic_changes: tuple[str, ...] = ()  # how the traffic differs from what the gate measured
    decision: WatchDecision = field(default_factory=lambda: WatchDecision(WatchAct.NOTHING, ""))
    acting: Future[None] | None = None
    actions: int = 0
    failures: int = 0  # consecutive failed actions
    retry_at: float = 0.0
    restarted_at: float | None = (
        None  # the last try of a restart, also one refused before anything was recorded
    )

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.session.namespace, self.session.name

    def is_settled(self, now: float) -> bool:
        """Return whether this window can begin or end a finding: one without traffic cannot, nor one that cannot be
        judged before that lasts; since when it could not is kept here."""
        signal = self.assessment.signal
        if signal not in _UNJUDGED:
            self.unjudged_since = None
            return signal not in _QUIET
        self.unjudged_since = now if self.unjudged_since is None else self.unjudged_since
        return now - self.unjudged_since >= _UNJUDGED_S

    def start_confirmation(self, now: float) -> None:
        """Start the confirmation time of a finding when it begins. One that is acted on keeps it when it changes its
        name, as with the load from one window to the next."""
        before, finding = self.finding, self.assessment.signal if self.assessment.finding else None
        if finding is before:
            return
        self.finding = finding
        self.hold_reasons.clear()
        if before not in ACTIONABLE or finding not in ACTIONABLE:
            self.found_at = now

    def forget(self, guard: Guard) -> None:
        """Forget what was learned and found of engines that serve no more. ``guard``: of their answers."""
        self.state, self.guard, self.finding = State(), guard, None
        self.assessment = Assessment(Signal.BLIND, "not read yet")

    def pause_actions(self, now: float) -> None:
        """Count an action that failed, and hold the next one back for longer after each."""
        self.retry_at = now + min(_RETRY_S * 2.0**self.failures, RETRY_MOST_S)
        self.failures += 1

    def situation(self, now: float) -> Situation:
        """Return what a decision about the service depends on."""
        facts = self.facts
        return Situation(
            now=now,
            found_at=self.found_at,
            changes=facts.changes,
            fallbacks=facts.fallbacks,
            rungs=facts.rungs,
            replaced_spec=facts.replaced_spec.describe() if facts.replaced_spec is not None else "",
            busy=facts.busy,
            interrupted=facts.interrupted,
            restarts=facts.restarts
            if self.restarted_at is None
            else (*facts.restarts, self.restarted_at),
            retry_at=self.retry_at,
        )


_OF_CHECK = {Check.WRONG: Signal.WRONG_ANSWERS, Check.POISONED: Signal.POISONED_CACHE}


def with_answers(assessment: Assessment, guard: Guard) -> Assessment:
    """The assessment of a service whose sentinels found wrong answers: nothing is more urgent."""
    if guard.finding is None:
        return assessment
    return replace(assessment, signal=_OF_CHECK[guard.finding], text=guard.found)


def with_fallback(assessment: Assessment, facts: LedgerFacts, session: Session) -> Assessment:
    """The assessment of a service that fell back: that is its signal until somebody acknowledges it or something else
    is promoted. What is wrong now, and what cannot be read, comes first."""
    if facts.fell_back is None or assessment.finding or assessment.signal is Signal.BLIND:
        return assessment
    text = facts.fell_back.describe(session)
    if not facts.fell_back.acknowledged:
        return replace(assessment, signal=Signal.FELL_BACK, text=text)
    return (
        replace(assessment, text=text)
        if assessment.signal is Signal.HEALTHY and not facts.speculates
        else assessment
    )
