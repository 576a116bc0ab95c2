"""Carry out what the watch decided, by the operations that a person would run."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from mpctl.app.operate import resume, rollback, rollout
from mpctl.app.requests import MeasurementRequest, RollbackRequest, RolloutRequest, SpeculationRequest
from mpctl.app.session.base import Session
from mpctl.app.watch.facts import WATCH, Facts
from mpctl.rollout.ports import RoundProgress
from mpctl.watch.decision import Act, Decision
from mpctl.watch.policy import WatchPolicy


class Unattended:
    """A user who is not there: the policy file is the consent, and what operations report goes to ``tell``."""

    verbose = 0

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def step(self, name: str, detail: str) -> None:
        """Report a step."""
        self._tell(f"{name}: {detail}")

    def update(self, detail: str) -> None:
        """Waiting is not reported."""

    def note(self, text: str) -> None:
        """Report a line."""
        self._tell(text)

    def round(self, progress: RoundProgress) -> None:
        """Rounds are in the records."""

    def warn(self, text: str) -> None:
        """Report a warning."""
        self._tell(f"warning: {text}")

    def next_command(self, arguments: str) -> None:
        """Nobody types it."""

    def confirm(self, question: str, *, typed: str = "") -> None:
        """The policy file has agreed."""

    def stoppable(self) -> AbstractContextManager[None]:
        """The process of the watch handles its signals itself."""
        return nullcontext()


def carry_out(session: Session, policy: WatchPolicy, facts: Facts, decision: Decision) -> str:
    """Do it; returns what was done, in words.

    Raises:
        MpctlError: it failed; what was begun is in the ledger, and the next reading continues it.
    """
    if decision.act is Act.RESUME:
        prompts = tuple(f"{name}={file}" for name, file in dict(policy.re_arm_prompts).items())
        outcome = resume.run(session, prompts)
        return f"{facts.interrupted} was continued: {_ended(outcome.operation)}"
    if decision.act is Act.RE_ARM:
        assert facts.better is not None
        outcome = rollout.run(session, re_arm_request(policy, facts))
        return f"{facts.better.describe()} was measured again: {_ended(outcome.operation)}"
    assert decision.rung is not None
    why = f"watch: {decision.reason}"
    request = RollbackRequest(to_revision=decision.rung.revision, why=why, by=WATCH)
    outcome = rollback.run(session, request)
    return f"fell back to {decision.rung.spec}, revision {decision.rung.revision}: {_ended(outcome.operation)}"


def re_arm_request(policy: WatchPolicy, facts: Facts) -> RolloutRequest:
    """The rollout that tries the better spec again, behind the gate, on the policy's prompts."""
    assert facts.better is not None
    config = facts.better.config() or {}
    prompts = tuple(f"{name}={file}" for name, file in dict(policy.re_arm_prompts).items())
    return RolloutRequest(
        SpeculationRequest(
            facts.better.method, config=json.dumps(config), draft=str(config.get("model") or "") or None
        ),
        MeasurementRequest(prompts=prompts),
        by=WATCH,
    )


def _ended(operation: object) -> str:
    ending, name = getattr(operation, "ending", None), getattr(operation, "id", "")
    return f"{name} {ending.value}" if ending is not None else "nothing to do"
