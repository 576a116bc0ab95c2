"""Route users to the retained baseline, and restore the route."""

from __future__ import annotations

from typing import Any

from mpctl.errors import MpctlError
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import Phase


def redirect(context: Context, operation: Operation) -> dict[str, Any]:
    """All of the route's traffic to the kept arm, by one write; the service is restored behind it.

    Where the kept arm does not serve (any more), the service is restored as it is without one. The route is put back
    then: an earlier try may have moved it before the arm ended.
    """
    plan = operation.plan
    route = route_of(operation)
    state = context.platform.state(plan.arm)
    if state.phase is not Phase.READY:
        context.progress.note(f"the kept {plan.arm.id} does not serve: {state.message or state.phase.value}")
        left = context.router.unshift(route)
        for line in left:
            context.progress.note(line)
        return {"moved": False, "left": list(left)}
    context.progress.step("redirect", f"all traffic of route {route['name']} to {plan.spec}, which was kept")
    context.router.shift(route, 100)
    return {"moved": True}


def unshift(context: Context, operation: Operation) -> dict[str, Any]:
    """Put the route back exactly as it was found, and let what the other arm was sent be answered."""
    context.progress.step("unshift", "putting the route back")
    left = context.router.unshift(route_of(operation))
    for line in left:
        context.progress.note(line)
    return {"left": list(left)}


class Leaving:
    """Puts the route back as soon as the kept arm that has its traffic serves nobody any more: the service behind it,
    restored or not yet, does."""

    def __init__(self, context: Context, operation: Operation) -> None:
        self._context, self._operation = context, operation
        moved = bool(operation.done.get("redirect", {}).get("moved"))
        self._left = not moved or "unshift" in operation.done
        self._told = ""

    def look(self) -> None:
        """Once, without raising: what cannot be put back now is tried again, and is the unshift step's to report."""
        if self._left:
            return
        try:
            kept = self._context.platform.retained_baseline()
            if kept is not None and kept.pods_ready:
                return
            left = self._context.router.unshift(route_of(self._operation))
        except MpctlError as error:
            self._note(f"whether the kept arm has the traffic and serves is not known: {error.message}")
            return
        self._left = True
        self._note("the kept arm has no ready pod any more: the route is put back before the service is restored")
        for line in left:
            self._context.progress.note(line)

    def _note(self, line: str) -> None:
        if line != self._told:
            self._told = line
            self._context.progress.note(line)


def route_of(operation: Operation) -> dict[str, Any]:
    route = operation.plan.route
    assert route is not None  # else there is no such step
    return route
