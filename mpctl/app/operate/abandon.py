"""End what is unfinished and leave the service as it is."""

from __future__ import annotations

from mpctl.app.session.base import Session
from mpctl.rollout import runner
from mpctl.rollout.operation import Operation, open_operation


def run(session: Session) -> tuple[Operation, ...]:
    """Close every unfinished operation: record the live service, remove the candidate, unpin the autoscaler. Returns
    what was abandoned; empty when nothing was unfinished.

    Raises:
        Conflict: another operator works on the service.
        Cancelled: the user declined or pressed Ctrl-C.
        MpctlError: a step failed; the same call again continues.
    """
    operation = open_operation(session.store.entries())
    if operation is None:
        return ()
    if session.live_text() is not None and (owner := session.owned(force=True)) is not None:
        session.console.warn(owner)
    question = (
        f"{operation.id} of {session.title} ({operation.plan.spec_text}) ends here; the service stays as it is now"
    )
    session.console.confirm(f"{question}\nContinue ({session.place})?")
    with session.store.lease("abandon"), session.context() as context:
        return runner.abandon(context, why="abandoned by hand")
