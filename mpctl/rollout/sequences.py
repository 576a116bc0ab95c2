"""The steps of an operation, in order, and the entries of the ledger that are written together.

A step is repeated when its command died before the entry that ends it was durable; every step allows that. So where
the next step changes nothing that serves, the entry is written together with the next one, which saves a write of the
cluster: a command that dies in between repeats both steps, and finds the service as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from mpctl.experiment.answer_sets import OFF
from mpctl.experiment.users import Placement
from mpctl.rollout.context import Context
from mpctl.rollout.operation import RETIRE_BAKED, Operation, StepResult
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.steps.answers import ask_and_wait, ask_baseline, compare_answers, compare_starts
from mpctl.rollout.steps.baseline import pin, record_baseline, unpin
from mpctl.rollout.steps.candidate import start, start_copy, switch, wait_copy_ready, wait_ready
from mpctl.rollout.steps.confirm import confirm
from mpctl.rollout.steps.measure import (
    check_match,
    judge,
    measure_alternating,
    measure_baseline,
    measure_candidate,
    measure_turns,
)
from mpctl.rollout.steps.promote import (
    keep_baseline,
    promote,
    record_promoted,
    record_restarted,
    record_restored,
    release,
    retire,
    settle,
    settle_behind_retained,
    stop_copy,
    stop_replaced,
)
from mpctl.rollout.steps.traffic import bake, redirect, unshift
from mpctl.rollout.steps.users import measure_mirrored, measure_split, mirror, shift
from mpctl.rollout.steps.verify import verify


@dataclass(frozen=True)
class Step:
    """A step of an operation by its name in the ledger."""

    name: str
    act: Callable[[Context, Operation], StepResult]
    changes: bool = True  # False: nothing that serves
    once: bool = False  # repeated, it would find what others changed since, such as an autoscaler

    def ends_together(self, following: Step | None) -> bool:
        """Return whether the entry that ends the step is written with the next entry: that of a step that changes
        nothing, or of the end of the operation."""
        return not self.once and (following is None or not following.changes)


_Rows = Iterable[tuple[object, Step]]  # a step where the first is true

_RECORD = Step("record", record_baseline, changes=False)
_READY = Step("ready", wait_ready, changes=False)
_ASKED_READY = Step("ready", ask_and_wait, changes=False)
_SETTLE = Step("settle", settle, changes=False)
_ANSWERS_AGAIN = Step("answers-again", compare_starts, changes=False)
_CONFIRM = Step("confirm", confirm, changes=False)
_VERIFY = Step("verify", verify, changes=False)
_PIN, _UNPIN = Step("pin", pin), Step("unpin", unpin, once=True)
_START, _SWITCH = Step("start", start), Step("switch", switch)
_UNSHIFT, _RETIRE = Step("unshift", unshift), Step("retire", retire)
_KEEP = Step("keep-baseline", keep_baseline)
_MEASURES = {
    Placement.SERVICE: measure_alternating,
    Placement.PAIR: measure_alternating,
    Placement.TURNS: measure_turns,
    Placement.MIRROR: measure_mirrored,
    Placement.SPLIT: measure_split,
}


def sequence(plan: Plan, *, replaces_pods: bool) -> tuple[Step, ...]:
    """The steps of a plan. ``replaces_pods``: the platform replaces the pods of a written service by itself, so a
    change needs no second arm."""
    return tuple(step for needed, step in _ROWS[plan.kind](plan, replaces_pods) if needed)


def _rollout(plan: Plan, replaces_pods: bool) -> _Rows:
    answers = plan.fidelity != OFF
    side_by_side, placement = plan.strategy is Strategy.SIDE_BY_SIDE, plan.users.placement
    pair = side_by_side and placement is Placement.PAIR
    replaced = side_by_side and replaces_pods  # another start serves than the one that is measured
    on_users = side_by_side and plan.traffic.reaches_candidate
    asks_meanwhile = (
        answers and side_by_side and placement is Placement.SERVICE
    )  # while the candidate starts
    # A promotion that replaces the pods needs no candidate; the last turn may have been the baseline's.
    again = side_by_side and placement is Placement.TURNS and (on_users or not replaces_pods)
    # Where pods are replaced, the baseline is gone by then and started again; elsewhere it simply is not stopped.
    retained = replaced and (plan.keep_baseline or plan.bake.restarts_baseline)
    baked = (
        side_by_side
        and bool(plan.bake.seconds)
        and (plan.bake.restarts_baseline or not replaces_pods)
    )
    yield True, _RECORD
    yield plan.scaling, _PIN
    yield plan.deletes_retained_baseline, Step("release", release)
    yield not side_by_side and answers, Step("answers-baseline", ask_baseline, changes=False)
    yield not side_by_side, Step("measure-baseline", measure_baseline)
    yield not side_by_side, _SWITCH
    yield pair, Step("start-copy", start_copy)
    yield side_by_side, _START
    yield pair, Step("ready-copy", wait_copy_ready)
    yield True, _ASKED_READY if asks_meanwhile else _READY
    yield plan.draft, Step("match", check_match)
    yield answers, Step("answers", compare_answers, changes=False)
    yield not side_by_side, Step("measure-candidate", measure_candidate)
    yield side_by_side, Step("measure", _MEASURES[placement])
    yield side_by_side and placement.copies_baseline, Step("stop-copy", stop_copy)
    yield True, Step("judge", judge, changes=False)
    yield again, Step("start-again", start)
    yield again, Step("ready-again", wait_ready)
    yield again and answers and not replaces_pods, _ANSWERS_AGAIN
    yield side_by_side and plan.traffic.mirror_percent, Step("mirror", mirror)
    for percent in plan.traffic.steps:
        yield side_by_side, Step(f"shift-{percent}", partial(shift, percent=percent))
    yield side_by_side and plan.route and (on_users or placement.users_set_load), _UNSHIFT
    yield True, Step("promote", promote)
    yield replaces_pods, _SETTLE
    yield replaced and answers, _ANSWERS_AGAIN
    yield True, Step("record-promoted", record_promoted, changes=False)
    yield side_by_side and not (retained or baked), _RETIRE
    yield retained, _KEEP
    yield (again or replaced) and not placement.users_set_load, _CONFIRM
    yield plan.scaling, _UNPIN
    yield True, _VERIFY
    yield plan.bake.seconds, Step("bake", bake)
    yield baked and not (replaces_pods and plan.keep_baseline), Step(RETIRE_BAKED, retire)


def _rollback(plan: Plan, replaces_pods: bool) -> _Rows:
    """Where pods are replaced, the service is written and there is no second arm to start. With a retained baseline,
    users are routed to it first, and stay there until the service is restored behind it."""
    retained, pinned = (
        replaces_pods and plan.rollback.uses_retained_baseline,
        replaces_pods and plan.scaling,
    )
    routed, side_by_side = replaces_pods and plan.route, plan.strategy is Strategy.SIDE_BY_SIDE
    yield retained, Step("redirect", redirect)
    yield routed and not retained, _UNSHIFT
    yield pinned, _PIN
    yield not replaces_pods, _START if side_by_side else _SWITCH
    yield not replaces_pods, _READY
    yield True, Step("restore", promote)
    yield (
        replaces_pods,
        Step("settle", settle_behind_retained, changes=False) if retained else _SETTLE,
    )
    yield routed and retained, _UNSHIFT
    yield replaces_pods or side_by_side, _RETIRE
    yield pinned, _UNPIN
    yield True, _VERIFY
    yield True, Step("record-restored", record_restored, changes=False)


def _restart(plan: Plan, replaces_pods: bool) -> _Rows:
    pinned = replaces_pods and plan.scaling
    yield True, _RECORD
    yield pinned, _PIN
    yield not replaces_pods, _START
    yield not replaces_pods, _READY
    yield True, Step("promote", promote)
    yield replaces_pods, _SETTLE
    yield True, Step("record-restarted", record_restarted, changes=False)
    yield not replaces_pods, Step("retire", stop_replaced)
    yield pinned, _UNPIN
    yield True, _VERIFY


_ROWS: Mapping[Kind, Callable[[Plan, bool], _Rows]] = {
    Kind.ROLLOUT: _rollout,
    Kind.ROLLBACK: _rollback,
    Kind.RESTART: _restart,
    Kind.RETIRE: lambda _plan, _replaces_pods: [(True, _RETIRE)],
}
