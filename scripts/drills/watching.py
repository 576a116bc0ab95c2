"""The watch beside one fault."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from mpctl.app.watch.events import WatchEvent
from mpctl.app.watch.watched import WatchedService
from mpctl.app.watch.watcher import Watcher
from mpctl.rollout.operation import unfinished_operation
from mpctl.watch.sentinel import Check
from scripts.drills.faults import EFFECTS, Fault, Result
from scripts.drills.rig import Rig
from scripts.drills.users import Answer, Load

START_S = 600.0  # of an engine, as `mpctl local up` and a rollout wait for one
FOUND_S = 300.0
SENTINEL_S = 900.0  # for some sentinels, of which the load allows few
_ACTED_S, _RE_ARMED_S = 600.0, 1800.0
_UNDECIDED_S = 120.0  # after a finding, until it is clear that speculation still pays
_SETTLED_S = 120.0  # for a finding that is there before the fault
POLL_S = 0.5


@dataclass(frozen=True)
class Clock:
    """Time and threads of a drill."""

    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    actors: Executor | None = None


class Watch:
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
        self._asked = self._sent = (
            0  # sentinels and their requests, which an action begins to count again
        )
        self._earlier = len(users.answers)

    @property
    def _watched(self) -> WatchedService:
        return next(iter(self._watcher.watched.values()))

    def _until(self, met: Callable[[], bool], timeout_s: float) -> float | None:
        """Rounds of the watch until something is so; when, or None where it never was."""
        end = self._clock.monotonic() + timeout_s
        while True:
            began = self._clock.monotonic()
            self._watcher.round()
            self._asked = max(self._asked, self._watched.guard.turn)
            self._sent = max(self._sent, self._watched.guard.sent)
            if met():
                return self._clock.monotonic()
            if self._clock.monotonic() >= end:
                return None
            self._clock.sleep(
                max(self._watcher.policy.interval_s - (self._clock.monotonic() - began), 0.0)
            )

    def wait(self, met: Callable[[], bool]) -> bool:
        """Without rounds."""
        end = self._clock.monotonic() + START_S
        while not met():
            if self._clock.monotonic() > end:
                return False
            self._clock.sleep(POLL_S)
        return True

    def _phase(self, name: str) -> None:
        """Measure a whole window from now on."""
        start = self._clock.monotonic()
        self._until(lambda: False, self._window_s)
        self.windows[name] = (start, self._clock.monotonic())

    def before(self, prompts: Sequence[str]) -> Result:
        """The service as it was promoted."""
        self._users.send(prompts)
        self._until(
            lambda: bool(self._users.answers), self._window_s
        )  # the first answers are slower
        result = Result(self._fault)
        self._phase("before")
        own_signals = EFFECTS[self._fault].signals
        if self._watched.assessment.signal in own_signals:  # contention by others passes
            self._until(lambda: self._watched.assessment.signal not in own_signals, _SETTLED_S)
            self._phase("before")
        assessment = self._watched.assessment
        if assessment.signal in own_signals:
            return replace(
                result, failure=f"before the fault: {assessment.signal.value}: {assessment.text}"
            )
        return result

    def until_asked(self, count: int) -> str:
        """Wait until so many sentinels were answered; why the engine is not known to be sound, or nothing."""
        if self._until(lambda: self._watched.guard.turn >= count, SENTINEL_S) is None:
            return f"{count} sentinels were not asked within {SENTINEL_S:.0f} s: {self._watched.guard.text}"
        guard = self._watched.guard
        return (
            f"before the fault: {guard.text}"
            if guard.wrong or guard.last is not Check.RIGHT
            else ""
        )

    def fallen_back(self, result: Result) -> Result:
        """From a fault until after the fallback. Only findings of the fault's own kind count."""
        own_signals = EFFECTS[self._fault].signals
        limit_s = FOUND_S if EFFECTS[self._fault].planted is None else SENTINEL_S
        at, past = self._clock.monotonic(), len(self._events)

        def happened(*kinds: str) -> tuple[float, WatchEvent] | None:
            new = self._events[past:]
            return next(
                (
                    (when, e)
                    for when, e in new
                    if e.kind in kinds and (e.kind != "signal" or e.reason in own_signals)
                ),
                None,
            )

        if self._until(lambda: happened("signal") is not None, limit_s) is None:
            others = {e.reason for _, e in self._events[past:] if e.kind == "signal" and e.finding}
            instead = f"; found was {', '.join(sorted(others))}" if others else ""
            return replace(result, failure=f"not detected within {limit_s:.0f} s{instead}")
        signal = happened("signal")
        assert signal is not None
        result = replace(result, signal=signal[1].reason, detected_s=signal[0] - at)
        users = len(self._users.answers) - self._earlier
        if EFFECTS[self._fault].planted is not None:
            share = self._asked / users if users else None
            result = replace(
                result, sentinels=self._asked, repeated=self._sent - self._asked, load_share=share
            )

        def acts() -> bool:
            return self._watched.acting is not None or happened("action", "error") is not None

        self._until(acts, self._window_s + _UNDECIDED_S)
        self.windows["during"] = (signal[0], self._clock.monotonic())
        if not acts():
            pays = self._watched.assessment.pays
            result = replace(result, pays=pays, action="reported")
            return (
                result
                if pays
                else replace(result, failure=f"no fallback: {self._watched.decision.reason}")
            )
        result = replace(result, pays=False)
        self._until(lambda: happened("action", "error") is not None, _ACTED_S)
        acted = happened("action", "error")
        if acted is None or acted[1].kind == "error":
            return replace(
                result, failure=acted[1].text if acted else f"no fallback within {_ACTED_S:.0f} s"
            )
        if acted[1].text.partition(":")[0] not in own_signals:
            return replace(result, failure=f"the watch acted on another finding: {acted[1].text}")
        result = replace(
            result, action=acted[1].text.rpartition("; ")[2], recovered_s=acted[0] - at
        )
        self._phase("after")
        return result

    def re_armed(self, result: Result, prompts: Sequence[str]) -> Result:
        """From the return of the usual traffic until after the better spec was promoted again."""
        at = self._clock.monotonic()
        pair = self._gated(prompts)
        if pair is None or not self._watched.facts.speculates:
            why = (
                pair[1].text
                if pair is not None
                else f"nothing was tried within {_RE_ARMED_S:.0f} s"
            )
            return replace(result, failure=f"not re-armed: {why}")
        result = replace(result, re_armed_s=pair[0] - at)
        self._users.send(prompts)
        self._phase("re_armed")
        return result

    def _gated(self, prompts: Sequence[str]) -> tuple[float, WatchEvent] | None:
        """Follow the watch's next rollout, and return the event that ends it; None without one."""
        past = len(self._events)

        def ended() -> tuple[float, WatchEvent] | None:
            return next(
                (pair for pair in self._events[past:] if pair[1].kind in ("action", "error")), None
            )

        def judged() -> bool:
            operation = unfinished_operation(self._watched.session.store.entries())
            return ended() is not None or (operation is not None and "judge" in operation.done)

        self._until(lambda: self._watched.acting is not None, FOUND_S)
        self._users.pause()  # the gate decides on quiet engines only (rule "tokens")
        self._until(judged, _RE_ARMED_S)
        self._users.send(prompts)
        self._until(lambda: ended() is not None, _ACTED_S)
        self._until(lambda: True, 0.0)
        return ended()

    def killed(self, result: Result) -> Result:
        """Measure from the engine's end until it answers again. No spec is at fault, so none is replaced."""
        at = self._clock.monotonic()
        self._rig.crash()
        killed = (
            self._clock.monotonic()
        )  # what was asked before may have been answered by the old engine

        def noticed() -> bool:
            assessment = self._watched.assessment
            return assessment.signal in EFFECTS[self._fault].signals or bool(assessment.restarted)

        noticed_at = self._until(noticed, FOUND_S)
        if noticed_at is None:
            return replace(result, failure=f"not detected within {FOUND_S:.0f} s")
        result = replace(
            result, signal=self._watched.assessment.signal.value, detected_s=noticed_at - at
        )

        def answered() -> list[Answer]:
            return [a for a in self._users.answers if a.began > killed and not a.error]

        if self._until(lambda: bool(answered()), START_S) is None:
            return replace(result, failure=f"no answer within {START_S:.0f} s")
        back = min(a.ended for a in answered())
        self.windows["during"] = (at, back)
        self._phase("after")
        return replace(result, action="restarted by its supervisor", recovered_s=back - at)
