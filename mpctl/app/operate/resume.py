"""Continue an interrupted operation."""

from __future__ import annotations

from dataclasses import replace

from mpctl.app.operate.outcome import Outcome, carry_out
from mpctl.app.operate.resumption import confirm_resume
from mpctl.app.session.base import Session
from mpctl.app.workload import read_split, read_traffic
from mpctl.rollout.operation import Operation, open_operation, open_retirement
from mpctl.rollout.revision import text_digest


def run(session: Session, prompts: tuple[str, ...] = (), workloads: tuple[str, ...] = ()) -> Outcome:
    """Continue a rollout, rollback or retirement from its last finished step. ``prompts`` and ``workloads``: classes of
    traffic as the rollout was given them, since no record keeps their texts.

    Raises:
        Conflict: another operator works on the service.
        Cancelled: another user opened the operation, and the user declined.
        MpctlError: it failed again.
    """
    with session.store.lease("resume"):
        operation = _unfinished(session)
        if operation is None:
            return Outcome.nothing_to_do(session, f"{session.title} has no unfinished operation")
        confirm_resume(session, operation)
        kinds = (*map(read_traffic, prompts), *(kind for file in workloads for kind in read_split(file)))
        given = {kind.name: kind.prompts for kind in kinds}
        with session.context() as context:
            return carry_out(session, replace(context, prompts=given), operation)


def _unfinished(session: Session) -> Operation | None:
    entries = session.store.entries()
    operation, retirement = open_operation(entries), open_retirement(entries)
    if operation is not None or retirement is None:
        return operation
    return retirement if text_digest(session.live_text() or "") == retirement.plan.goal.digest else None
