"""Prove on a service of this machine that the watch finds a fault, falls back and tries the better spec again.

A drill has users of its own, breaks the serving engine or changes what its users ask, and runs the watch beside it. The
service ends as it was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from mpctl import commands
from mpctl.app.operate import rollback
from mpctl.app.requests import DrillRequest, RollbackRequest
from mpctl.app.session.base import DrillRig, Session
from mpctl.app.watch.events import WatchEvent
from mpctl.app.watch.facts import Facts, read_facts
from mpctl.app.watch.watcher import Watched, Watcher
from mpctl.app.workload import read_traffic
from mpctl.errors import InputError, MpctlError, Refused
from mpctl.experiment.built_in import BUILT_IN
from mpctl.rollout.operation import open_operation
from mpctl.watch.drill import EFFECTS, Answer, Fault, Result, throughput
from mpctl.watch.policy import WatchPolicy
from mpctl.watch.reference import Reference
from mpctl.watch.signals import Signal

_START_S = 300.0  # of an engine that was killed
_FOUND_S, _ACTED_S, _RE_ARMED_S = 300.0, 600.0, 1800.0
_UNDECIDED_S = 120.0  # after a finding, until it is clear that speculation still pays
_SETTLED_S = 120.0  # for a finding that is there before the fault
_POLL_S = 0.5
_ANSWER_TOKENS = 128.0  # where the reference does not say how long answers were
_UNTIMED = 1.05  # tokens per step that pay where the gate could measure no step times


class Load(Protocol):
    """The users of a drill, as :class:`mpctl.platform.users.Users`."""

    @property
    def answers(self) -> tuple[Answer, ...]: ...
    def send(self, prompts: Sequence[str]) -> None: ...
    def ask(self, prompt: str) -> Answer: ...
    def pause(self) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Clock:
    """Time and threads of a drill."""

    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    actors: Executor | None = None


@dataclass(frozen=True)
class DrillOutcome:
    """Of a whole drill. ``reference``: the operation whose measurement was compared."""

    title: str
    spec: str
    reference: str
    interval_s: float
    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        """Return whether every fault was met as it should be."""
        return all(result.passed for result in self.results)


def run(
    session: Session,
    request: DrillRequest,
    policy: WatchPolicy,
    reopen: Callable[[Session], Session],
    *,
    load: Callable[[DrillRig, Reference], Load] | None = None,
    clock: Clock | None = None,
) -> DrillOutcome:
    """Break the service in each way asked for, one after the other.

    Raises:
        Refused: the service is on a cluster, or nothing was promoted on it behind the gate.
        InputError: the prompts cannot be used.
        MpctlError: the service could not be restored; the hint says how.
    """
    rig = session.drill_rig()
    if rig is None:
        raise Refused(
            f"{session.title} serves in a cluster, where a drill would break the engines of its users",
            hint=f"start the same manifest on this machine: {commands.line('local', 'up', '-f', 'MANIFEST')}",
        )
    facts = read_facts(session, policy)
    if facts.busy:
        raise Refused(f"{session.title}: {facts.busy}")
    if facts.reference is None or facts.live is None or not facts.speculates:
        why = facts.unread or "no speculation was promoted on it behind the gate"
        raise Refused(f"{session.title}: {why}", hint=session.command("rollout", "--spec", "METHOD", "--keep-baseline"))
    usual = _usual(request, facts.reference)
    if request.prompts and not policy.re_arm_prompts:
        policy = replace(policy, re_arm_prompts=_files(request.prompts))
    novel = read_traffic(request.drift_to).prompts
    session.console.confirm(
        f"A drill breaks {session.title} {len(request.faults)} times, sends requests of its own, and lets the watch "
        "change the service. Requests of others may fail meanwhile; the service ends as it is now.\nContinue?"
    )
    users = (load or _users)(rig, facts.reference)
    drill = _Drill(session, request, policy, reopen, rig, users, clock or Clock(), facts, usual, novel)
    try:
        results = tuple(drill.meet(Fault(name)) for name in request.faults)
    finally:
        users.close()
    return DrillOutcome(session.title, facts.live.spec, facts.reference.operation, policy.interval_s, results)


def _usual(request: DrillRequest, reference: Reference) -> tuple[str, ...]:
    """The prompts that the gate measured, in turn.

    Raises:
        InputError: they were read from a file, which no record keeps.
    """
    names = sorted({band.traffic for band in reference.bands})
    if not request.prompts and any(name not in BUILT_IN for name in names):
        raise InputError(
            f"{reference.operation} measured {', '.join(names)}, of which no record keeps the texts",
            field="--prompts",
            hint="--prompts NAME=FILE, as the rollout was given them",
        )
    return tuple(prompt for text in request.prompts or names for prompt in read_traffic(text).prompts)


def _files(prompts: Sequence[str]) -> dict[str, str]:
    """Return prompts as a watch policy names them: file by class of traffic, a built-in set by its own name."""
    named = (text.partition("=") for text in prompts)
    return {name: file or name for name, _, file in named}


def _users(rig: DrillRig, reference: Reference) -> Load:
    """Users with the load and the answers that the gate measured."""
    from mpctl.platform.users import Users

    clients = max(1, round(max(band.batch for band in reference.bands)))
    longest = max((band.answer_tokens or 0.0 for band in reference.bands), default=0.0) or _ANSWER_TOKENS
    return Users(rig.url, rig.model, rig.token, clients=clients, max_tokens=round(1.5 * longest))


@dataclass(frozen=True)
class _Drill:
    """One drill; :meth:`meet` is one fault. ``facts``: the service as it was found, and as it is to end."""

    session: Session
    request: DrillRequest
    policy: WatchPolicy
    reopen: Callable[[Session], Session]
    rig: DrillRig
    users: Load
    clock: Clock
    facts: Facts
    usual: Sequence[str]
    novel: Sequence[str]

    def meet(self, fault: Fault) -> Result:
        """Break the service in one way, and see what the watch does about it."""
        arguments = self._arguments(fault)
        if isinstance(arguments, str):
            return Result(fault, skipped=arguments)
        self.session.console.note(f"{fault.value}: {EFFECTS[fault].text}")
        self._restore()
        first = len(self.users.answers)  # what is sent before and after a fault is not counted
        try:
            with self._watching(fault) as watch:
                result = watch.before(self.usual)
                if not result.failure:
                    result = watch.killed(result) if fault is Fault.KILLED else self._changed(watch, result, arguments)
        finally:
            self.users.pause()
            self._restore()
        answers = self.users.answers[first:]
        failed = [a for a in answers if a.error]
        rates = {name: throughput(answers, *window) for name, window in watch.windows.items()}
        result = replace(result, requests=len(answers), failed=len(failed), **rates)  # type: ignore[arg-type]
        if failed and fault is not Fault.KILLED and not result.failure and not result.skipped:
            result = replace(result, failure=f"{len(failed)} requests failed: {failed[0].error}")
        return result

    def _changed(self, watch: _Watch, result: Result, arguments: tuple[str, ...]) -> Result:
        """A fault that another spec ends."""
        if arguments:
            self.users.pause()  # the change comes with a restart, which is no part of the fault
            self.rig.crash(arguments)
            if not watch.wait(self.rig.serves):
                return replace(result, skipped="the engine did not start with it")
            # vLLM on a CPU starts with synthetic acceptance, and ends with its first request.
            if error := self.users.ask(self.usual[0]).error:
                return replace(result, skipped=f"the engine does not answer with it: {error}")
        self.users.send(self.usual if arguments else self.novel)
        result = watch.fallen_back(result)
        if result.fault is not Fault.DRIFT or result.recovered_s is None:
            return result
        self.users.send(self.usual)
        return watch.re_armed(result, self.usual)

    def _arguments(self, fault: Fault) -> tuple[str, ...] | str:
        """Return the additional arguments of the engine, or the reason to skip the fault."""
        spec = self.session.service().speculation() or {}
        if fault is Fault.STALE_HEAD:
            if "model" not in spec:
                return "the method loads no head"
            if self.request.newer_target is None:
                return "--newer-target names no other version of the target"
            return ("--model", self.request.newer_target, "--served-model-name", self.rig.model)
        if fault is Fault.SYNTHETIC:
            lot = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": self._poor_length()}
            return ("--speculative-config", json.dumps({**spec, **lot}))
        return ()

    def _poor_length(self) -> float:
        """Tokens per step half-way to the break-even, so that speculation costs more than it gains."""
        assert self.facts.reference is not None
        expected = self.facts.reference.expected(min(band.batch for band in self.facts.reference.bands))
        return round(1.0 + max((expected.break_even or _UNTIMED) - 1.0, 0.0) / 2.0, 3)

    def _restore(self) -> None:
        """Bring back what was promoted, without a fault."""
        session, wanted = self.reopen(self.session), self.facts.live
        assert wanted is not None
        live = read_facts(session, self.policy).live
        if live is None or live.spec != wanted.spec:
            request = RollbackRequest(to_revision=wanted.revision, why="drill: restored what it found", by="drill")
            rollback.run(session, request)
        self.rig.mend()
        end = self.clock.monotonic() + _START_S
        while not self.rig.serves():
            if self.clock.monotonic() > end:
                raise MpctlError(
                    f"{session.title} was not restored after a drill",
                    hint=session.command("rollback", "--to-revision", wanted.revision),
                )
            self.clock.sleep(_POLL_S)

    @contextmanager
    def _watching(self, fault: Fault) -> Iterator[_Watch]:
        # What is held back by time alone is shortened; limits of detection are the policy's own.
        window = self.request.window_s
        policy = replace(
            self.policy,
            fall_back=True,
            confirm_s=window,
            cool_down_s=window + 2 * self.policy.interval_s,
            per_day=100,
            fleet_share=1.0,
            fleet_window_s=1.0,
            re_arm=fault is Fault.DRIFT,
        )
        events: list[tuple[float, WatchEvent]] = []

        def emit(event: WatchEvent) -> None:
            events.append((self.clock.monotonic(), event))
            self.session.console.note(f"{event.at} {event.line}")

        watcher = Watcher(
            policy,
            lambda: [self.session],
            self.reopen,
            emit,
            monotonic=self.clock.monotonic,
            now=self.clock.now,
            actors=self.clock.actors,
        )
        try:
            yield _Watch(watcher, events, self.users, self.clock, self.request.window_s, fault, self.rig)
        finally:
            watcher.close()


class _Watch:
    """The watch beside one fault, round by round. ``windows``: from when to when each throughput is measured."""

    def __init__(
        self,
        watcher: Watcher,
        events: list[tuple[float, WatchEvent]],
        users: Load,
        clock: Clock,
        window_s: float,
        fault: Fault,
        rig: DrillRig,
    ) -> None:
        self._watcher, self._events, self._users, self._clock = watcher, events, users, clock
        self._window_s, self._fault, self._rig = window_s, fault, rig
        self.windows: dict[str, tuple[float, float]] = {}

    @property
    def _watched(self) -> Watched:
        return next(iter(self._watcher.watched.values()))

    def _until(self, met: Callable[[], bool], timeout_s: float) -> float | None:
        """Rounds of the watch until something is so; when, or None where it never was."""
        end = self._clock.monotonic() + timeout_s
        while True:
            began = self._clock.monotonic()
            self._watcher.round()
            if met():
                return self._clock.monotonic()
            if self._clock.monotonic() >= end:
                return None
            self._clock.sleep(max(self._watcher.policy.interval_s - (self._clock.monotonic() - began), 0.0))

    def wait(self, met: Callable[[], bool]) -> bool:
        """Without rounds."""
        end = self._clock.monotonic() + _START_S
        while not met():
            if self._clock.monotonic() > end:
                return False
            self._clock.sleep(_POLL_S)
        return True

    def _phase(self, name: str) -> None:
        """Measure a whole window from now on."""
        start = self._clock.monotonic()
        self._until(lambda: False, self._window_s)
        self.windows[name] = (start, self._clock.monotonic())

    def before(self, prompts: Sequence[str]) -> Result:
        """The service as it was promoted."""
        self._users.send(prompts)
        self._until(lambda: bool(self._users.answers), self._window_s)  # the first answers are slower
        result = Result(self._fault)
        self._phase("before")
        if self._watched.assessment.finding:  # contention by others passes
            self._until(lambda: not self._watched.assessment.finding, _SETTLED_S)
            self._phase("before")
        assessment = self._watched.assessment
        if assessment.finding:
            return replace(result, failure=f"before the fault: {assessment.signal.value}: {assessment.text}")
        return result

    def fallen_back(self, result: Result) -> Result:
        """From a fault until after the fallback."""
        at, past = self._clock.monotonic(), len(self._events)

        def happened(*kinds: str) -> tuple[float, WatchEvent] | None:
            new = self._events[past:]
            return next(((when, e) for when, e in new if e.kind in kinds and _is_finding(e)), None)

        if self._until(lambda: happened("signal") is not None, _FOUND_S) is None:
            return replace(result, failure=f"not detected within {_FOUND_S:.0f} s")
        signal = happened("signal")
        assert signal is not None
        result = replace(result, signal=signal[1].reason, detected_s=signal[0] - at)
        self._until(lambda: self._watched.acting is not None, self._window_s + _UNDECIDED_S)
        self.windows["during"] = (signal[0], self._clock.monotonic())
        if self._watched.acting is None:
            pays = self._watched.assessment.pays
            result = replace(result, pays=pays, action="reported")
            return result if pays else replace(result, failure=f"no fallback: {self._watched.decision.reason}")
        result = replace(result, pays=False)
        self._until(lambda: happened("action", "error") is not None, _ACTED_S)
        acted = happened("action", "error")
        if acted is None or acted[1].kind == "error":
            return replace(result, failure=acted[1].text if acted else f"no fallback within {_ACTED_S:.0f} s")
        result = replace(result, action=acted[1].text.rpartition("; ")[2], recovered_s=acted[0] - at)
        self._phase("after")
        return result

    def re_armed(self, result: Result, prompts: Sequence[str]) -> Result:
        """From the return of the usual traffic until after the better spec was promoted again."""
        at, past = self._clock.monotonic(), len(self._events)

        def ended() -> tuple[float, WatchEvent] | None:
            return next((pair for pair in self._events[past:] if pair[1].kind in ("action", "error")), None)

        def judged() -> bool:
            operation = open_operation(self._watched.session.store.entries())
            return ended() is not None or (operation is not None and "judge" in operation.done)

        self._until(lambda: self._watched.acting is not None, _FOUND_S)
        self._users.pause()  # the gate decides on quiet engines only (rule "tokens")
        self._until(judged, _RE_ARMED_S)
        self._users.send(prompts)
        self._until(lambda: ended() is not None, _ACTED_S)
        pair = ended()
        self._until(lambda: True, 0.0)
        if pair is None or not self._watched.facts.speculates:
            why = pair[1].text if pair is not None else f"nothing was tried within {_RE_ARMED_S:.0f} s"
            return replace(result, failure=f"not re-armed: {why}")
        result = replace(result, re_armed_s=pair[0] - at)
        self._users.send(prompts)
        self._phase("re_armed")
        return result

    def killed(self, result: Result) -> Result:
        """Measure from the engine's end until it answers again. No spec is at fault, so none is replaced."""
        at = self._clock.monotonic()
        self._rig.crash()
        killed = self._clock.monotonic()  # what was asked before may have been answered by the old engine

        def noticed() -> bool:
            assessment = self._watched.assessment
            return assessment.signal in (Signal.BLIND, Signal.RESTARTING) or bool(assessment.restarted)

        noticed_at = self._until(noticed, _FOUND_S)
        if noticed_at is None:
            return replace(result, failure=f"not detected within {_FOUND_S:.0f} s")
        result = replace(result, signal=self._watched.assessment.signal.value, detected_s=noticed_at - at)

        def answered() -> list[Answer]:
            return [a for a in self._users.answers if a.began > killed and not a.error]

        if self._until(lambda: bool(answered()), _START_S) is None:
            return replace(result, failure=f"no answer within {_START_S:.0f} s")
        back = min(a.ended for a in answered())
        self.windows["during"] = (at, back)
        self._phase("after")
        return replace(result, action="restarted by its supervisor", recovered_s=back - at)


def _is_finding(event: WatchEvent) -> bool:
    return event.kind != "signal" or (event.finding and event.reason != "TrafficChanged")
