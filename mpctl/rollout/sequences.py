"""The steps of an operation, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mpctl.experiment.users import Placement
from mpctl.rollout.context import Context
from mpctl.rollout.operation import RETIRE_BAKED, Operation, StepResult
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.steps.judge import judge
from mpctl.rollout.steps.keep_baseline import keep_baseline
from mpctl.rollout.steps.match import check_match
from mpctl.rollout.steps.measure import measure_alternating, measure_baseline, measure_candidate
from mpctl.rollout.steps.pin import pin, unpin
from mpctl.rollout.steps.promote import promote
from mpctl.rollout.steps.ready import wait_copy_ready, wait_ready
from mpctl.rollout.steps.record import record_baseline, record_promoted, record_restarted, record_restored
from mpctl.rollout.steps.retire import release, retire, stop_copy, stop_replaced
from mpctl.rollout.steps.settle import settle, settle_behind_retained
from mpctl.rollout.steps.start import start, start_copy, switch
from mpctl.rollout.steps.traffic.bake import bake
from mpctl.rollout.steps.traffic.mirror import mirror
from mpctl.rollout.steps.traffic.redirect import redirect, unshift
from mpctl.rollout.steps.traffic.shift import shift
from mpctl.rollout.steps.traffic.users import measure_mirrored, measure_split
from mpctl.rollout.steps.turns import measure_turns
from mpctl.rollout.steps.verify import verify

Step = Callable[[Context, Operation], StepResult]

_SHIFT = "shift"  # a place for one step per percentage of the plan, "shift-10"
_SIDE_BY_SIDE: dict[str, Step] = {
    "record": record_baseline,
    "pin": pin,
    "release": release,
    "start-copy": start_copy,
    "start": start,
    "ready-copy": wait_copy_ready,
    "ready": wait_ready,
    "match": check_match,
    "measure": measure_alternating,
    "stop-copy": stop_copy,
    "judge": judge,
    "start-again": start,
    "ready-again": wait_ready,
    "mirror": mirror,
    _SHIFT: judge,
    "unshift": unshift,
    "promote": promote,
    "settle": settle,
    "record-promoted": record_promoted,
    "retire": retire,
    "keep-baseline": keep_baseline,
    "unpin": unpin,
    "verify": verify,
    "bake": bake,
    RETIRE_BAKED: retire,
}
_IN_PLACE: dict[str, Step] = {
    "record": record_baseline,
    "pin": pin,
    "release": release,
    "measure-baseline": measure_baseline,
    "switch": switch,
    "ready": wait_ready,
    "match": check_match,
    "measure-candidate": measure_candidate,
    "judge": judge,
    "promote": promote,
    "settle": settle,
    "record-promoted": record_promoted,
    "unpin": unpin,
    "verify": verify,
    "bake": bake,
}
_BACK_BESIDE: dict[str, Step] = {
    "start": start,
    "ready": wait_ready,
    "restore": promote,
    "retire": retire,
    "verify": verify,
    "record-restored": record_restored,
}
_BACK_IN_PLACE: dict[str, Step] = {
    "switch": switch,
    "ready": wait_ready,
    "restore": promote,
    "verify": verify,
    "record-restored": record_restored,
}
# Where the platform replaces pods one by one there is no second arm to start: the service is written, it rolls.
_BACK_ROLLING: dict[str, Step] = {
    "unshift": unshift,
    "pin": pin,
    "restore": promote,
    "settle": settle,
    "retire": retire,
    "unpin": unpin,
    "verify": verify,
    "record-restored": record_restored,
}
# With a retained baseline, users are routed to it first, and stay there until the service is restored behind it.
_BACK_INSTANTLY: dict[str, Step] = {
    "redirect": redirect,
    "pin": pin,
    "restore": promote,
    "settle": settle_behind_retained,
    "unshift": unshift,
    "retire": retire,
    "unpin": unpin,
    "verify": verify,
    "record-restored": record_restored,
}
_RETIRE: dict[str, Step] = {"retire": retire}
_RESTART: dict[str, Step] = {
    "record": record_baseline,
    "start": start,
    "ready": wait_ready,
    "promote": promote,
    "record-restarted": record_restarted,
    "retire": stop_replaced,
    "verify": verify,
}
_RESTART_ROLLING: dict[str, Step] = {
    "record": record_baseline,
    "pin": pin,
    "promote": promote,
    "settle": settle,
    "record-restarted": record_restarted,
    "unpin": unpin,
    "verify": verify,
}
# Steps that a placement of the measurement replaces.
_BY_PLACEMENT: Mapping[Placement, Mapping[str, Step]] = {
    Placement.MIRROR: {"measure": measure_mirrored},
    Placement.SPLIT: {"measure": measure_split},
    Placement.TURNS: {"measure": measure_turns},
}
_CHANGES_NOTHING = frozenset(
    ("judge", "ready", "record", "record-promoted", "record-restarted", "record-restored", "settle", "verify")
)
STEPS: Mapping[tuple[Kind, Strategy], Mapping[str, Step]] = {
    (Kind.ROLLOUT, Strategy.SIDE_BY_SIDE): _SIDE_BY_SIDE,
    (Kind.ROLLOUT, Strategy.IN_PLACE): _IN_PLACE,
    (Kind.ROLLBACK, Strategy.SIDE_BY_SIDE): _BACK_BESIDE,
    (Kind.ROLLBACK, Strategy.IN_PLACE): _BACK_IN_PLACE,
    (Kind.RETIRE, Strategy.SIDE_BY_SIDE): _RETIRE,
    (Kind.RESTART, Strategy.SIDE_BY_SIDE): _RESTART,
}


def steps_of(plan: Plan, *, rolls: bool) -> Mapping[str, Step]:
    """The steps of a plan on a platform, without those that have nothing to do there."""
    every = STEPS[plan.kind, plan.strategy]
    if rolls and plan.kind is Kind.ROLLBACK:
        every = _BACK_INSTANTLY if plan.instant else _BACK_ROLLING
    if rolls and plan.kind is Kind.RESTART:
        every = _RESTART_ROLLING
    idle = _idle(plan, rolls=rolls)
    steps: dict[str, Step] = {}
    for name, act in every.items():
        if name == _SHIFT:
            steps |= {f"{name}-{p}": partial(shift, percent=p) for p in plan.traffic_steps}
        elif name not in idle:
            steps[name] = _BY_PLACEMENT.get(plan.placement, {}).get(name, act)
    return steps


def held_with(step: str, following: str) -> bool:
    """Whether the entry that ends ``step``, or opens the operation, is written with the next one: ``following`` changes
    nothing that serves, or only the end of the operation follows. A command that dies in between repeats ``step``. Not
    that of unpin: repeated, it would find the autoscaler as others left it."""
    return step != "unpin" and (not following or following in _CHANGES_NOTHING)


def _idle(plan: Plan, *, rolls: bool) -> set[str]:
    """Names of the steps that have nothing to do for a plan."""
    idle = set() if rolls else {"settle"}
    if plan.scaling is None:
        idle |= {"pin", "unpin"}
    if plan.placement is not Placement.PAIR:
        idle |= {"start-copy", "ready-copy"}
    if not plan.placement.copies_baseline:
        idle.add("stop-copy")
    if plan.placement is not Placement.TURNS or (rolls and not (plan.traffic_steps or plan.mirror_percent)):
        idle |= {"start-again", "ready-again"}  # a promotion that replaces the pods needs no candidate
    if not plan.draft:
        idle.add("match")
    if not plan.releases:
        idle.add("release")
    if not plan.mirror_percent:
        idle.add("mirror")
    moves = plan.traffic_steps or plan.mirror_percent or plan.placement.users_set_load
    if plan.route is None or (plan.kind is Kind.ROLLOUT and not moves):
        idle.add("unshift")
    if not plan.bake_s:
        idle.add("bake")
    # Where engines are replaced, the old arm is gone by now and started again; elsewhere it simply is not stopped.
    again = rolls and plan.kind is Kind.ROLLOUT and (plan.keep_baseline or plan.bake_baseline)
    late = bool(plan.bake_s) and (plan.bake_baseline or not rolls)
    idle |= set() if again else {"keep-baseline"}
    idle |= {"retire"} if again or late else set()
    idle |= {RETIRE_BAKED} if not late or (rolls and plan.keep_baseline) else set()
    return idle
