"""Break a service in one way after the other, and bring it back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from mpctl.app.operate import rollback
from mpctl.app.planned_workload import read_traffic
from mpctl.app.requests import RollbackRequest
from mpctl.app.session.base import Session
from mpctl.app.watch.events import WatchEvent
from mpctl.app.watch.ledger_facts import LedgerFacts, read_facts
from mpctl.app.watch.watcher import Watcher
from mpctl.errors import InputError, MpctlError, Refused
from mpctl.experiment.answer_sets import SENTINELS
from mpctl.experiment.prompt_files import BUILT_IN
from mpctl.watch.reference import Reference
from mpctl.watch.watch_policy import WatchPolicy
from scripts.drills.faults import EFFECTS, DrillOutcome, Fault, Result
from scripts.drills.rig import Rig
from scripts.drills.users import Load, throughput, users_of
from scripts.drills.watching import POLL_S, SENTINEL_S, START_S, Clock, Watch

_UNTIMED = 1.05  # tokens per step that pay where the gate could measure no step times


@dataclass(frozen=True, slots=True)
class DrillRequest:
    """The faults to inject, and the traffic meanwhile."""

    faults: tuple[str, ...]
    prompts: tuple[
        str, ...
    ] = ()  # the traffic that the gate measured; () where it was built-in sets
    drift_to: str = "chat"  # what the traffic turns to
    newer_target: str | None = None  # another version of the target
    window_s: float = 20.0  # of each phase


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
        raise Refused(
            f"{session.title}: {why}",
            hint=session.command("rollout", "--spec", "METHOD", "--keep-baseline"),
        )
    usual = _usual(request, facts.reference)
    if request.prompts and not policy.re_arm_prompts:
        policy = replace(policy, re_arm_prompts=_files(request.prompts))
    novel = read_traffic(request.drift_to).prompts
    session.console.confirm(
        f"A drill breaks {session.title} {len(request.faults)} times, sends requests of its own, and lets the watch "
        "change the service. Requests of others may fail meanwhile; the service ends as it is now.\nContinue?"
    )
    users = (load or users_of)(rig, facts.reference)
    drill = _Drill(
        session, request, policy, open_again, rig, users, clock or Clock(), facts, usual, novel
    )
    try:
        results = tuple(drill.meet(Fault(name)) for name in request.faults)
    finally:
        users.close()
    return DrillOutcome(
        session.title, facts.live.spec, facts.reference.operation, policy.interval_s, results
    )


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
    return tuple(
        prompt for text in request.prompts or names for prompt in read_traffic(text).prompts
    )


def _files(prompts: Sequence[str]) -> dict[str, str]:
    """Return prompts as a watch policy names them: file by class of traffic, a built-in set by its own name."""
    named = (text.partition("=") for text in prompts)
    return {name: file or name for name, _, file in named}


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
            if EFFECTS[fault].planted is not None:
                self.rig.ready_to_plant()
                self._wait_for_engine()
            with self._watching(fault) as watch:
                result = watch.before(self.usual)
                if not result.failure:
                    result = self._met(watch, result, arguments)
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

    def _met(self, watch: Watch, result: Result, arguments: tuple[str, ...]) -> Result:
        if result.fault is Fault.KILLED:
            return watch.killed(result)
        if EFFECTS[result.fault].planted is not None:
            return self._planted(watch, result)
        return self._changed(watch, result, arguments)

    def _planted(self, watch: Watch, result: Result) -> Result:
        """A fault that only answers show. A cache that was poisoned once stays so with no fault at work."""
        planted = EFFECTS[result.fault].planted
        assert planted is not None
        if failure := watch.until_asked(SENTINELS):  # each has its blocks in the cache then
            return replace(result, failure=failure)
        self.rig.plant(planted)
        if result.fault is Fault.POISONED:
            self.users.ask(self.usual[0])
            self.rig.plant({})
        return watch.fallen_back(result)

    def _changed(self, watch: Watch, result: Result, arguments: tuple[str, ...]) -> Result:
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
            lot = {
                "rejection_sample_method": "synthetic",
                "synthetic_acceptance_length": self._poor_length(),
            }
            return ("--speculative-config", json.dumps({**spec, **lot}))
        return ()

    def _poor_length(self) -> float:
        """Tokens per step half-way to the break-even, so that speculation costs more than it gains."""
        assert self.facts.reference is not None
        expected = self.facts.reference.expected(
            min(band.batch for band in self.facts.reference.bands)
        )
        return round(1.0 + max((expected.break_even or _UNTIMED) - 1.0, 0.0) / 2.0, 3)

    def _restore(self) -> None:
        """Bring back what was promoted, without a fault."""
        session, wanted = self.open_again(self.session), self.facts.live
        assert wanted is not None
        live = read_facts(session, self.policy).live
        if live is None or live.spec != wanted.spec:
            request = RollbackRequest(
                to_revision=wanted.revision, why="drill: restored what it found", by="drill"
            )
            rollback.run(session, request)
        self.rig.mend()
        self._wait_for_engine()

    def _wait_for_engine(self) -> None:
        assert self.facts.live is not None
        end = self.clock.monotonic() + START_S
        while not self.rig.serves():
            if self.clock.monotonic() > end:
                raise MpctlError(
                    f"{self.session.title}: its engine did not come back in a drill",
                    hint=self.session.command(
                        "rollback", "--to-revision", self.facts.live.revision
                    ),
                )
            self.clock.sleep(POLL_S)

    @contextmanager
    def _watching(self, fault: Fault) -> Iterator[Watch]:
        # What is held back by time alone is shortened; limits of detection are the policy's own.
        window = self.request.window_s
        planted = EFFECTS[fault].planted is not None
        policy = replace(
            self.policy,
            fall_back=True,
            confirm_s=2 * SENTINEL_S
            if planted
            else window,  # wrong answers need none, and are acted on alone
            cool_down_s=window + 2 * self.policy.interval_s,
            per_day=100,
            fleet_share=1.0,
            fleet_window_s=1.0,
            re_arm=fault is Fault.DRIFT,
            sentinel_s=self.policy.interval_s if planted else 0.0,
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
            yield Watch(
                watcher, events, self.users, self.clock, self.request.window_s, fault, self.rig
            )
        finally:
            watcher.close()
