"""The ledger of one service while its lease is held: read once, then extended entry by entry."""

from __future__ import annotations

from dataclasses import replace

from mpctl.json_types import Json
from mpctl.rollout.context import Context
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.operation import Ending, Operation, StepResult, operation_opened_by, operations
from mpctl.rollout.plan import Plan


class Journal:
    """Appends to the ledger and keeps the operations that follow from it. The lease must be held."""

    def __init__(self, context: Context) -> None:
        self._context = context
        entries = context.store.entries()
        self._last: Entry | None = entries[-1] if entries else None
        self._operations = {op.id: op for op in operations(entries)}

    def operations(self) -> tuple[Operation, ...]:
        """All operations, oldest first."""
        return tuple(self._operations.values())

    def operation(self, operation_id: str) -> Operation:
        """An operation as the ledger has it now, with the texts of its plan once :meth:`read` took them."""
        return self._operations[operation_id]

    def read(self, operation_id: str) -> Operation:
        """An operation with the texts that its plan names, from the revisions.

        Raises:
            MpctlError: a revision is lost, or holds another text than the plan was made for.
        """
        operation = self._operations[operation_id].read(self._context.store.revisions())
        self._operations[operation_id] = operation
        return operation

    def open(
        self, operation_id: str, plan: Plan, *, then: str, with_next: bool = False
    ) -> Operation:
        """Write a plan down as a new operation. ``then``: its first step, which is about to act."""
        data = {"plan": plan.to_record()}
        entry = self._append(operation_id, Event.OPENED, data=data, then=then, with_next=with_next)
        operation = operation_opened_by(entry)  # whose plan has no texts
        texts = replace(operation.plan, baseline=plan.baseline, goal=plan.goal)
        return self._keep(replace(operation, plan=texts))

    def begin(self, operation: Operation, step: str) -> Operation:
        """Write down that a step is about to act, unless an entry says so."""
        return (
            operation
            if operation.begun == step
            else self._extended(self._append(operation.id, Event.BEGUN, step))
        )

    def done(
        self,
        operation: Operation,
        step: str,
        result: StepResult,
        *,
        then: str = "",
        with_next: bool = False,
    ) -> Operation:
        """Write down what a step found out, and that the step ``then`` is about to act."""
        data = result.to_record()
        return self._extended(
            self._append(operation.id, Event.DONE, step, data, then=then, with_next=with_next)
        )

    def fail(self, operation_id: str, reason: str) -> Operation:
        """Write down why the step that was begun could not act."""
        begun = self._operations[operation_id].begun
        return self._extended(self._append(operation_id, Event.FAILED, begun, {"reason": reason}))

    def close(
        self, operation_id: str, ending: Ending, detail: str, *, with_next: bool = False
    ) -> Operation:
        """Write down how an operation ended."""
        data = {"ending": ending.value, "detail": detail}
        return self._extended(
            self._append(operation_id, Event.CLOSED, data=data, with_next=with_next)
        )

    def _append(
        self,
        operation_id: str,
        event: Event,
        step: str = "",
        data: Json | None = None,
        *,
        then: str = "",
        with_next: bool = False,
    ) -> Entry:
        """Add an entry. ``with_next``: it may be written together with the next one (mpctl.rollout.sequences)."""
        context = self._context
        entry = Entry.after(
            self._last,
            at=context.clock.now(),
            operation=operation_id,
            event=event,
            who=context.who,
            step=step,
            data=data,
            then=then,
        )
        self._last = entry
        context.store.append(entry, with_next=with_next)
        return entry

    def _extended(self, entry: Entry) -> Operation:
        return self._keep(self._operations[entry.operation].with_entry(entry))

    def _keep(self, operation: Operation) -> Operation:
        self._operations[operation.id] = operation
        return operation
