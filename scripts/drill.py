"""Prove on a service of this machine that the watch finds a fault, falls back and tries the better spec again.

A drill has users of its own, breaks the serving engine or changes what its users ask, and runs the watch beside it. The
service ends as it was. Throughput is that of the users: each answer's tokens are spread over the time the answer took.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from mpctl import bounded, commands
from mpctl.app.operate import rollback
from mpctl.app.requests import RollbackRequest
from mpctl.app.session.base import Place, Session
from mpctl.app.session.local import LocalSession
from mpctl.app.session.open import open_session
from mpctl.app.watch.events import WatchEvent
from mpctl.app.watch.ledger_facts import LedgerFacts, read_facts
from mpctl.app.watch.loop import read_policy, reopen
from mpctl.app.watch.watcher import Watched, Watcher
from mpctl.app.workload import read_traffic
from mpctl.cli.printer import columns
from mpctl.cli.terminal import Terminal
from mpctl.errors import Conflict, InputError, MpctlError, Refused
from mpctl.experiment.answer_sets import SENTINELS
from mpctl.experiment.prompt_files import BUILT_IN
from mpctl.platform import http
from mpctl.platform.local.desired import Desired, change, read_observed
from mpctl.platform.local.engine import api_key, read_service, served_name
from mpctl.platform.local.platform import LocalPlatform
from mpctl.platform.local.processes import kill_group
from mpctl.rollout.operation import unfinished_operation
from mpctl.rollout.ports import Arm, Phase
from mpctl.watch.assessment import Signal
from mpctl.watch.reference import Reference
from mpctl.watch.watch_policy import WatchPolicy

FAILED = 9  # exit code
_ANSWER_S = 180.0
_PAUSE_S = 0.5  # after a request that failed, as a client that tries again
_START_S = 300.0  # of an engine that was killed
_FOUND_S, _ACTED_S, _RE_ARMED_S = 300.0, 600.0, 1800.0
_UNDECIDED_S = 120.0  # after a finding, until it is clear that speculation still pays
_SETTLED_S = 120.0  # for a finding that is there before the fault
_POLL_S = 0.5
_ANSWER_TOKENS = 128.0  # where the reference does not say how long answers were
_UNTIMED = 1.05  # tokens per step that pay where the gate could measure no step times


class Fault(StrEnum):
    """The fault that a drill injects."""

    DRIFT = "drift"
    STALE_HEAD = "stale-head"
    SYNTHETIC = "synthetic-acceptance"
    KILLED = "killed-engine"
    WRONG = "wrong-answers"
    POISONED = "poisoned-cache"


@dataclass(frozen=True)
class Effect:
    """``text``: the fault in words; ``changes_spec``: a fallback to another spec ends it. ``planted``: what the engine
    reads from its file of faults (scripts/python-wrong); ``signal``: the finding of sentinels that is meant."""

    text: str
    changes_spec: bool = True
    planted: dict[str, Any] | None = None
    signal: Signal | None = None


EFFECTS: dict[Fault, Effect] = {
    Fault.DRIFT: Effect("the traffic turns to text that the draft does not foresee, and comes back"),
    Fault.STALE_HEAD: Effect("the target is replaced by a newer version, the head is not"),
    Fault.SYNTHETIC: Effect("the engine accepts few drafts by lot, with the same manifest"),
    Fault.KILLED: Effect("the serving engine is killed", changes_spec=False),
    Fault.WRONG: Effect(
        "one token in twenty is another one",
        planted={"kind": "token random", "share": 0.05},
        signal=Signal.WRONG_ANSWERS,
    ),
    Fault.POISONED: Effect(
        "the prefix cache loses its values once, and keeps its blocks",
        changes_spec=False,
        planted={"kind": "prefix cache poisoned"},
        signal=Signal.POISONED_CACHE,
    ),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """One request of the users; times in seconds of one clock, ``error`` empty where it succeeded."""

    began: float
    ended: float
    tokens: int
    error: str = ""


@dataclass(frozen=True)
class Result:
    """The watch's response to a fault. ``signal``: the watch's finding; ``action``: the action taken.

    Seconds count from the fault; ``re_armed_s`` from the return of the usual traffic. Tokens per second: ``before`` the
    fault, ``during`` it with nothing done (what a service without fallback stays at), ``after`` the fallback, and
    ``re_armed``. ``pays``: whether speculation still paid under the fault. ``sentinels``: their requests until the
    finding, ``load_share`` of those of the users. ``skipped``: why it was left out;
    ``failure``: what did not happen as it should.
    """

    fault: Fault
    signal: str = ""
    action: str = ""
    pays: bool | None = None
    detected_s: float | None = None
    recovered_s: float | None = None
    re_armed_s: float | None = None
    requests: int = 0
    failed: int = 0
    before: float | None = None
    during: float | None = None
    after: float | None = None
    re_armed: float | None = None
    sentinels: int = 0
    load_share: float | None = None
    skipped: str = ""
    failure: str = ""

    @property
    def passed(self) -> bool:
        """True when the watch responded as it should; a skipped fault has not failed."""
        return not self.failure

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "fault": self.fault.value,
            "text": EFFECTS[self.fault].text,
            "passed": None if self.skipped else self.passed,
            "skipped": self.skipped or None,
            "failure": self.failure or None,
            "signal": self.signal or None,
            "action": self.action or None,
            "stillPays": self.pays,
            "secondsToDetect": self.detected_s,
            "secondsToRecover": self.recovered_s,
            "secondsToReArm": self.re_armed_s,
            "requests": self.requests,
            "requestsFailed": self.failed,
            "sentinelRequests": self.sentinels,
            "sentinelShare": self.load_share,
            "tokensPerSecond": {
                "before": self.before,
                "withoutFallback": self.during,
                "withFallback": self.after,
                "reArmed": self.re_armed,
            },
        }


def throughput(answers: Iterable[Answer], start: float, end: float) -> float | None:
    """Tokens per second between two moments; None where no time lies between them."""
    if end <= start:
        return None
    parts = (a.tokens * _overlap(a, start, end) for a in answers if not a.error)
    return math.fsum(parts) / (end - start)


def _overlap(answer: Answer, start: float, end: float) -> float:
    """Share of an answer's time that lies between two moments."""
    took = max(answer.ended - answer.began, 1e-6)
    return max(min(answer.ended, end) - max(answer.began, start), 0.0) / took


@dataclass(frozen=True, slots=True)
class DrillRequest:
    """The faults to inject, and the traffic meanwhile."""

    faults: tuple[str, ...]
    prompts: tuple[str, ...] = ()  # the traffic that the gate measured; () where it was built-in sets
    drift_to: str = "chat"  # what the traffic turns to
    newer_target: str | None = None  # another version of the target
    fault_file: str | None = None  # that the engine reads planted faults from
    window_s: float = 20.0  # of each phase


class Users:
    """``clients`` of a chat endpoint. They wait until :meth:`send` gives them prompts; close them to end them.

    Every request has a cache salt of its own, as in a measurement: repeated prompts must not be answered from the
    engine's prefix cache. Answers are streamed as there, too: an engine that hands out each token takes longer for a
    step on few cores, and would look faster than measured without.
    """

    def __init__(self, url: str, model: str, token: str | None, *, clients: int, max_tokens: int) -> None:
        self._url, self._model, self._max_tokens = f"{url}/v1/chat/completions", model, max_tokens
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._answers: list[Answer] = []
        self._prompts: tuple[str, ...] = ()
        self._busy, self._ended = 0, False
        self._number = itertools.count()
        self._salt = f"drill-{time.time_ns()}"
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All requests that ended."""
        with self._changed:
            return tuple(self._answers)

    def send(self, prompts: Sequence[str]) -> None:
        """Send these from now on, in turn."""
        with self._changed:
            self._prompts = tuple(prompts)
            self._changed.notify_all()

    def ask(self, prompt: str) -> Answer:
        """Send one request that is none of the users', and wait for its answer."""
        return self._ask(prompt, next(self._number))

    def pause(self) -> None:
        """Send nothing, and wait for the answers under way."""
        with self._changed:
            self._prompts = ()
            self._changed.wait_for(lambda: not self._busy, timeout=_ANSWER_S)

    def close(self) -> None:
        """End the clients after their answers."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=_ANSWER_S)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._prompts or self._ended)
                if self._ended:
                    return
                number = next(self._number)
                prompt = self._prompts[number % len(self._prompts)]
                self._busy += 1
            answer = self._ask(prompt, number)
            with self._changed:
                self._answers.append(answer)
                self._busy -= 1
                self._changed.notify_all()
            if answer.error:
                time.sleep(_PAUSE_S)

    def _ask(self, prompt: str, number: int) -> Answer:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self._max_tokens,
            "temperature": 0,
            "cache_salt": f"{self._salt}-{number}",
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began, tokens, error = time.monotonic(), 0, ""
        try:
            answer = http.request(
                "POST", self._url, json=body, headers=self._headers, seconds=_ANSWER_S, socket=http.SAME_USER
            )
            if answer.status == 200:
                tokens = _tokens(answer.text)
            else:
                error = f"status {answer.status}"
        except http.NoAnswer as failure:
            error = failure.message
        except (ValueError, KeyError, TypeError):
            error = "no usage in the answer"
        return Answer(began, time.monotonic(), tokens, error)


def _tokens(events: str) -> int:
    """Tokens of a streamed answer by its last event, which is its usage.

    Raises:
        NoAnswer: it ends with an error of the engine.
        ValueError, KeyError, TypeError: it ends with neither.
    """
    *_, last = (line for line in events.splitlines() if line.startswith("data: {"))
    event = bounded.loads(last.removeprefix("data: "))
    if "error" in event:
        raise http.NoAnswer(f"error {event['error']['code']} in place of an answer")
    return int(event["usage"]["completion_tokens"])


class LocalRig:
    """The serving engine of one service, and where its users ask."""

    def __init__(self, platform: LocalPlatform) -> None:
        self._platform = platform
        desired = platform.desired()
        service = read_service(desired.text, desired.name)
        self.url = f"http://127.0.0.1:{desired.port}"
        self.model, self.token = served_name(service), api_key(service)

    def crash(self, fault: tuple[str, ...] = ()) -> None:
        """Kill the serving engine. Its supervisor starts it again, from now on with ``fault`` added to its arguments.

        Raises:
            Conflict: no engine serves.
        """

        def edit(desired: Desired) -> Desired:
            arm = desired.arms.get(desired.route)
            if arm is None:
                raise Conflict(f"service {desired.namespace}/{desired.name} has no engine that serves")
            return desired.with_arm(desired.route, replace(arm, fault=fault))

        desired = change(self._platform.directory, edit)
        observed = read_observed(self._platform.directory)
        observed_arm = observed.arms.get(desired.route) if observed else None
        if observed_arm is not None and observed_arm.process is not None:
            kill_group(observed_arm.process)

    def mend(self) -> None:
        """Start the serving engine without its fault, if it has one."""
        desired = self._platform.desired()
        arm = desired.arms.get(desired.route)
        if arm is not None and arm.fault:
            self.crash()

    def plant(self, file: str, fault: dict[str, Any]) -> None:
        """Write the fault that the engine reads with its next step."""
        Path(file).write_text(json.dumps(fault), encoding="utf-8")

    def serves(self) -> bool:
        """Return whether the serving engine is ready."""
        desired = self._platform.desired()
        arm = desired.arms.get(desired.route)
        return arm is not None and self._platform.state(Arm(arm.manifest)).phase is Phase.READY


class Rig(Protocol):
    """The engine that a drill breaks, as :class:`LocalRig`."""

    url: str
    model: str
    token: str | None

    def crash(self, fault: tuple[str, ...] = ()) -> None: ...
    def mend(self) -> None: ...
    def plant(self, file: str, fault: dict[str, Any]) -> None: ...
    def serves(self) -> bool: ...


class Load(Protocol):
    """The users of a drill, as :class:`Users`."""

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

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "service": self.title,
            "spec": self.spec,
            "reference": self.reference,
            "intervalSeconds": self.interval_s,
            "passed": self.passed,
            "faults": [result.to_record() for result in self.results],
        }


def run(
    session: Session,
    request: DrillRequest,
    policy: WatchPolicy,
    open_again: Callable[[Session], Session],
    rig: Rig,
    *,
    load: Callable[[Rig, Reference], Load] | None = None,
    clock: Clock | None = None,
) -> DrillOutcome:
    """Break the service in each way asked for, one after the other.

    Raises:
        Refused: nothing was promoted on the service behind the gate.
        InputError: the prompts cannot be used.
        MpctlError: the service could not be restored; the hint says how.
    """
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
    drill = _Drill(session, request, policy, open_again, rig, users, clock or Clock(), facts, usual, novel)
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


def _users(rig: Rig, reference: Reference) -> Load:
    """Users with the load and the answers that the gate measured."""
    clients = max(1, round(max(band.batch for band in reference.bands)))
    longest = max((band.answer_tokens or 0.0 for band in reference.bands), default=0.0) or _ANSWER_TOKENS
    return Users(rig.url, rig.model, rig.token, clients=clients, max_tokens=round(1.5 * longest))


@dataclass(frozen=True)
class _Drill:
    """One drill; :meth:`meet` is one fault. ``facts``: the service as it was found, and as it is to end."""

    session: Session
    request: DrillRequest
    policy: WatchPolicy
    open_again: Callable[[Session], Session]
    rig: Rig
    users: Load
    clock: Clock
    facts: LedgerFacts
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
                    result = self._met(watch, result, arguments)
        finally:
            self.users.pause()
            if self.request.fault_file:
                self.rig.plant(self.request.fault_file, {})
            self._restore()
        answers = self.users.answers[first:]
        failed = [a for a in answers if a.error]
        rates = {name: throughput(answers, *window) for name, window in watch.windows.items()}
        result = replace(result, requests=len(answers), failed=len(failed), **rates)  # type: ignore[arg-type]
        if failed and fault is not Fault.KILLED and not result.failure and not result.skipped:
            result = replace(result, failure=f"{len(failed)} requests failed: {failed[0].error}")
        return result

    def _met(self, watch: _Watch, result: Result, arguments: tuple[str, ...]) -> Result:
        if result.fault is Fault.KILLED:
            return watch.killed(result)
        if EFFECTS[result.fault].planted is not None:
            return self._planted(watch, result)
        return self._changed(watch, result, arguments)

    def _planted(self, watch: _Watch, result: Result) -> Result:
        """A fault that only answers show. A cache that was poisoned once stays so with no fault at work."""
        effect, file = EFFECTS[result.fault], self.request.fault_file
        assert effect.planted is not None and file is not None
        if not watch.until_asked(SENTINELS):  # their blocks are in the cache, and all are right
            return replace(result, failure=f"sentinels were not asked within {_FOUND_S:.0f} s")
        self.rig.plant(file, effect.planted)
        if result.fault is Fault.POISONED:
            self.users.ask(self.usual[0])
            self.rig.plant(file, {})
        result = watch.fallen_back(result)
        if not result.failure and result.signal != effect.signal:
            result = replace(result, failure=f"found as {result.signal}")
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
        if EFFECTS[fault].planted is not None and self.request.fault_file is None:
            return "--fault-file names no file that the engine reads faults from (scripts/python-wrong)"
        return ()

    def _poor_length(self) -> float:
        """Tokens per step half-way to the break-even, so that speculation costs more than it gains."""
        assert self.facts.reference is not None
        expected = self.facts.reference.expected(min(band.batch for band in self.facts.reference.bands))
        return round(1.0 + max((expected.break_even or _UNTIMED) - 1.0, 0.0) / 2.0, 3)

    def _restore(self) -> None:
        """Bring back what was promoted, without a fault."""
        session, wanted = self.open_again(self.session), self.facts.live
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
            sentinel_s=self.policy.interval_s if EFFECTS[fault].planted is not None else 0.0,
            sentinel_share=0.05,
        )
        events: list[tuple[float, WatchEvent]] = []

        def emit(event: WatchEvent) -> None:
            events.append((self.clock.monotonic(), event))
            self.session.console.note(f"{event.at} {event.line}")

        watcher = Watcher(
            policy,
            lambda: [self.session],
            self.open_again,
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
        rig: Rig,
    ) -> None:
        self._watcher, self._events, self._users, self._clock = watcher, events, users, clock
        self._window_s, self._fault, self._rig = window_s, fault, rig
        self.windows: dict[str, tuple[float, float]] = {}
        self._sent = 0  # by sentinels, which an action begins to count again
        self._earlier = len(users.answers)

    @property
    def _watched(self) -> Watched:
        return next(iter(self._watcher.watched.values()))

    def _until(self, met: Callable[[], bool], timeout_s: float) -> float | None:
        """Rounds of the watch until something is so; when, or None where it never was."""
        end = self._clock.monotonic() + timeout_s
        while True:
            began = self._clock.monotonic()
            self._watcher.round()
            self._sent = max(self._sent, self._watched.guard.sent)
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

    def until_asked(self, count: int) -> bool:
        """Wait until so many sentinels were answered right."""
        return self._until(lambda: self._watched.guard.turn >= count, _FOUND_S) is not None

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
        users = len(self._users.answers) - self._earlier
        result = replace(result, sentinels=self._sent, load_share=self._sent / users if users else None)

        def acts() -> bool:
            return self._watched.acting is not None or happened("action", "error") is not None

        self._until(acts, self._window_s + _UNDECIDED_S)
        self.windows["during"] = (signal[0], self._clock.monotonic())
        if not acts():
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
            operation = unfinished_operation(self._watched.session.store.entries())
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


def rig_of(session: Session) -> LocalRig:
    """The serving engine of a service of this machine.

    Raises:
        Refused: users would notice a fault.
    """
    if not isinstance(session, LocalSession):
        raise Refused(
            f"{session.title} serves in a cluster, where a drill would break the engines of its users",
            hint=f"start the same manifest on this machine: {commands.line('local', 'up', '-f', 'MANIFEST')}",
        )
    return LocalRig(session.platform)


def main() -> int:
    """Run a drill and print what became of each fault."""
    parser = argparse.ArgumentParser(prog="scripts/drill", description=__doc__, allow_abbrev=False)
    parser.add_argument("name", nargs="?", metavar="SERVICE")
    parser.add_argument("--fault", action="append", choices=[fault.value for fault in Fault], help="default: all")
    parser.add_argument("--prompts", action="append", default=[], help="the usual traffic (default: as measured)")
    parser.add_argument("--drift-to", default="chat", help="what the traffic turns to (default: chat)")
    parser.add_argument("--newer-target", help="another version of the target, for stale-head")
    parser.add_argument("--fault-file", help="what MPCTL_WRONG named when the service was started, for planted faults")
    parser.add_argument("--watch-policy", help="limits of the watch; its waiting times are shortened")
    parser.add_argument("--interval", type=float, default=2.0, help="seconds between two readings (default: 2)")
    parser.add_argument("--window", type=float, default=20.0, help="seconds of each measurement (default: 20)")
    parser.add_argument("-n", "--namespace")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--json", action="store_true", help="print a JSON object instead of a table")
    options = parser.parse_args()
    terminal, place = Terminal.of_environment(yes=options.yes), Place("local", options.namespace)
    faults = tuple(options.fault or Fault)
    asked = (tuple(options.prompts), options.drift_to, options.newer_target, options.fault_file, options.window)
    request = DrillRequest(faults, *asked)
    try:
        session = open_session(place, terminal, options.name)
        policy = read_policy(options.watch_policy, options.interval)
        outcome = run(session, request, policy, reopen(terminal, place), rig_of(session))
    except MpctlError as error:
        terminal.error(error.message, error.hint)
        return error.exit_code
    print(json.dumps(outcome.to_record(), indent=2) if options.json else _table(outcome))
    return 0 if outcome.passed else FAILED


def _table(outcome: DrillOutcome) -> str:
    header = ["FAULT", "FOUND", "DETECTED", "RECOVERED", "RE-ARMED", "FAILED", "SENTINELS"]
    header += ["TOKENS/S BEFORE", "WITHOUT FALLBACK"]
    return columns([[*header, "WITH", "RE-ARMED", "RESULT"], *(_row(result) for result in outcome.results)])


def _row(result: Result) -> list[str]:
    if result.skipped:
        return [result.fault.value, *["-"] * 10, f"left out: {result.skipped}"]
    seconds = [_in("s", value) for value in (result.detected_s, result.recovered_s, result.re_armed_s)]
    rates = [_in("", value) for value in (result.before, result.during, result.after, result.re_armed)]
    counts = f"{result.failed} of {result.requests}"
    sentinels = "-" if result.load_share is None else f"{result.sentinels} ({result.load_share:.1%})"
    return [
        *(result.fault.value, result.signal or "-", *seconds, counts, sentinels, *rates),
        f"FAILED: {result.failure}" if result.failure else f"passed: {result.action}",
    ]


def _in(unit: str, value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} {unit}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
