"""Which steps an operation takes, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from mpctl.rollout import steps, traffic, warmup
from mpctl.rollout.operation import Kind, Operation, Plan, Strategy

if TYPE_CHECKING:
    from mpctl.rollout.machine import World

Step = Callable[["World", Operation], dict[str, Any]]

_SHIFT = "shift"  # stands for one step per percentage of the plan, "shift-10"
_SIDE_BY_SIDE: dict[str, Step] = {
    "record": steps.record_baseline,
    "pin": steps.pin,
    "release": traffic.release,
    "start": steps.start,
    "ready": steps.wait_ready,
    "match": warmup.check_match,
    "measure": steps.measure_alternating,
    "judge": steps.judge,
    _SHIFT: lambda world, operation: {},
    "unshift": traffic.unshift,
    "promote": steps.adopt,
    "settle": steps.settle,
    "record-promoted": steps.record_promoted,
    "retire": steps.retire,
    "keep-baseline": traffic.keep_baseline,
    "unpin": steps.unpin,
    "verify": steps.verify,
}
_IN_PLACE: dict[str, Step] = {
    "record": steps.record_baseline,
    "pin": steps.pin,
    "release": traffic.release,
    "measure-baseline": steps.measure_baseline,
    "switch": steps.replace,
    "ready": steps.wait_ready,
    "match": warmup.check_match,
    "measure-candidate": steps.measure_candidate,
    "judge": steps.judge,
    "promote": steps.adopt,
    "settle": steps.settle,
    "record-promoted": steps.record_promoted,
    "unpin": steps.unpin,
    "verify": steps.verify,
}
_BACK_BESIDE: dict[str, Step] = {
    "start": steps.start,
    "ready": steps.wait_ready,
    "restore": steps.adopt,
    "retire": steps.retire,
    "verify": steps.verify,
    "record-restored": steps.record_restored,
}
_BACK_IN_PLACE: dict[str, Step] = {
    "switch": steps.replace,
    "ready": steps.wait_ready,
    "restore": steps.adopt,
    "verify": steps.verify,
    "record-restored": steps.record_restored,
}
# Where the platform replaces pods one by one there is no second arm to start: the service is written, it rolls.
_BACK_ROLLING: dict[str, Step] = {
    "unshift": traffic.unshift,
    "keep": steps.keep_foreign,
    "pin": steps.pin,
    "restore": steps.adopt,
    "settle": steps.settle,
    "retire": steps.retire,
    "unpin": steps.unpin,
    "verify": steps.verify,
    "record-restored": steps.record_restored,
}
# With the old arm kept, users are back on it first, and stay there until the service is restored behind it.
_BACK_INSTANTLY: dict[str, Step] = {
    "redirect": traffic.redirect,
    "keep": steps.keep_foreign,
    "pin": steps.pin,
    "restore": steps.adopt,
    "settle": traffic.settle,
    "unshift": traffic.unshift,
    "retire": steps.retire,
    "unpin": steps.unpin,
    "verify": steps.verify,
    "record-restored": steps.record_restored,
}
_RETIRE: dict[str, Step] = {"retire": steps.retire}
STEPS: Mapping[tuple[Kind, Strategy], Mapping[str, Step]] = {
    (Kind.ROLLOUT, Strategy.SIDE_BY_SIDE): _SIDE_BY_SIDE,
    (Kind.ROLLOUT, Strategy.IN_PLACE): _IN_PLACE,
    (Kind.ROLLBACK, Strategy.SIDE_BY_SIDE): _BACK_BESIDE,
    (Kind.ROLLBACK, Strategy.IN_PLACE): _BACK_IN_PLACE,
    (Kind.RETIRE, Strategy.SIDE_BY_SIDE): _RETIRE,
}


def steps_of(plan: Plan, *, rolls: bool) -> Mapping[str, Step]:
    """The steps of a plan on a platform; those that have nothing to do there are left out."""
    every = STEPS[plan.kind, plan.strategy]
    if rolls and plan.kind is Kind.ROLLBACK:
        every = _BACK_INSTANTLY if plan.instant else _BACK_ROLLING
    idle = _idle(plan, rolls=rolls)
    found: dict[str, Step] = {}
    for name, act in every.items():
        if name == _SHIFT:
            found |= {f"{name}-{p}": partial(traffic.shift, percent=p) for p in plan.traffic_steps}
        elif name not in idle:
            found[name] = act
    return found


def _idle(plan: Plan, *, rolls: bool) -> set[str]:
    """Names of the steps that have nothing to do for a plan."""
    idle = set() if rolls else {"settle"}
    if plan.scaling is None:
        idle |= {"pin", "unpin"}
    if not plan.draft:
        idle.add("match")
    if not plan.releases:
        idle.add("release")
    if plan.route is None or (plan.kind is Kind.ROLLOUT and not plan.traffic_steps):
        idle.add("unshift")
    # Where engines are replaced, the old arm is gone by now and started again; elsewhere it simply is not stopped.
    idle.add("retire" if rolls and plan.kind is Kind.ROLLOUT and plan.keep_baseline else "keep-baseline")
    return idle
