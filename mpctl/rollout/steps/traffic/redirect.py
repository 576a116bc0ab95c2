"""Route users to the retained baseline, and restore the route."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpctl.errors import MpctlError
from mpctl.rollout.context import Context
from mpctl.rollout.operation import Operation, StepResult
from mpctl.rollout.ports import Phase


@dataclass(frozen=True)
class Redirected(StepResult):
    """``moved``: the retained baseline has the traffic; ``left``: parts of the route that another writer changed."""

    moved: bool
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unshifted(StepResult):
    """Parts of the route that were left as they are because another writer changed them."""

    left: tuple[str, ...] = ()


def redirect(context: Context, operation: Operation) -> Redirected:
    """Give the retained baseline all of the route's traffic by one write; the service is restored behind it.

    Where the retained baseline does not serve any more, the service is restored without it. The route is restored
    then: an earlier try may have moved it before the arm stopped.
    """
    plan, route = operation.plan, route_of(operation)
    state = context.platform.state(plan.arm)
    if state.phase is not Phase.READY:
        context.progress.note(f"the retained baseline does not serve: {state.message or state.phase.value}")
        return Redirected(moved=False, left=_restore(context, route))
    context.progress.step("redirect", f"all traffic of route {route['name']} to the retained {plan.spec_text}")
    context.router.shift(route, 100)
    return Redirected(moved=True)


def unshift(context: Context, operation: Operation) -> Unshifted:
    """Restore the route exactly as it was found, and let the other arm answer what it was sent."""
    context.progress.step("unshift", "restoring the route")
    return Unshifted(_restore(context, route_of(operation)))


def _restore(context: Context, route: dict[str, Any]) -> tuple[str, ...]:
    unrestored = context.router.unshift(route)
    for line in unrestored:
        context.progress.note(line)
    return unrestored


def redirected(operation: Operation) -> bool:
    """Return whether the operation gave the retained baseline the traffic."""
    result = operation.result("redirect", Redirected)
    return result is not None and result.moved


class RouteReturn:
    """Restores the route as soon as the retained baseline that has its traffic has no ready pod: the service behind
    it, restored or not yet, serves."""

    def __init__(self, context: Context, operation: Operation) -> None:
        self._context, self._operation = context, operation
        self._restored = not redirected(operation) or "unshift" in operation.done
        self._noted = ""

    def check(self) -> None:
        """Check once, without raising: what cannot be restored now is tried again and reported by the unshift step."""
        if self._restored:
            return
        try:
            retained = self._context.platform.retained_baseline()
            if retained is not None and retained.pods_ready:
                return
            unrestored = self._context.router.unshift(route_of(self._operation))
        except MpctlError as error:
            self._note(f"whether the retained baseline serves the traffic is unknown: {error.message}")
            return
        self._restored = True
        self._note("the retained baseline has no ready pod: the route is restored before the service is")
        for line in unrestored:
            self._context.progress.note(line)

    def _note(self, line: str) -> None:
        if line != self._noted:
            self._noted = line
            self._context.progress.note(line)


def route_of(operation: Operation) -> dict[str, Any]:
    """The route as the plan found it."""
    route = operation.plan.route
    assert route is not None  # else there is no such step
    return route
