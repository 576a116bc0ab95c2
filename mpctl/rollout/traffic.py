"""Users' traffic on a candidate, a share at a time, and the steps of an old arm that is kept.

The gate has promoted the candidate on prompts of ours by then. What it meets now are the users' own: their answers are
not compared, but a candidate that falls over, or whose drafts are worth nothing on them, goes no further.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpctl.errors import MpctlError
from mpctl.experiment.counters import CounterError, Counters, Window
from mpctl.gate.first_acceptance import MIN_DRAFTS, Match
from mpctl.gate.policy import Policy
from mpctl.rollout import steps
from mpctl.rollout.operation import Operation
from mpctl.rollout.ports import ArmState, Phase

if TYPE_CHECKING:
    from mpctl.rollout.machine import World


UNREACHED_S = 30.0  # of a pod that is ready: a forward that is opened anew takes seconds


def failing(window: Window, policy: Policy, draft: str) -> str:
    """Why a candidate's drafts are not worth it on what it was sent; empty while nothing says so.

    Judged from 50 drafts on (``measure.match.MIN_DRAFTS``): tokens per step against ``policy.min_tokens_per_step``; for
    a ``draft`` of its own weights also the first position's acceptance against ``policy.min_first_acceptance``. That is
    a share looked at again and again, so it fails only when its whole interval (99.9 %) lies below.
    """
    if (window.drafts or 0) < MIN_DRAFTS:
        return ""
    told = []
    per_step = window.tokens_per_step
    if per_step is not None and per_step < policy.min_tokens_per_step:
        told.append(f"tokens per step {per_step:.2f} (at least {policy.min_tokens_per_step:.2f})")
    first = Match.of(window).interval if draft else None
    if first is not None and first.high < policy.min_first_acceptance:
        told.append(f"position-0 acceptance {first.value:.1%} (at least {policy.min_first_acceptance:.0%})")
    return f"{'; '.join(told)}, over {window.drafts:.0f} drafts of users' traffic" if told else ""


def shift(world: World, operation: Operation, percent: int) -> dict[str, Any]:
    """Give the candidate ``percent`` of the users' traffic, and hold it there while it does well.

    Returns the percentage and what its counters said meanwhile.

    Raises:
        MpctlError: the candidate does not do well, or the route is not as it was written; the way back is taken.
    """
    plan = operation.plan
    route = _route(operation)
    seconds = plan.step_duration_s
    world.progress.step(operation.begun, f"{percent} % of the traffic to {plan.spec} for {seconds:.0f} s")
    state, before = _look(world, operation, None)
    world.router.shift(route, percent)
    window = Window.between(before, before)
    began = world.clock.now()
    while (passed := (world.clock.now() - began).total_seconds()) < seconds:
        world.clock.sleep(min(steps.POLL_S, seconds - passed))
        world.router.require_shifted(route, percent)
        state, now = _look(world, operation, state)
        try:
            window = Window.between(before, now)
        except CounterError as error:
            raise MpctlError(f"{state.id} at {percent} % of the traffic: {error}") from error
        if why := failing(window, plan.policy, plan.draft):
            raise MpctlError(f"{state.id} at {percent} % of the traffic: {why}")
        world.progress.update(f"{_in_words(window)} ({passed:.0f} s)")
    world.progress.note(f"{percent} % of the traffic: {_in_words(window)}")
    return {
        "percent": percent,
        "tokens": window.generation_tokens,
        "drafts": window.drafts,
        "tokensPerStep": window.tokens_per_step,
    }


def _look(world: World, operation: Operation, before: ArmState | None) -> tuple[ArmState, Counters]:
    """The candidate and its counters, while it is well. An engine that cannot be reached from here, while its platform
    says it is ready, gets ``UNREACHED_S``: a forwarded connection that is lost says nothing of the candidate."""
    arm = operation.plan.arm
    began = world.clock.now()
    while True:
        state = world.platform.state(arm)
        restarted = before is not None and state.restarts > before.restarts
        up = state.phase is Phase.READY or (state.phase is Phase.STARTING and state.pods_ready > 0)
        if restarted or not up:
            why = "it restarted" if restarted else state.message or f"it is {state.phase.value}"
            hint = world.platform.describe_failure(arm)
            raise MpctlError(f"{arm.id} fell over under users' traffic: {why}", hint=hint)
        why = state.message
        if state.phase is Phase.READY and state.endpoint is not None:
            try:
                return state, world.meter.counters(state.endpoint)
            except CounterError as error:
                why = f"its counters cannot be read: {error}"
        waited = (world.clock.now() - began).total_seconds()
        if waited >= UNREACHED_S:
            hint = world.platform.describe_failure(arm)
            raise MpctlError(f"{arm.id} was not reached for {waited:.0f} s under users' traffic: {why}", hint=hint)
        world.progress.update(why)
        world.clock.sleep(steps.POLL_S)


def _in_words(window: Window) -> str:
    tokens = f"{window.generation_tokens:.0f} tokens"
    if window.drafts is None:
        return tokens
    if window.drafts < MIN_DRAFTS:
        return f"{tokens}, {window.drafts:.0f} drafts (judged from {MIN_DRAFTS} on)"
    per_step = window.tokens_per_step
    return f"{tokens}, {window.drafts:.0f} drafts" + (f", {per_step:.2f} tokens per step" if per_step else "")


def unshift(world: World, operation: Operation) -> dict[str, Any]:
    """Put the route back exactly as it was found, and let what the other arm was sent be answered."""
    world.progress.step("unshift", "putting the route back")
    left = world.router.unshift(_route(operation))
    for line in left:
        world.progress.note(line)
    return {"left": list(left)}


def redirect(world: World, operation: Operation) -> dict[str, Any]:
    """All of the route's traffic to the kept arm, by one write; the service is restored behind it.

    Where the kept arm does not serve (any more), the service is restored as it is without one. The route is put back
    then: an earlier try may have moved it before the arm ended.
    """
    plan = operation.plan
    route = _route(operation)
    state = world.platform.state(plan.arm)
    if state.phase is not Phase.READY:
        world.progress.note(f"the kept {plan.arm.id} does not serve: {state.message or state.phase.value}")
        left = world.router.unshift(route)
        for line in left:
            world.progress.note(line)
        return {"moved": False, "left": list(left)}
    world.progress.step("redirect", f"all traffic of route {route['name']} to {plan.spec}, which was kept")
    world.router.shift(route, 100)
    return {"moved": True}


class Leaving:
    """Puts the route back as soon as the kept arm that has its traffic serves nobody any more: the service behind it,
    restored or not yet, does."""

    def __init__(self, world: World, operation: Operation) -> None:
        self._world, self._operation = world, operation
        moved = bool(operation.done.get("redirect", {}).get("moved"))
        self._left = not moved or "unshift" in operation.done
        self._told = ""

    def look(self) -> None:
        """Once, without raising: what cannot be put back now is tried again, and is the unshift step's to report."""
        if self._left:
            return
        try:
            kept = self._world.platform.kept()
            if kept is not None and kept.pods_ready:
                return
            left = self._world.router.unshift(_route(self._operation))
        except MpctlError as error:
            self._note(f"whether the kept arm has the traffic and serves is not known: {error.message}")
            return
        self._left = True
        self._note("the kept arm has no ready pod any more: the route is put back before the service is restored")
        for line in left:
            self._world.progress.note(line)

    def _note(self, line: str) -> None:
        if line != self._told:
            self._told = line
            self._world.progress.note(line)


def settle(world: World, operation: Operation) -> dict[str, Any]:
    """As :func:`steps.settle`, while the kept arm has the traffic and may end."""
    return steps.settle(world, operation, meanwhile=Leaving(world, operation).look)


def keep_baseline(world: World, operation: Operation) -> dict[str, Any]:
    """Start the old arm again beside the promoted service, and leave it there. Without room for it by now, the rollout
    stands all the same: a rollback then takes an engine start."""
    plan = operation.plan
    arm = plan.baseline_arm
    world.progress.step("keep-baseline", f"starting {plan.baseline_spec} again, to be kept for an instant way back")
    try:
        world.router.keep(arm, _route(operation))
        steps.await_ready(world, arm, plan.ready_timeout_s)
    except MpctlError as error:
        world.progress.note(f"the old arm is not kept, a rollback takes an engine start: {error.message}")
        try:
            world.platform.stop(arm)
        except MpctlError as left:
            world.progress.note(f"it is left beside the service: {left.message}; mpctl retire ends it")
        return {"kept": None, "reason": error.message}
    return {"kept": arm.id}


def release(world: World, operation: Operation) -> dict[str, Any]:
    """End the arm that an earlier rollout kept; its GPUs are needed."""
    world.progress.step("release", "ending the arm that was kept before")
    world.platform.retire(operation.plan.baseline_arm)
    return {}


def _route(operation: Operation) -> dict[str, Any]:
    route = operation.plan.route
    assert route is not None  # else there is no such step
    return route
