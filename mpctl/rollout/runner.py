"""Runs an operation: each step is written down before it acts, can be repeated, and can be undone as a whole.

The way back is not the sum of undone steps but one short operation of its own that drives the service to a recorded
revision from wherever it is. That is why it works from every point, also from the middle of a step that never reported.
"""

from __future__ import annotations

from typing import Any

from mpctl.errors import Conflict, MpctlError
from mpctl.experiment.arm import BASELINE
from mpctl.gate.assess import Outcome, Verdict
from mpctl.records import decode
from mpctl.rollout.context import Context
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.operation import GROWN, Ending, Operation, operations
from mpctl.rollout.plan import Kind, Plan
from mpctl.rollout.sequences import Step, steps_of
from mpctl.rollout.steps.abandon import abandon as abandon_step
from mpctl.rollout.steps.redirect import Leaving

_ENDING_OF = {Outcome.REJECT: Ending.REJECTED, Outcome.UNDECIDED: Ending.UNDECIDED}


def open_plan(context: Context, plan: Plan) -> Operation:
    """Write the plan down as a new operation. The service's lease must be held."""
    taken = operations(context.store.entries())
    number = len(taken) + 1
    while context.store.load(f"{plan.kind.value}-{number}", f"conditions-{BASELINE}") is not None:
        number += 1  # the ledger has lost it; what it measured is not to be judged again
    operation_id = f"{plan.kind.value}-{number}"
    for other in taken:
        if other.plan.kind is Kind.RETIRE and other.ending is None:  # interrupted; the new one finds what it left
            _close(context, other.id, Ending.ABANDONED, f"interrupted before {operation_id}")
    _append(context, operation_id, Event.OPENED, data={"plan": plan.to_record(), "digest": plan.digest()})
    return _reread(context, operation_id)


def run(context: Context, operation: Operation) -> Operation:
    """Carry ``operation`` to its end, from wherever it is, and return it closed.

    A rollout that the gate refuses, or that fails at a step, ends with the baseline restored; its ``ending`` and
    ``detail`` say why.

    Raises:
        MpctlError: a rollback could not be finished; the same call again goes on from the failed step.
    """
    if operation.plan.kind is Kind.ROLLBACK:
        return _run_rollback(context, operation)
    if operation.plan.kind is Kind.RETIRE:
        return _close(context, _run_steps(context, operation).id, Ending.RETIRED, operation.plan.why)
    if not operation.failure:
        try:
            operation = _run_steps(context, operation)
        except MpctlError as error:
            reason = error.message if error.hint is None else f"{error.message}; {error.hint}"
            step = _reread(context, operation.id).begun
            _append(context, operation.id, Event.FAILED, step=step, data={"reason": reason})
            operation = _reread(context, operation.id)
    ending, detail = _judgement(operation)
    if ending is Ending.PROMOTED or "record" not in operation.done:
        return _close(context, operation.id, ending, detail)  # promoted, or failed before anything was changed
    context.progress.note(f"{ending.value}: {detail}")
    why = f"{operation.id} {ending.value}: {detail}"
    back = open_plan(context, operation.undo_plan(why=why, automatic=True))
    run(context, back)
    return _reread(context, operation.id)


def _run_steps(context: Context, operation: Operation) -> Operation:
    for name, act in steps_of(operation.plan, rolls=context.platform.rolls).items():
        if name in operation.done:
            continue
        if _refused(operation):
            break
        _append(context, operation.id, Event.BEGUN, step=name)
        operation = _reread(context, operation.id)
        data = _act(act, name, context, operation)
        _append(context, operation.id, Event.DONE, step=name, data=data)
        operation = _reread(context, operation.id)
    return operation


def _act(act: Step, name: str, context: Context, operation: Operation) -> dict[str, Any]:
    """Whatever the system refuses (a full disk, a port taken) fails the step, so that the way back is gone."""
    try:
        return act(context, operation)
    except OSError as error:
        raise MpctlError(f"step {name} of {operation.id}: {error}") from error


def _refused(operation: Operation) -> bool:
    return "judge" in operation.done and operation.done["judge"]["outcome"] != Outcome.PROMOTE.value


def _judgement(operation: Operation) -> tuple[Ending, str]:
    if operation.failure:
        return Ending.FAILED, operation.failure
    verdict = decode(Verdict, operation.done["judge"])
    ending = _ENDING_OF.get(verdict.outcome, Ending.PROMOTED)
    return ending, "; ".join(verdict.reasons) if ending is not Ending.PROMOTED else operation.plan.spec


def _run_rollback(context: Context, operation: Operation) -> Operation:
    Leaving(context, operation).look()  # whatever keeps the way back from its end, users need not wait for it
    operation = _with_its_size(context, operation)
    if "pin" in operation.done and "unpin" not in operation.done and operation.scaling is not None:
        context.scaler.pin(operation.scaling)  # an earlier try that could not go on let it go
    try:
        operation = _run_steps(context, operation)
    except MpctlError as error:
        _let_scale(context, operation)
        if not operation.plan.automatic:
            raise
        kind = Conflict if isinstance(error, Conflict) else MpctlError
        going_on = "mpctl rollback goes on with it once the cause is gone"
        raise kind(
            f"{operation.id} could not restore the service: {error.message} ({operation.plan.why})",
            hint=going_on if error.hint is None else f"{going_on}; {error.hint}",
        ) from error
    undone = _undone_by(operation, operations(context.store.entries()))
    # What is undone is closed first: a crash in between leaves the rollback open, and repeating it is harmless.
    for other in operations(context.store.entries()):
        if other.id in undone and other.ending is None:
            judged = other.failure or "judge" in other.done
            ending, detail = _judgement(other) if judged else (Ending.UNDONE, operation.plan.why)
            _close(context, other.id, Ending.UNDONE if ending is Ending.PROMOTED else ending, detail)
    return _close(context, operation.id, Ending.ROLLED_BACK, operation.plan.why)


def _with_its_size(context: Context, operation: Operation) -> Operation:
    """A rollback whose autoscaler was free meanwhile holds it at the engines there are now: at the recorded number it
    would end some of them under load. Written down before it is held, since going on and abandoning must know what
    ours is."""
    scaling = operation.scaling
    if scaling is None or "unpin" in operation.done:
        return operation
    found = context.platform.scaling()
    if found is None or found["replicas"] <= scaling["replicas"]:
        return operation
    context.scaler.unpin(scaling)  # one held at the recorded number would be taken for somebody else's change
    _append(context, operation.id, Event.DONE, step=GROWN, data={"replicas": found["replicas"]})
    context.progress.note(f"the autoscaler started more meanwhile: {found['replicas']}, {scaling['replicas']} before")
    return _reread(context, operation.id)


def _let_scale(context: Context, operation: Operation) -> None:
    """Free the autoscaler of a way back that cannot go on: until somebody looks, the service must be able to scale."""
    if operation.scaling is None:
        return
    try:
        left = context.scaler.unpin(operation.scaling)
    except MpctlError as error:
        context.progress.note(f"the autoscaler is still held: {error.message}")
        return
    for line in left or ("the autoscaler is as it was found; going on holds it again",):
        context.progress.note(line)


def _undone_by(operation: Operation, every: tuple[Operation, ...]) -> set[str]:
    """What a rollback undoes, and what that undid: a forced one takes the place of one that could not go on."""
    by_id = {op.id: op for op in every}
    found: set[str] = set()
    above = operation.plan.undoes
    while above is not None and above not in found and above in by_id:
        found.add(above)
        above = by_id[above].plan.undoes
    return found


def abandon(context: Context, *, why: str) -> tuple[Operation, ...]:
    """End every unfinished operation where it stands: the live service stays as it is and is recorded, the candidate
    is removed, the autoscaler is put back. The service's lease must be held.

    Raises:
        MpctlError: a step failed; the same call again goes on.
    """
    unfinished = [op for op in operations(context.store.entries()) if op.ending is None]
    for operation in unfinished[:1]:
        abandon_step(context, operation, unfinished[-1].scaling)
    for operation in reversed(unfinished):  # a rollback before what it undoes
        _close(context, operation.id, Ending.ABANDONED, why)
    return tuple(_reread(context, op.id) for op in unfinished)


def _close(context: Context, operation_id: str, ending: Ending, detail: str) -> Operation:
    _append(context, operation_id, Event.CLOSED, data={"ending": ending.value, "detail": detail})
    return _reread(context, operation_id)


def _append(
    context: Context, operation_id: str, event: Event, *, step: str = "", data: dict[str, Any] | None = None
) -> None:
    entries = context.store.entries()
    entry = Entry.after(
        entries[-1] if entries else None,
        at=context.clock.now(),
        operation=operation_id,
        event=event,
        who=context.who,
        step=step,
        data=data,
    )
    context.store.append(entry)


def _reread(context: Context, operation_id: str) -> Operation:
    return next(op for op in operations(context.store.entries()) if op.id == operation_id)
