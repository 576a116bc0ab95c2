"""Verify that the service runs as planned."""

from __future__ import annotations

from dataclasses import dataclass

from mpctl.errors import MpctlError
from mpctl.manifest import redacted
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.rollout.revision import text_digest
from mpctl.rollout.steps.candidate import POLL_S

FOLLOW_S = 30.0  # the Deployment controller observes a change within a second, on a busy control plane within a few


@dataclass(frozen=True)
class VerificationResult(StepResult):
    """The live service: the digest of its manifest, the engine's own arguments, fields that admission added."""

    digest: str
    argv: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


def verify(context: Context, operation: Operation) -> VerificationResult:
    """Verify the end state: manifest byte for byte, route, and the running engine's own arguments.

    Fields that admission adds by itself, such as a default of a newer KServe, are no difference, and are named.

    Raises:
        MpctlError: any of the three is not as planned.
    """
    plan = operation.plan
    context.progress.step("verify", "comparing the service with the plan")
    live = context.platform.read()
    added = context.platform.added_fields(plan.arm, live)
    if added is None:
        raise MpctlError(
            f"verification failed: service {live.name} is not byte for byte what was written"
        )
    for field in added:
        context.progress.note(
            f"added by admission: {field}; every field that was written is as written"
        )
    state = _settled_state(context, operation)
    growing = grows(state, pinned_pods(operation))
    if (
        live.routed != Arm(live.text).id
        or not state.matches
        or (state.phase is not Phase.READY and not growing)
    ):
        raise MpctlError(
            f"verification failed: service {live.name} routes to {live.routed}, {state.id} is {state.phase.value}"
        )
    if growing:
        context.progress.note(
            f"the autoscaler asks for more than the {state.pods_ready} pods that serve: {state.message}"
        )
    return VerificationResult(text_digest(live.text), redacted(state.argv or ()), added)


def _settled_state(context: Context, operation: Operation) -> ArmState:
    """Return the arm's state once the controllers have followed the autoscaler, which may have asked for more pods the
    moment it was unpinned; the state at the end of :data:`FOLLOW_S` if they have not."""
    began = context.clock.now()
    while True:
        state = context.engines.state(operation.plan.arm)
        passing = state.phase is Phase.STARTING and not grows(state, pinned_pods(operation))
        if not passing or (context.clock.now() - began).total_seconds() > FOLLOW_S:
            return state
        context.clock.sleep(POLL_S)


def pinned_pods(operation: Operation) -> int:
    """Return how many pods an autoscaler was pinned to that may add pods again; 0 where none may."""
    return int((operation.scaling or {}).get("replicas", 0)) if "unpin" in operation.done else 0


def grows(state: ArmState, pinned: int) -> bool:
    """Return whether the arm waits only for pods that an autoscaler added: as many as ``pinned`` serve. That these
    cannot be scheduled or created says nothing of the engine, that they restart does."""
    waits = state.phase is Phase.STARTING or (state.phase is Phase.FAILED and not state.restarts)
    return waits and 0 < pinned <= state.pods_ready
