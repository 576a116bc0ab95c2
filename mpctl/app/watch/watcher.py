"""The watch itself: one round reads all services, judges each, and carries out what the policy permits.

Reading many services takes threads, an operation takes minutes: both run beside the loop, and a service whose operation
is under way is not judged meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from mpctl.app.session.base import Session, SystemClock
from mpctl.app.watch.act import carry_out
from mpctl.app.watch.events import WatchEvent, signal_event
from mpctl.app.watch.facts import Facts, read_facts
from mpctl.app.watch.sources import Readers, Source, read_engines
from mpctl.errors import MpctlError
from mpctl.watch.assess import Assessment, State, assess
from mpctl.watch.decision import Act, Decision, Fleet, Situation, decide
from mpctl.watch.policy import WatchPolicy
from mpctl.watch.profile import Profile
from mpctl.watch.reading import Reading
from mpctl.watch.signals import Signal

ACTORS = 4
_DEADLINES_S = 5.0, 10.0  # of reading a service: its interval, within these bounds
# Between two readings of a service's ledger, four requests each: a thousand services take eight requests per second.
_REFRESH_S, _REFRESH_EACH_S = 60.0, 0.5
_BUSY_S = 10.0  # instead, while somebody works on the service: a dead watch's operation is to be continued soon
_QUIET = frozenset({Signal.IDLE})  # between two windows with traffic nothing began or ended
_UNJUDGED = frozenset({Signal.BLIND, Signal.UNMEASURED_LOAD})  # a finding neither begins nor ends in such a window
_RETRY_S, _RETRY_MOST_S = 60.0, 3600.0  # after an action that failed; doubled each time
_UNJUDGED_S = 120.0  # reported when it lasts; acting is impossible at once

_REASONS = {Act.RESTART: "Restarted", Act.FALL_BACK: "FellBack", Act.RE_ARM: "ReArmed", Act.RESUME: "Resumed"}

Key = tuple[str, str]


@dataclass
class Watched:
    """One service and its state between readings. ``reported``: the signal of the last event; ``unpaid``: that event
    reported that speculation costs more than it gains; ``finding``: the present finding, since ``found_at``;
    ``hold_reasons``: the reported reasons for holding an action back; ``failures``: consecutive failed actions;
    ``restarted_at``: when a restart was last tried, also one that was refused before anything was recorded."""

    session: Session
    state: State = field(default_factory=State)
    profile: Profile = field(default_factory=Profile)
    facts: Facts = field(default_factory=Facts)
    read_at: float | None = None
    assessment: Assessment = field(default_factory=lambda: Assessment(Signal.BLIND, "not read yet"))
    reported: Signal | None = None
    unpaid: bool = False
    finding: Signal | None = None
    found_at: float = 0.0
    hold_reasons: set[str] = field(default_factory=set)
    unjudged_since: float | None = None
    decision: Decision = field(default_factory=lambda: Decision(Act.NOTHING, ""))
    unlike: tuple[str, ...] = ()
    acting: Future[None] | None = None
    actions: int = 0
    failures: int = 0
    retry_at: float = 0.0
    restarted_at: float | None = None

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.session.namespace, self.session.name


def _with_fallback(assessment: Assessment, facts: Facts, session: Session) -> Assessment:
    """The assessment of a service that fell back: that is its signal until somebody acknowledges it or something else
    is promoted. What is wrong now, and what cannot be read, comes first."""
    if facts.fell_back is None or assessment.finding or assessment.signal is Signal.BLIND:
        return assessment
    text = facts.fell_back.describe(session)
    if not facts.fell_back.acknowledged:
        return replace(assessment, signal=Signal.FELL_BACK, text=text)
    return (
        replace(assessment, text=text) if assessment.signal is Signal.HEALTHY and not facts.speculates else assessment
    )


class Watcher:
    """``services`` lists what is watched; ``reopen`` opens a service for an operation; ``source``: where counters come
    from; ``emit`` gets each event. The clocks are seconds: ``monotonic`` never goes back, ``now`` is Unix time."""

    def __init__(
        self,
        policy: WatchPolicy,
        services: Callable[[], Sequence[Session]],
        reopen: Callable[[Session], Session],
        emit: Callable[[WatchEvent], None],
        *,
        source: Source = read_engines,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] | None = None,
        actors: Executor | None = None,
    ) -> None:
        self.policy, self._services, self._reopen, self._emit = policy, services, reopen, emit
        self._source, self._monotonic, self._clock = source, monotonic, SystemClock()
        self._now = now or (lambda: self._clock.now().timestamp())  # setting the machine's clock ends no cool-down
        shortest, longest = _DEADLINES_S
        self.readers = Readers(max(shortest, min(longest, policy.interval_s)))
        self._actors = actors or ThreadPoolExecutor(ACTORS, thread_name_prefix="act")
        self.watched: dict[Key, Watched] = {}
        self._listed_at: float | None = None
        self._begun: dict[Key, float] = {}
        self.rounds = 0

    def close(self) -> None:
        """Wait for operations under way: each ends, or fails, by itself."""
        self._actors.shutdown(wait=True)
        self.readers.close()

    def round(self) -> None:
        """Read, judge and decide once."""
        self._list()
        free = [w for w in self.watched.values() if w.acting is None or w.acting.done()]
        self._read_all_facts(free)
        readings = self._source([w.session for w in free], self.readers, self._monotonic)
        for watched in free:
            self._end_action(watched)
            self._judge(watched, readings.get(watched.key) or Reading(self._monotonic()))
        for watched in free:
            self._decide(watched)
        self.rounds += 1

    def _list(self) -> None:
        if self._listed_at is not None and self._monotonic() - self._listed_at < _REFRESH_S:
            return
        try:
            services = {(s.namespace, s.name): s for s in self._services()}
        except MpctlError as error:
            if self._listed_at is None:  # a wrong name or option, not a lost API server
                raise
            self._listed_at = self._monotonic()
            self._emit(WatchEvent(self._time(), "-", "-", "error", "NotListed", error.message))
            return
        self._listed_at = self._monotonic()
        for key in self.watched.keys() - services.keys():
            del self.watched[key]
        for key in services.keys() - self.watched.keys():
            self.watched[key] = Watched(services[key])

    def _read_all_facts(self, free: Sequence[Watched]) -> None:
        due = [watched for watched in free if self._is_due(watched)]
        facts = self.readers.read("ledger", self._facts_of, [watched.session for watched in due])
        late = f"the ledger was not read within {self.readers.deadline_s:g} s"
        for watched in due:
            self._take(watched, facts.get(watched.key, late))

    def _is_due(self, watched: Watched) -> bool:
        age = None if watched.read_at is None else self._monotonic() - watched.read_at
        wait = _BUSY_S if watched.facts.busy else max(_REFRESH_S, _REFRESH_EACH_S * len(self.watched))
        return age is None or age >= wait

    def _read_facts(self, watched: Watched) -> None:
        if self._is_due(watched):
            self._take(watched, self._facts_of(watched.session))

    def _facts_of(self, session: Session) -> Facts | str:
        """Return the facts, or why they cannot be read."""
        try:
            return read_facts(session, self.policy)
        except MpctlError as error:
            return f"the ledger cannot be read: {error.message}"

    def _take(self, watched: Watched, facts: Facts | str) -> None:
        if isinstance(facts, str):
            watched.facts = Facts(busy=facts, unread=facts)
            return
        if facts.live != watched.facts.live:  # another revision serves: nothing that was learned holds for it
            watched.state = State()
        watched.facts, watched.read_at = facts, self._monotonic()

    def _judge(self, watched: Watched, reading: Reading) -> None:
        facts = watched.facts
        watched.state, assessment = assess(
            self.policy, facts.reference, watched.state, reading, speculates=facts.speculates
        )
        watched.assessment = assessment = _with_fallback(assessment, facts, watched.session)
        for engine in assessment.restarted:
            text = f"{engine} restarted; its counters began again"
            self._emit(WatchEvent(self._time(), *watched.key, "signal", "EngineRestarted", text))
        if assessment.figures is not None:
            watched.profile = watched.profile.after(assessment.figures)
            self._compare_profile(watched)
        self._report(watched)

    def _compare_profile(self, watched: Watched) -> None:
        reference = watched.facts.reference
        unlike = watched.profile.unlike(reference) if reference is not None else ()
        if bool(unlike) != bool(watched.unlike):
            text = "; ".join(unlike) or "the traffic resembles what the gate measured again"
            command = watched.session.command("bench") if unlike else ""
            event = WatchEvent(
                *(self._time(), *watched.key, "signal", "TrafficChanged", text), finding=bool(unlike), command=command
            )
            self._emit(event)
        watched.unlike = unlike

    def _report(self, watched: Watched) -> None:
        """Emit an event when the signal changed; a moment that cannot be judged is no change before it lasts."""
        signal, now = watched.assessment.signal, self._now()
        if signal in _UNJUDGED:
            watched.unjudged_since = now if watched.unjudged_since is None else watched.unjudged_since
            if now - watched.unjudged_since < _UNJUDGED_S:
                return
        else:
            watched.unjudged_since = None
        unpaid = watched.assessment.pays is False
        if signal in _QUIET:
            return
        finding = signal if watched.assessment.finding else None
        if finding is not watched.finding:
            watched.finding, watched.found_at = finding, now
            watched.hold_reasons.clear()
        if signal is watched.reported and unpaid <= watched.unpaid:
            return
        first = watched.reported is None
        watched.reported, watched.unpaid = signal, unpaid
        if not first or watched.assessment.finding or signal is not Signal.HEALTHY:
            self._emit(signal_event(self._time(), *watched.key, watched.assessment, watched.facts.reference))

    def _decide(self, watched: Watched) -> None:
        decision = self._decision(watched)
        if decision.act in _REASONS:
            watched.read_at = None  # the ledger may have changed since it was read
            self._read_facts(watched)
            decision = self._decision(watched)
        reason = "BrakeHolds" if decision.brake else "Held"
        if decision.act is Act.HOLD and reason not in watched.hold_reasons:
            watched.hold_reasons.add(reason)
            self._emit(WatchEvent(self._time(), *watched.key, "decision", reason, decision.reason, finding=True))
        watched.decision = decision
        if decision.act in _REASONS:
            if decision.act in (Act.FALL_BACK, Act.RESTART):
                self._begun[watched.key] = self._now()
            if decision.act is Act.RESTART:
                watched.restarted_at = self._now()
            watched.acting = self._actors.submit(self._act, watched, decision)

    def _decision(self, watched: Watched) -> Decision:
        facts = watched.facts
        situation = Situation(
            now=self._now(),
            found_at=watched.found_at,
            changes=facts.changes,
            fallbacks=facts.fallbacks,
            rungs=facts.rungs,
            better=facts.better.describe() if facts.better is not None else "",
            busy=facts.busy,
            interrupted=facts.interrupted,
            restarts=facts.restarts if watched.restarted_at is None else (*facts.restarts, watched.restarted_at),
            retry_at=watched.retry_at,
        )
        recorded = [at for w in self.watched.values() if w is not watched for at in w.facts.actions]
        return decide(
            self.policy,
            watched.assessment,
            situation,
            Fleet(len(self.watched), (*recorded, *facts.fallbacks, *self._begun.values())),
        )

    def _act(self, watched: Watched, decision: Decision) -> None:
        """Runs in a thread of its own. Whatever happens is in the ledger; the next round reads it again."""
        facts = watched.facts
        reason = _REASONS[decision.act]
        revert = (
            watched.session.command("rollback", "--to-revision", facts.live.revision) if facts.live is not None else ""
        )
        try:
            session = self._reopen(watched.session)
            done = carry_out(session, self.policy, facts, decision)
        except MpctlError as error:
            self._failed(watched)
            text = f"{decision.act.value} failed: {error.message}"
            event = WatchEvent(
                *(self._time(), *watched.key, "error", f"{reason}Failed", text), finding=True, command=error.hint or ""
            )
        else:
            event = WatchEvent(
                *(self._time(), *watched.key, "action", reason, f"{decision.reason}; {done}"),
                reference=facts.reference.operation if facts.reference is not None else "",
                revert=revert,
                figures=watched.assessment.figures,
                expected=watched.assessment.expected,
            )
            watched.actions += 1
            watched.failures, watched.retry_at = 0, 0.0
        watched.read_at, watched.reported, watched.finding, watched.state = None, None, None, State()
        self._read_facts(watched)
        self._begun.pop(watched.key, None)  # the ledger has it by now
        self._emit(event)

    def _end_action(self, watched: Watched) -> None:
        """Report an action that ended in a way that nobody foresaw; it must be neither silent nor repeated at once."""
        fault = watched.acting.exception() if watched.acting is not None else None
        watched.acting = None
        if fault is None:
            return
        self._begun.pop(watched.key, None)
        watched.read_at = None
        self._failed(watched)
        text = f"{watched.decision.act.value} failed: {type(fault).__name__}: {fault}"
        command = watched.session.command("history")
        self._emit(WatchEvent(self._time(), *watched.key, "error", "ActionFailed", text, finding=True, command=command))

    def _failed(self, watched: Watched) -> None:
        watched.retry_at = self._now() + min(_RETRY_S * 2.0**watched.failures, _RETRY_MOST_S)
        watched.failures += 1

    def _time(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="seconds")
