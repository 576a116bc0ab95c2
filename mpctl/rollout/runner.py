"""Runs an operation: each step is recorded before it acts, can be repeated, and can be undone as a whole.

A rollback is not the sum of undone steps but one short operation of its own, which drives the service to a recorded
revision from wherever it is. That is why it works from every point, also from the middle of a step that never reported.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

from mpctl.errors import Conflict, InputError, MpctlError
from mpctl.experiment.block import BASELINE
from mpctl.experiment.users import Placement
from mpctl.gate.rule import Outcome
from mpctl.rollout.context import Context
from mpctl.rollout.decide import replacing_rollback
from mpctl.rollout.journal import Journal
from mpctl.rollout.operation import RESIZED, Ending, Operation, ResizeResult, StepResult
from mpctl.rollout.phases import expected_seconds, phases_of
from mpctl.rollout.plan import Kind, Plan
from mpctl.rollout.restore import is_own_text, with_live_changes
from mpctl.rollout.sequences import Step, sequence
from mpctl.rollout.steps.baseline import record_revision
from mpctl.rollout.steps.measure import require_prompts, verdict_of
from mpctl.rollout.steps.promote import leave_service
from mpctl.rollout.steps.traffic import RouteReturn

_FOREIGN_CHANGES = 4  # within one rollback; a writer that never stops needs an operator
_MEASURE = "measure"  # of two arms side by side
_ENDING_OF = {Outcome.REJECT: Ending.REJECTED, Outcome.UNDECIDED: Ending.UNDECIDED}


def open_plan(context: Context, plan: Plan) -> Operation:
    """Record both manifests as revisions, then the plan as a new operation. The service's lease must be held.

    Raises:
        Conflict: the plan would change more of the service than its speculation.
    """
    require_own_change(context, plan)
    return _open(context, Journal(context), plan)


def require_own_change(context: Context, plan: Plan) -> None:
    """Refuse a plan that changes more than engine arguments and staging of mpctl's own making, unless it was asked to
    overwrite another writer's change.

    Raises:
        Conflict: the message names the other fields.
    """
    if plan.overwrites or plan.baseline == plan.goal:
        return
    fields = context.platform.foreign_changes(plan.baseline.text, plan.goal.text)
    if fields:
        exact = context.command("rollback", "--exact")
        raise Conflict(
            f"the change to {plan.spec_text} would also write {', '.join(fields)}",
            hint=f"{context.command('diff')} shows it; {exact} writes them, too, and records the live manifest",
        )


def _open(context: Context, journal: Journal, plan: Plan) -> Operation:
    """Number the operation, end a retirement that was interrupted, record both manifests, and write the first entry."""
    taken = journal.operations()
    number = len(taken) + 1
    ids = {other.id for other in taken}
    while (
        f"{plan.kind.value}-{number}" in ids
        or context.store.load(f"{plan.kind.value}-{number}", f"conditions-{BASELINE}") is not None
    ):
        number += 1  # the ledger has lost it; its measurements must not be judged again
    operation_id = f"{plan.kind.value}-{number}"
    for other in taken:
        if (
            other.plan.kind is Kind.RETIRE and other.ending is None
        ):  # interrupted; the new one finds what it left
            journal.close(other.id, Ending.ABANDONED, f"interrupted before {operation_id}")
    baseline = record_revision(
        context, plan.baseline, operation_id, why="as found", spec=plan.baseline_spec
    )
    origin = f"{'restarted by' if plan.kind is Kind.RESTART else 'candidate of'} {operation_id}"
    if plan.rollback.restored_revision:
        kept_fields = ", ".join(plan.rollback.kept_fields)
        origin = f"revision {plan.rollback.restored_revision} with {kept_fields} as another writer changed it"
    goal = record_revision(context, plan.goal, operation_id, why=origin, spec=plan.spec, live=False)
    plan = replace(plan, baseline=baseline, goal=goal)
    first = sequence(plan, replaces_pods=context.platform.replaces_pods_itself)[0]
    return journal.open(operation_id, plan, then=first.name, with_next=not first.changes)


def run(context: Context, operation: Operation) -> Operation:
    """Carry ``operation`` to its end, from wherever it is, and return it closed.

    A rollout that the gate rejects, and a rollout or restart that fails at a step, end with the baseline restored;
    ``ending`` and ``detail`` say why.

    Raises:
        InputError: a rollout still measures, and its prompts are not at hand.
        MpctlError: a rollback could not be finished; the same call again continues from the failed step.
    """
    journal = Journal(context)
    operation = journal.read(operation.id)
    require_prompts(context, operation)
    require_own_change(context, operation.plan)
    match operation.plan.kind:
        case Kind.ROLLBACK:
            return _run_rollback(context, journal, operation)
        case Kind.RETIRE:
            _run_steps(context, journal, operation)
            return journal.close(operation.id, Ending.RETIRED, operation.plan.why)
        case Kind.ROLLOUT | Kind.RESTART:
            return _run_change(context, journal, operation)
        case Kind.REFRESH:
            raise ValueError(f"{operation.id} has no steps on the service")


def _run_change(context: Context, journal: Journal, operation: Operation) -> Operation:
    """Carry out a rollout or restart, and restore the service where it does not end as planned."""
    if (
        not operation.failure
    ):  # else an earlier command was stopped between the failed step and the rollback
        try:
            operation = _run_steps(context, journal, operation)
        except MpctlError as error:
            repeated = error.hint is None or error.hint in error.message
            reason = error.message if repeated else f"{error.message}; {error.hint}"
            operation = journal.fail(operation.id, reason)
            _show_phases(context, journal, operation)
    ending, detail = _ending(operation)
    if ending in (Ending.PROMOTED, Ending.RESTARTED) or "record" not in operation.done:
        return journal.close(
            operation.id, ending, detail
        )  # as planned, or failed before anything was changed
    # The error at the end says why a step failed, the table has the verdict.
    event = f"step {operation.begun} failed" if ending is Ending.FAILED else ending.value
    context.progress.note(f"{event}: the service is restored")
    planned = operation.undo_plan(why=f"{operation.id} {ending.value}: {detail}", automatic=True)
    rollback = _open(context, journal, _merged_with_live(context, planned) or planned)
    require_own_change(context, rollback.plan)
    _run_rollback(context, journal, rollback)
    return journal.operation(operation.id)


def _run_steps(context: Context, journal: Journal, operation: Operation) -> Operation:
    """Carry out the steps that are not done yet; those after a verdict that does not promote are left out."""
    steps = _steps(context, operation)
    pending = [step for step in steps if step.name not in operation.done]
    for step, following in zip_longest(pending, pending[1:]):
        if _stopped_by_gate(operation):
            break
        operation = journal.begin(operation, step.name)
        _show_phases(context, journal, operation)
        result = _act(step, context, operation)
        is_last = _stopped_by_gate(
            replace(operation, done={**operation.done, step.name: result.to_record()})
        )
        with_next = not is_last and step.ends_together(following)
        then = "" if is_last or following is None else following.name
        operation = journal.done(operation, step.name, result, then=then, with_next=with_next)
    _show_phases(context, journal, operation)
    return operation


def _steps(context: Context, operation: Operation) -> tuple[Step, ...]:
    return sequence(operation.plan, replaces_pods=context.platform.replaces_pods_itself)


def _show_phases(context: Context, journal: Journal, operation: Operation) -> None:
    """Show the phases of an operation with the times of earlier ones; a retirement is a single step."""
    kind = operation.plan.kind
    if kind is Kind.RETIRE:
        return
    steps = [step.name for step in _steps(context, operation)]
    expected = expected_seconds(journal.operations(), kind)
    context.progress.phases(phases_of(operation, steps, expected))


def _act(step: Step, context: Context, operation: Operation) -> StepResult:
    """Any OS error (disk full, port in use) fails the step, which triggers the automatic rollback. Where another writer
    changed the service meanwhile, that comes first, whatever the step noticed of it."""
    try:
        return step.act(context, operation)
    except Conflict:
        raise
    except MpctlError as error:
        cause = _foreign_cause(context, operation, step.name)
        if cause is None:
            raise
        raise MpctlError(
            f"{cause}; step {step.name} failed: {error.message.splitlines()[0]}"
        ) from error
    except OSError as error:
        raise MpctlError(f"step {step.name} of {operation.id}: {error}") from error


def _foreign_cause(context: Context, operation: Operation, step: str) -> str | None:
    """Name what another writer did to the service of a rollout or restart, or to the pods that it measures; None where
    nothing is found or can be read."""
    plan = operation.plan
    if plan.kind is Kind.ROLLBACK:
        return None  # it decides by itself about changes that it finds
    try:
        scaling = operation.scaling if "pin" in operation.done else None
        change = context.platform.describe_foreign_change(plan.arms, scaling)
        if change is not None or step != _MEASURE or plan.users.placement is Placement.TURNS:
            return change  # other steps and turns end pods themselves
        return "; ".join(context.engines.lost_pods()) or None
    except MpctlError:
        return None


def _stopped_by_gate(operation: Operation) -> bool:
    """Return whether the gate has judged and does not promote, undecided included."""
    verdict = verdict_of(operation)
    return verdict is not None and verdict.outcome is not Outcome.PROMOTE


def _ending(operation: Operation) -> tuple[Ending, str]:
    if operation.failure:
        return Ending.FAILED, operation.failure
    if operation.plan.kind is Kind.RESTART:
        return Ending.RESTARTED, operation.plan.why
    verdict = verdict_of(operation)
    assert verdict is not None
    ending = _ENDING_OF.get(verdict.outcome, Ending.PROMOTED)
    return ending, operation.plan.spec_text if ending is Ending.PROMOTED else "; ".join(
        verdict.reasons
    )


def _run_rollback(context: Context, journal: Journal, operation: Operation) -> Operation:
    RouteReturn(
        context, operation
    ).check()  # whatever blocks the rollback, users need not wait for it
    operation = _pin_at_current_size(context, journal, operation)
    if "pin" in operation.done and "unpin" not in operation.done and operation.scaling is not None:
        context.scaler.pin(operation.scaling)  # an earlier try that was blocked has unpinned it
    try:
        operation = _run_steps(context, journal, operation)
    except MpctlError as error:
        replacement = _replacement_after_foreign_change(context, journal, operation)
        if replacement is not None:
            context.progress.note(f"{error.message}; that change is kept")
            return _run_rollback(context, journal, _open(context, journal, replacement))
        _unpin_blocked(context, operation)
        # A write that the cluster refuses is no wrong input of the user, who asked for a rollback.
        refused = isinstance(error, InputError) and context.platform.live_text() is not None
        if not operation.plan.rollback.automatic and not refused:
            raise
        kind = Conflict if isinstance(error, Conflict) else MpctlError
        raise kind(
            f"{operation.id} could not restore the service: {error.message} ({operation.plan.why})",
            hint=_way_out(context, operation, error),
        ) from error
    undone = _undone_by(operation, journal.operations())
    for other in journal.operations():
        if other.id in undone and other.ending is None:
            decided = other.failure or verdict_of(other)
            ending, detail = _ending(other) if decided else (Ending.UNDONE, operation.plan.why)
            journal.close(
                other.id,
                Ending.UNDONE if ending is Ending.PROMOTED else ending,
                detail,
                with_next=True,
            )
    return journal.close(operation.id, Ending.ROLLED_BACK, operation.plan.why)


def _way_out(context: Context, operation: Operation, error: MpctlError) -> str:
    """The commands that end a rollback which is blocked."""
    rollback, abandon = context.command("rollback"), context.command("abandon")
    if context.platform.live_text() is None:
        return error.hint or f"'{abandon}' ends the operation and removes the candidate"
    if (
        isinstance(error, Conflict)
        and _merged_with_live(context, replacing_rollback(operation, why="")) is None
    ):
        exact = context.command("rollback", "--exact")
        return (
            f"nothing was overwritten. '{exact}' records the live manifest and restores every byte; '{abandon}' keeps "
            "the live manifest, removes the candidate and ends the operation"
        )
    again = f"'{rollback}' continues once the cause is gone"
    return again if error.hint is None else f"{again}; {error.hint}"


def _merged_with_live(context: Context, plan: Plan) -> Plan | None:
    """The rollback from the live manifest, which another writer may have changed; None where the fields to restore
    were changed, or nothing is live."""
    if context.platform.live_text() is None:
        return None
    live = context.platform.read()
    text = context.platform.settled_text(live.text, (plan.baseline.text, plan.goal.text))
    try:
        return with_live_changes(plan, replace(live, text=text), context.store.revisions())
    except Conflict:
        return None


def _replacement_after_foreign_change(
    context: Context, journal: Journal, operation: Operation
) -> Plan | None:
    """The rollback in place of one that another writer's change stopped; None where that is not the cause, or it
    happened too often."""
    start = replacing_rollback(operation, why=operation.plan.why)
    if len(_undone_by(operation, journal.operations())) > _FOREIGN_CHANGES:
        return None
    plan = _merged_with_live(context, start)
    if plan is None or is_own_text(start, plan.baseline.text):
        return None
    if context.platform.added_fields(operation.plan.arm, context.platform.read()) is not None:
        return None  # admission added these fields; nobody changed the service
    return replace(
        plan, rollback=replace(plan.rollback, automatic=operation.plan.rollback.automatic)
    )


def _pin_at_current_size(context: Context, journal: Journal, operation: Operation) -> Operation:
    """Pin the autoscaler of a continued rollback at the replicas that run now: at the recorded number it would end some
    of them under load. The number is recorded first, since resume and abandon must know which pin is ours."""
    scaling = operation.scaling
    if scaling is None or "unpin" in operation.done:
        return operation
    current = context.platform.scaling()
    if current is None or current["replicas"] <= scaling["replicas"]:
        return operation
    context.scaler.unpin(
        scaling
    )  # a pin at the recorded number would be taken for another writer's change
    context.progress.note(
        f"the autoscaler started more meanwhile: {current['replicas']}, {scaling['replicas']} before"
    )
    return journal.done(operation, RESIZED, ResizeResult(current["replicas"]))


def _unpin_blocked(context: Context, operation: Operation) -> None:
    """Unpin the autoscaler when a rollback is blocked, so that the service can scale until an operator intervenes."""
    if operation.scaling is None:
        return
    try:
        unrestored = context.scaler.unpin(operation.scaling)
    except MpctlError as error:
        context.progress.note(f"the autoscaler is still pinned: {error.message}")
        return
    for line in unrestored or ("the autoscaler is as it was found; continuing pins it again",):
        context.progress.note(line)


def _undone_by(operation: Operation, every: tuple[Operation, ...]) -> set[str]:
    """Ids of the operations that a rollback undoes: a forced rollback also undoes the blocked one that it replaces."""
    by_id = {op.id: op for op in every}
    undone: set[str] = set()
    undone_id = operation.plan.rollback.undoes
    while undone_id is not None and undone_id not in undone and undone_id in by_id:
        undone.add(undone_id)
        undone_id = by_id[undone_id].plan.rollback.undoes
    return undone


def abandon(context: Context, *, why: str) -> tuple[Operation, ...]:
    """End every unfinished operation where it stands: the live service stays as it is and is recorded, the candidate
    is removed, the autoscaler is unpinned. The service's lease must be held.

    Raises:
        MpctlError: a step failed; the same call again continues.
    """
    journal = Journal(context)
    unfinished = [op for op in journal.operations() if op.ending is None]
    changes = [op for op in unfinished if op.plan.kind is not Kind.REFRESH]
    if changes:
        leave_service(context, [_with_texts(context, journal, op) for op in changes])
    for operation in reversed(unfinished):  # a rollback before what it undoes
        journal.close(operation.id, Ending.ABANDONED, why)
    return tuple(journal.operation(op.id) for op in unfinished)


def _with_texts(context: Context, journal: Journal, operation: Operation) -> Operation:
    """Return an operation with the manifests of its plan, where their revisions can be read."""
    try:
        return journal.read(operation.id)
    except MpctlError as error:
        context.progress.note(f"{error.message}; the update strategy is left as it is")
        return operation
