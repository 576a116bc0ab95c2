"""Faults of a drill, and the figures of how the watch met each: time to detect, time to recover, requests, throughput.

Throughput is that of the users: each answer's tokens are spread over the time the answer took.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Fault(StrEnum):
    """The fault that a drill injects."""

    DRIFT = "drift"
    STALE_HEAD = "stale-head"
    SYNTHETIC = "synthetic-acceptance"
    KILLED = "killed-engine"


@dataclass(frozen=True)
class Effect:
    """``text``: the fault in words; ``changes_spec``: a fallback to another spec ends it."""

    text: str
    changes_spec: bool = True


EFFECTS: dict[Fault, Effect] = {
    Fault.DRIFT: Effect("the traffic turns to text that the draft does not foresee, and comes back"),
    Fault.STALE_HEAD: Effect("the target is replaced by a newer version, the head is not"),
    Fault.SYNTHETIC: Effect("the engine accepts few drafts by lot, with the same manifest"),
    Fault.KILLED: Effect("the serving engine is killed", changes_spec=False),
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
    ``re_armed``. ``pays``: whether speculation still paid under the fault. ``skipped``: why it was left out;
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
