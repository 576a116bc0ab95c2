"""Events of the watch: what was seen, against which reference, what was done, and the command that reverts it."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.json_types import Json
from mpctl.report.record import camel_record
from mpctl.watch.assessment import MEANINGS, Assessment, remedy_of
from mpctl.watch.reference import Expected, Figures, Reference


@dataclass(frozen=True)
class WatchEvent:
    """An event of a service, or of the watch itself where the service is ``-``."""

    at: str
    namespace: str
    service: str
    kind: str  # signal (a finding began or ended), decision (an action is held back), action (one was taken) or error
    reason: str
    text: str
    finding: bool = False
    reference: str = ""  # the operation whose measurement was compared
    command: str = ""  # what to run
    revert: str = ""  # the command that undoes the action
    pays: bool | None = None
    figures: Figures | None = None
    expected: Expected | None = None

    @property
    def line(self) -> str:
        """The event for people."""
        parts = [f"{self.namespace}/{self.service}: {self.reason}: {self.text}"]
        if self.reference:
            parts.append(f"against {self.reference}")
        if self.command:
            parts.append(f"run '{self.command}'")
        if self.revert:
            parts.append(f"to revert: '{self.revert}'")
        return "; ".join(parts)

    def to_record(self) -> Json:
        """A JSON object."""
        return {
            "apiVersion": "mpctl.dev/v1alpha1",
            "kind": "WatchEvent",
            "time": self.at,
            "namespace": self.namespace,
            "service": self.service,
            "type": self.kind,
            "reason": self.reason,
            "message": self.text,
            "finding": self.finding,
            "reference": self.reference or None,
            "command": self.command or None,
            "revert": self.revert or None,
            "pays": self.pays,
            "figures": camel_record(self.figures),
            "expected": expected_record(self.expected),
        }


def signal_event(
    at: str, key: tuple[str, str], assessment: Assessment, reference: Reference | None
) -> WatchEvent:
    """Return the event of a finding that began, changed or ended."""
    costs = "; speculation costs more than it gains" if assessment.pays is False else ""
    namespace, service = key
    return WatchEvent(
        at,
        namespace,
        service,
        kind="signal",
        reason=assessment.signal.value,
        text=f"{MEANINGS[assessment.signal].text}: {assessment.text}{costs}",
        finding=assessment.finding,
        reference=reference.operation if reference is not None else "",
        command=remedy_of(assessment.signal, namespace, service) if assessment.finding else "",
        pays=assessment.pays,
        figures=assessment.figures,
        expected=assessment.expected,
    )


def reason_of(error: Exception) -> str:
    """Return the message of an error of mpctl, and type and text of any other."""
    return error.message if isinstance(error, MpctlError) else f"{type(error).__name__}: {error}"


def expected_record(expected: Expected | None) -> Json | None:
    """The reference at the present load as a JSON object; None without one."""
    if expected is None:
        return None
    return {
        "tokensPerStep": expected.tokens_per_step,
        "breakEvenTokensPerStep": expected.break_even,
        "stepMs": expected.step_ms,
        "timePerTokenMs": expected.time_per_token_ms,
        "firstAcceptance": expected.first_acceptance,
        "measuredLoad": expected.within,
    }
