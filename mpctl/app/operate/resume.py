"""Continue an interrupted operation."""

from __future__ import annotations

from mpctl.app.operate.outcome import Outcome, carry_out
from mpctl.app.session.base import Session
from mpctl.rollout.operation import Operation, open_operation, open_retirement


def run(session: Session) -> Outcome:
    """Continue a rollout, rollback or retirement from its last finished step.

    Raises:
        Conflict: another operator works on the service.
        MpctlError: it failed again.
    """
    with session.store.lease("resume"):
        operation = _unfinished(session)
        if operation is None:
            return Outcome.nothing_to_do(session, f"{session.title} has no unfinished operation")
        session.console.note(f"resuming {operation.id}, opened {operation.opened_at} by {operation.who}")
        with session.context() as context:
            return carry_out(session, context, operation)


def _unfinished(session: Session) -> Operation | None:
    entries = session.store.entries()
    operation, retirement = open_operation(entries), open_retirement(entries)
    if operation is None and retirement is not None and session.live_text() == retirement.plan.text:
        return retirement
    return operation
