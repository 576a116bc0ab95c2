"""Continue an interrupted operation."""

from __future__ import annotations

from dataclasses import replace

from mpctl.app.operate.outcome import OperationOutcome, carry_out, confirm_resume
from mpctl.app.planned_workload import read_classes_of, remembered_classes
from mpctl.app.session.base import Session
from mpctl.experiment.prompt_files import Prompt
from mpctl.rollout.operation import (
    Operation,
    unfinished_operation,
    unfinished_retirement,
)
from mpctl.rollout.plan import Kind
from mpctl.rollout.revision import text_digest
from mpctl.rollout.steps.measure import stored_workload, verdict_of


def run(session: Session, prompts: tuple[str, ...] = ()) -> OperationOutcome:
    """Continue a rollout, rollback or retirement from its last finished step. ``prompts``: classes of traffic as the
    rollout was given them, since no record keeps their texts; without them, the files that the rollout read on this
    machine.

    Raises:
        Conflict: another operator works on the service.
        Cancelled: another user opened the operation, and the user declined.
        MpctlError: it failed again.
    """
    with session.store.lease("resume"):
        operation = _unfinished(session)
        if operation is None:
            return OperationOutcome.nothing_to_do(
                session, f"{session.title} has no unfinished operation"
            )
        confirm_resume(session, operation)
        prompts_by_class = {
            traffic.name: traffic.prompts for text in prompts for traffic in read_classes_of(text)
        }
        prompts_by_class = prompts_by_class or _remembered_prompts(session, operation)
        with session.context() as context:
            return carry_out(session, replace(context, prompts=prompts_by_class), operation)


def _remembered_prompts(session: Session, operation: Operation) -> dict[str, tuple[Prompt, ...]]:
    """The prompts of the files that the rollout read on this machine, where they are those it recorded."""
    plan = operation.plan
    if plan.kind is not Kind.ROLLOUT or not plan.workload or verdict_of(operation):
        return {}
    workload = stored_workload(session.store, operation)
    recorded = {} if workload is None else workload.digests
    reread: dict[str, tuple[Prompt, ...]] = {}
    for traffic, file in remembered_classes(plan.workload):
        if recorded.get(traffic.name) == traffic.digest():
            reread[traffic.name] = traffic.prompts
            session.console.note(f"the prompts of {traffic.name} are read again from {file}")
        else:
            session.console.warn(
                f"{file} no longer holds the prompts of {traffic.name} that {operation.id} measures with"
            )
    return reread


def _unfinished(session: Session) -> Operation | None:
    """The operation to continue. An interrupted retirement counts only while the service is as it found it."""
    entries = session.store.entries()
    operation, retirement = unfinished_operation(entries), unfinished_retirement(entries)
    if operation is not None or retirement is None:
        return operation
    return (
        retirement
        if text_digest(session.platform.live_text() or "") == retirement.plan.goal.digest
        else None
    )
