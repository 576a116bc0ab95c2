"""The faults of a drill, and what became of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mpctl.watch.assessment import Signal


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
    """``text``: the fault in words; ``signals``: the findings that are its own, any other finds something else.
    ``planted``: what the engine reads from its file of faults (tests/local/faulty)."""

    text: str
    signals: frozenset[Signal]
    planted: dict[str, Any] | None = None


_POOR_DRAFTS = frozenset({Signal.WORSE_DRAFT, Signal.NO_DRAFTS, Signal.STEP_TO_ZERO})


EFFECTS: dict[Fault, Effect] = {
    Fault.DRIFT: Effect(
        "the traffic turns to text that the draft does not foresee, and comes back", _POOR_DRAFTS
    ),
    Fault.STALE_HEAD: Effect(
        "the target is replaced by a newer version, the head is not", _POOR_DRAFTS
    ),
    Fault.SYNTHETIC: Effect(
        "the engine accepts few drafts by lot, with the same manifest", _POOR_DRAFTS
    ),
    Fault.KILLED: Effect(
        "the serving engine is killed", frozenset({Signal.BLIND, Signal.RESTARTING})
    ),
    Fault.WRONG: Effect(
        "one token in fifty is another one",
        frozenset({Signal.WRONG_ANSWERS}),
        {"kind": "token random", "share": 0.02},
    ),
    Fault.POISONED: Effect(
        "the prefix cache loses its values once, and keeps its blocks",
        frozenset({Signal.POISONED_CACHE}),
        {"kind": "prefix cache poisoned"},
    ),
}


@dataclass(frozen=True)
class Result:
    """The watch's response to a fault. ``signal``: the watch's finding; ``action``: the action taken.

    Seconds count from the fault; ``re_armed_s`` from the return of the usual traffic. Tokens per second: ``before`` the
    fault, ``during`` it with nothing done (what a service without fallback stays at), ``after`` the fallback, and
    ``re_armed``. ``pays``: whether speculation still paid under the fault. ``sentinels``: those sent until the
    finding, which ``repeated`` requests confirmed, and their ``load_share`` of the users' requests. ``skipped``: why
    it was left out; ``failure``: what did not happen as it should.
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
    repeated: int = 0
    load_share: float | None = None
    skipped: str = ""
    failure: str = ""

    @property
    def passed(self) -> bool:
        """True when the watch responded as it should. A fault that was left out has shown nothing."""
        return not self.failure and not self.skipped

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
            "sentinels": self.sentinels,
            "sentinelsRepeated": self.repeated,
            "sentinelShare": self.load_share,
            "tokensPerSecond": {
                "before": self.before,
                "withoutFallback": self.during,
                "withFallback": self.after,
                "reArmed": self.re_armed,
            },
        }


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
