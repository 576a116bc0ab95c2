"""Verify that the service runs as planned."""

from __future__ import annotations

from typing import Any

from mpctl.errors import MpctlError
from mpctl.manifest import redacted
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import Arm, ArmState, Phase
from mpctl.rollout.revision import text_digest


def verify(context: Context, operation: Operation) -> dict[str, Any]:
    """Prove the end state: manifest byte for byte, route, and the running engine's own arguments. What admission adds
    to a manifest by itself, such as a field that a newer KServe defaults, is no difference, and is named.

    Raises:
        MpctlError: any of the three is not as planned.
    """
    plan = operation.plan
    context.progress.step("verify", "comparing the service with the plan")
    live = context.platform.read()
    added = context.platform.added_fields(plan.arm, live)
    if added is None:
        raise MpctlError(f"service {live.name} is not byte for byte what was written")
    for field in added:
        context.progress.note(f"added by admission: {field}; every field that was written is as written")
    state = context.platform.state(plan.arm)
    growing = _grows(operation, state)
    if live.routed != Arm(live.text).id or not state.matches or (state.phase is not Phase.READY and not growing):
        raise MpctlError(
            f"service {live.name} does not run as written: routed to {live.routed}, {state.id} is {state.phase.value}"
        )
    if growing:
        context.progress.note(
            f"the autoscaler asks for more than the {state.pods_ready} pods that serve: {state.message}"
        )
    more = {"added": list(added)} if added else {}
    return {"digest": text_digest(live.text), "argv": list(redacted(state.argv or ())), **more}


def _grows(operation: Operation, state: ArmState) -> bool:
    """Whether all that it waits for are pods that the autoscaler, free again, asked for: as many serve as were held."""
    held = (operation.scaling or {}).get("replicas", 0) if "unpin" in operation.done else 0
    return state.phase is Phase.STARTING and 0 < held <= state.pods_ready
