"""The watch itself: one round reads all services, judges each, and carries out what the policy permits.

Reading many services takes threads, an operation takes minutes: both run beside the loop, and a service whose operation
is under way is not judged meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from mpctl.app.session.base import Session, SystemClock
from mpctl.app.watch.act import carry_out_decision
from mpctl.app.watch.events import WatchEvent, reason_of, signal_event
from mpctl.app.watch.ledger_facts import LedgerFacts, read_facts
from mpctl.app.watch.sentinels import SentinelResult, ask_sentinel
from mpctl.app.watch.sources import CounterSource, Readers, read_engines
from mpctl.app.watch.watched import (
    RETRY_MOST_S,
    Key,
    WatchedService,
    with_answers,
    with_fallback,
)
from mpctl.errors import MpctlError
from mpctl.json_types import Json
from mpctl.watch.assessment import Assessment, Signal, State, assess
from mpctl.watch.decision import CHANGES, Fleet, WatchAct, WatchDecision, decide
from mpctl.watch.reading import Reading
from mpctl.watch.reference import Profile
from mpctl.watch.sentinel import Check, Guard
from mpctl.watch.watch_policy import WatchPolicy

ACTORS, _ASKERS = 4, 8
_DEADLINES_S = 5.0, 10.0  # of reading a service: its interval, within these bounds
# Between two readings of a service and its ledger, six requests each at most: a thousand services take twelve a second.
_REFRESH_S, _REFRESH_EACH_S = 60.0, 0.5
_BUSY_S = 10.0  # instead, while somebody works on the service: a dead watch's operation is to be continued soon

_REASONS = {  # of the event after an action
    WatchAct.RESTART: "Restarted",
    WatchAct.FALL_BACK: "FellBack",
    WatchAct.RE_ARM: "ReArmed",
    WatchAct.RESUME: "Resumed",
}


def _late(readers: Readers) -> str:
    return f"the ledger was not read within {readers.deadline_s:g} s"


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
        source: CounterSource = read_engines,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] | None = None,
        actors: Executor | None = None,
    ) -> None:
        self.policy, self._services, self._reopen, self._emit = policy, services, reopen, emit
        self._source, self._monotonic, self._clock = source, monotonic, SystemClock()
        self._now = now or (
            lambda: self._clock.now().timestamp()
        )  # setting the machine's clock ends no cool-down
        shortest, longest = _DEADLINES_S
        self.readers = Readers(max(shortest, min(longest, policy.interval_s)))
        self._actors = actors or ThreadPoolExecutor(ACTORS, thread_name_prefix="act")
        self._askers = actors or ThreadPoolExecutor(_ASKERS, thread_name_prefix="ask")
        self.watched: dict[Key, WatchedService] = {}
        self._unlisted: dict[Key, tuple[float, WatchedService]] = {}  # with the time since when
        self._listed_at: float | None = None
        self._begun: dict[Key, float] = {}
        self.rounds = 0

    def close(self) -> None:
        """Wait for operations under way: each ends, or fails, by itself."""
        self._askers.shutdown(wait=True, cancel_futures=True)
        self._actors.shutdown(wait=True)
        self.readers.close()

    def round(self, *, acts: bool = True) -> None:
        """Read, judge and decide once; ``acts``: carry out what was decided."""
        self._list()
        free = [w for w in self.watched.values() if w.acting is None or w.acting.done()]
        facts = self._read_due_facts(free)
        readings = self._source([w.session for w in free], self.readers, self._monotonic)

        def judge(watched: WatchedService) -> None:
            if watched.key in facts:
                self._accept_facts(watched, facts[watched.key])
            self._end_action(watched)
            self._judge(watched, readings.get(watched.key) or Reading(self._monotonic()))

        judged = [watched for watched in free if self._succeeds(judge, watched)]
        for watched in judged:
            if self._succeeds(partial(self._decide, acts=acts), watched):
                watched.fault = ""
        self.rounds += 1

    def _succeeds(self, step: Callable[[WatchedService], None], watched: WatchedService) -> bool:
        """Carry out a step on a service. A fault, such as a bug that an odd answer meets, makes this service blind, is
        reported once, and ends the watch of no other service. A lost Lease ends the watch before its next round."""
        try:
            step(watched)
        except Exception as error:  # noqa: BLE001
            text = f"the watch failed on this service: {reason_of(error)}"
            watched.assessment, watched.decision = (
                Assessment(Signal.BLIND, text),
                WatchDecision(WatchAct.NOTHING, text),
            )
            if text != watched.fault:
                self._emit_event(watched, "error", "WatchFailed", text, finding=True)
            watched.fault = text
            return False
        return True

    def _list(self) -> None:
        if self._listed_at is not None and self._monotonic() - self._listed_at < _REFRESH_S:
            return
        try:
            services = {(s.namespace, s.name): s for s in self._services()}
        except Exception as error:
            if self._listed_at is None and isinstance(
                error, MpctlError
            ):  # a wrong name or option, not an odd answer
                raise
            self._listed_at = self._monotonic()
            self._emit(WatchEvent(self._time(), "-", "-", "error", "NotListed", reason_of(error)))
            return
        self._listed_at = self._monotonic()
        for key in self.watched.keys() - services.keys():
            if (
                self.watched[key].acting is None
            ):  # else its pauses and limits are needed as long as the operation runs
                self._unlisted[key] = self._monotonic(), self.watched.pop(key)
        for key in services.keys() - self.watched.keys():
            self.watched[key] = self._listed_again(key, services[key])

    def _listed_again(self, key: Key, session: Session) -> WatchedService:
        """Return a new service, or one that was not listed for a while, as when it is deployed anew: its pauses after
        failed actions go on, and what was learned of its engines is forgotten."""
        since, watched = self._unlisted.pop(key, (0.0, None))
        if watched is None or self._monotonic() - since > RETRY_MOST_S:
            return WatchedService(session)
        watched.session, watched.read_at = session, None
        watched.forget(Guard())
        return watched

    def _read_due_facts(self, free: Sequence[WatchedService]) -> Mapping[Key, LedgerFacts | str]:
        """Return the facts of the services that are due, or why they cannot be read."""
        due = [watched for watched in free if self._is_due(watched)]
        facts = self.readers.read("ledger", self._facts_of, [watched.session for watched in due])
        return {watched.key: facts.get(watched.key, _late(self.readers)) for watched in due}

    def _is_due(self, watched: WatchedService) -> bool:
        age = None if watched.read_at is None else self._monotonic() - watched.read_at
        wait = (
            _BUSY_S if watched.facts.busy else max(_REFRESH_S, _REFRESH_EACH_S * len(self.watched))
        )
        return age is None or age >= wait

    def _facts_of(self, session: Session) -> LedgerFacts | str:
        """Return the facts, or why they cannot be read."""
        try:
            return read_facts(session, self.policy)
        except Exception as error:  # noqa: BLE001  one odd object ends no watch of the others
            return f"the ledger cannot be read: {reason_of(error)}"

    def _accept_facts(self, watched: WatchedService, facts: LedgerFacts | str) -> None:
        if isinstance(facts, str):  # judged by what was read last, and left alone
            watched.facts = replace(watched.facts, busy=facts, interrupted="")
            return
        if (
            facts.live != watched.facts.live
        ):  # another revision serves: nothing that was learned holds for it
            watched.profile = Profile()
            watched.forget(Guard(1.0 if watched.is_read else 0.0))
        before, watched.facts = watched.facts, facts
        watched.read_at, watched.is_read = self._monotonic(), True
        self._emit_known_bad(watched, before)

    def _emit_known_bad(self, watched: WatchedService, before: LedgerFacts) -> None:
        """Emit an event when another set of faults of the engine applies to what serves."""
        sure, earlier = (
            [f for f in facts.known_bad if f.severity == "refuse"]
            for facts in (watched.facts, before)
        )
        if [finding.id for finding in sure] == [finding.id for finding in earlier]:
            return
        text = "; ".join(f"{finding.id}: {finding.reason}; {finding.todo}" for finding in sure)
        text = text or "the speculation is no longer among the combinations that are known to fail"
        command = watched.session.command("rollback") if sure else ""
        self._emit_event(watched, "signal", "KnownBad", text, finding=bool(sure), command=command)

    def _judge(self, watched: WatchedService, reading: Reading) -> None:
        facts = watched.facts
        watched.state, assessment = assess(
            self.policy, facts.reference, watched.state, reading, speculates=facts.speculates
        )
        if assessment.signal is Signal.NO_REFERENCE and facts.unread:
            assessment = replace(assessment, text=facts.unread)
        if not watched.is_read:  # whether speculation was promoted is unknown
            assessment = Assessment(Signal.BLIND, facts.busy)
        watched.guard = watched.guard.with_load(self.policy, assessment.requests)
        self._ask_for_answers(watched, len(reading.engines))
        assessment = with_answers(assessment, watched.guard)
        watched.assessment = assessment = with_fallback(assessment, facts, watched.session)
        for engine in assessment.restarted:
            self._emit_event(
                watched,
                "signal",
                "EngineRestarted",
                f"{engine} restarted; its counters began again",
            )
        if assessment.figures is not None:
            watched.profile = watched.profile.after(assessment.figures)
            self._compare_profile(watched)
        if watched.is_settled(self._now()):
            watched.start_confirmation(self._now())
            self._report(watched)

    def _ask_for_answers(self, watched: WatchedService, engines: int) -> None:
        """Take the result of the last sentinel, and send the next one where it is due."""
        if watched.asking is not None and watched.asking.done():
            result, watched.asking = watched.asking.result(), None
            before = watched.guard.last
            watched.guard = watched.guard.after(
                result.check, result.text, sent=result.sent, now=self._now()
            )
            watched.sentinels = result.recorded or watched.sentinels
            check = watched.guard.last
            if check is Check.ONCE or (check is Check.UNVERIFIED and check is not before):
                reason = "AnswerDiffered" if check is Check.ONCE else "AnswersUnverified"
                self._emit_event(watched, "signal", reason, result.text)
        busy = watched.facts.busy or not watched.is_read or watched.asking is not None
        if not busy and watched.guard.due(self.policy, self._now()):
            watched.asking = self._askers.submit(self._send_sentinel, watched, engines)

    def _send_sentinel(self, watched: WatchedService, engines: int) -> SentinelResult:
        """Send a sentinel, in a thread of its own and by a session of its own."""
        session = watched.session
        try:
            session = self._reopen(session)
            return ask_sentinel(
                session, watched.facts, watched.sentinels, watched.guard.turn, engines, self._time()
            )
        except MpctlError as error:
            return SentinelResult(Check.UNKNOWN, error.message)
        except Exception as error:  # noqa: BLE001  a fault of our own on one odd service ends no watch of the others
            return SentinelResult(Check.UNKNOWN, type(error).__name__)
        finally:
            if session is not watched.session:
                session.close()

    def _compare_profile(self, watched: WatchedService) -> None:
        reference = watched.facts.reference if watched.facts.speculates else None
        changes = watched.profile.differences(reference) if reference is not None else ()
        if bool(changes) != bool(watched.traffic_changes):
            text = "; ".join(changes) or "the traffic resembles what the gate measured again"
            command = watched.session.command("bench") if changes else ""
            self._emit_event(
                watched, "signal", "TrafficChanged", text, finding=bool(changes), command=command
            )
        if changes:
            cache = watched.state.cache.unknown("other traffic than the gate measured")
            watched.state = replace(watched.state, cache=cache)
        watched.traffic_changes = changes

    def _report(self, watched: WatchedService) -> None:
        """Emit an event when the signal changed."""
        signal, unpaid = watched.assessment.signal, watched.assessment.pays is False
        if signal is watched.reported and unpaid <= watched.unpaid:
            return
        first = not watched.announced
        watched.reported, watched.unpaid, watched.announced = signal, unpaid, True
        if not first or watched.assessment.finding or signal is not Signal.HEALTHY:
            self._emit(
                signal_event(self._time(), watched.key, watched.assessment, watched.facts.reference)
            )

    def _decide(self, watched: WatchedService, *, acts: bool) -> None:
        """Decide, emit what is held back or proposed, and start the action that the policy permits."""
        watched.decision = decision = self._decide_on_current_ledger(watched)
        reason = "BrakeHolds" if decision.brake else "Held"
        if decision.act is WatchAct.HOLD and reason not in watched.hold_reasons:
            watched.hold_reasons.add(reason)
            self._emit_event(watched, "decision", reason, decision.reason, finding=True)
        if acts and decision.act in CHANGES:
            if decision.act in (WatchAct.FALL_BACK, WatchAct.RESTART):
                self._begun[watched.key] = self._now()
            if decision.act is WatchAct.RESTART:
                watched.restarted_at = self._now()
            watched.acting = self._actors.submit(self._act, watched, decision)

    def _decide_on_current_ledger(self, watched: WatchedService) -> WatchDecision:
        """Decide; an action only on the ledger as it is now, which is read again until it stays the same."""
        while True:
            # A restart of this service must not brake the fallback that follows it.
            others = [w for w in self.watched.values() if w is not watched]
            recorded = [at for other in others for at in other.facts.actions]
            fleet = Fleet(
                len(self.watched), (*recorded, *watched.facts.fallbacks, *self._begun.values())
            )
            decision = decide(
                self.policy,
                watched.assessment,
                watched.situation(self._now()),
                fleet,
            )
            if decision.act not in CHANGES or not self._changed_meanwhile(watched):
                return decision

    def _changed_meanwhile(self, watched: WatchedService) -> bool:
        """Read the ledger again. Returns whether it holds other facts than before."""
        before = watched.facts
        self._accept_facts(
            watched, self.readers.read_anew(self._facts_of, watched.session) or _late(self.readers)
        )
        return watched.facts != before

    def _act(self, watched: WatchedService, decision: WatchDecision) -> None:
        """Act, in a thread of its own. The ledger records what happens, and the next round reads it again."""
        facts, reason = watched.facts, _REASONS[decision.act]
        details: Json
        try:
            session = self._reopen(watched.session)
            report = carry_out_decision(session, self.policy, facts, decision)
        except MpctlError as error:
            watched.pause_actions(self._now())
            kind, reason, text = (
                "error",
                f"{reason}Failed",
                f"{decision.act.value} failed: {error.message}",
            )
            details = {"finding": True, "command": error.hint or ""}
        else:
            kind, text, session = "action", f"{decision.reason}; {report}", watched.session
            before = facts.live if decision.act in (WatchAct.FALL_BACK, WatchAct.RE_ARM) else None
            details = {
                "reference": facts.reference.operation if facts.reference is not None else "",
                "revert": session.command("rollback", "--to-revision", before.revision)
                if before
                else "",
                "figures": watched.assessment.figures,
                "expected": watched.assessment.expected,
            }
            watched.actions += 1
            watched.failures, watched.retry_at = 0, 0.0
            watched.reported, watched.finding, watched.state, watched.guard = (
                None,
                None,
                State(),
                Guard(1.0),
            )
        watched.read_at = None
        recorded = self._facts_of(watched.session)
        if isinstance(recorded, LedgerFacts) and recorded.live == facts.live:
            details["revert"] = ""  # as before: there is nothing to take back
            reason = "NotReArmed" if reason == "ReArmed" else reason
        self._accept_facts(watched, recorded)
        self._begun.pop(watched.key, None)  # the ledger has it by now
        self._emit_event(watched, kind, reason, text, **details)

    def _end_action(self, watched: WatchedService) -> None:
        """Report an action that ended with a fault of our own; it must be neither silent nor repeated at once."""
        fault = watched.acting.exception() if watched.acting is not None else None
        watched.acting = None
        if fault is None:
            return
        self._begun.pop(watched.key, None)
        watched.read_at = None
        watched.pause_actions(self._now())
        text = f"{watched.decision.act.value} failed: {type(fault).__name__}: {fault}"
        self._emit_event(
            watched,
            "error",
            "ActionFailed",
            text,
            finding=True,
            command=watched.session.command("history"),
        )

    def _emit_event(
        self, watched: WatchedService, kind: str, reason: str, text: str, **details: Any
    ) -> None:
        """Emit an event of a service."""
        namespace, service = watched.key
        self._emit(WatchEvent(self._time(), namespace, service, kind, reason, text, **details))

    def _time(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="seconds")
