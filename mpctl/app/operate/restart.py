"""Replace the engines of a service by fresh ones of the same spec, one after the other."""

from __future__ import annotations

from datetime import UTC, datetime

from mpctl.app.operate.outcome import Outcome, carry_out
from mpctl.app.operate.resumption import confirm_resume
from mpctl.app.session.base import Session
from mpctl.errors import Conflict
from mpctl.rollout import runner
from mpctl.rollout.operation import Operation, open_operation
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.ports import Arm
from mpctl.rollout.revision import Manifest
from mpctl.rollout.serving import live_spec


def run(session: Session, *, why: str = "", by: str = "") -> Outcome:
    """Start fresh engines, switch to them when they are ready, and stop the old ones. A restart that fails leaves the
    service as it was.

    Raises:
        Conflict: an operation is unfinished, or another operator works on the service.
        Refused: there is no capacity for one more engine.
        Cancelled: the user declined or pressed Ctrl-C.
    """
    if (owner := session.owned(force=True)) is not None:
        session.console.warn(owner)
    if _unfinished(session) is None:
        for finding in (item for item in session.path_findings() if item.id == "requests-lost"):
            session.console.warn(f"{finding.reason}: {finding.todo}")
        order = "each stops when a fresh one is ready" + (
            ", as in any rolling update" if session.platform.rolls else ""
        )
        question = f"Every engine of {session.title} is replaced by one of the same spec: {order}."
        session.console.confirm(f"{question}\nContinue ({session.place})?")
    with session.store.lease("restart"), session.context() as context:
        operation = _unfinished(session)
        if operation is not None:
            confirm_resume(session, operation)
        else:
            operation = runner.open_plan(context, make_plan(session, why=why, by=by))
        return carry_out(session, context, operation)


def _unfinished(session: Session) -> Operation | None:
    """The interrupted restart.

    Raises:
        Conflict: another operation is unfinished.
    """
    operation = open_operation(session.store.entries())
    if operation is None or operation.plan.kind is Kind.RESTART:
        return operation
    raise Conflict(
        f"{operation.id} of {session.title} is unfinished ({operation.plan.spec_text})",
        hint=f"{session.command('resume')} continues it, {session.command('rollback')} restores the service",
    )


def make_plan(session: Session, *, why: str, by: str) -> Plan:
    """The plan for the service as it is now.

    Raises:
        Refused: the service does not serve, or there is no capacity for one more engine.
    """
    platform = session.platform
    text = platform.restarted_text(datetime.now(UTC).isoformat(timespec="seconds"))
    for note in platform.check(Arm(text), side_by_side=not platform.rolls):
        session.console.note(f"note: {note}")
    spec = live_spec(platform)
    return Plan(
        kind=Kind.RESTART,
        strategy=Strategy.SIDE_BY_SIDE,
        baseline=Manifest.of(session.text()),
        goal=Manifest.of(text),
        spec=spec,
        baseline_spec=spec,
        ready_timeout_s=session.ready_timeout_s(None),
        scaling=platform.scaling(),
        why=why or f"restart of {session.title}",
        by=by,
    )
