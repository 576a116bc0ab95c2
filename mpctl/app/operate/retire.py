"""Stop a retained baseline and free its GPUs."""

from __future__ import annotations

from mpctl.app.operate.outcome import Outcome, carry_out
from mpctl.app.operate.resumption import confirm_resume
from mpctl.app.session.base import Session
from mpctl.rollout import runner
from mpctl.rollout.decide import Act, Decision, decide_retire
from mpctl.rollout.operation import open_operation, open_retirement
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.revision import Manifest
from mpctl.rollout.serving import live_spec


def run(session: Session) -> Outcome:
    """Stop every arm that does not serve.

    Raises:
        Conflict: an operation is unfinished, or another operator works on the service.
        Cancelled: the user declined or pressed Ctrl-C.
    """
    decision = decide(session)
    if decision.act is Act.ALREADY:
        return Outcome.nothing_to_do(session, f"{session.title} has no retained baseline")
    if decision.plan is not None:
        question = f"{decision.plan.why}; a rollback then takes an engine start"
        session.console.confirm(f"{question}\nContinue ({session.place})?")
    with session.store.lease("retire"), session.context() as context:
        decision = decide(session)
        operation = decision.operation
        if operation is not None:
            confirm_resume(session, operation)
        elif decision.plan is not None:
            operation = runner.open_plan(context, decision.plan)
        if operation is None:
            return Outcome.nothing_to_do(session, f"{session.title} has no retained baseline")
        return carry_out(session, context, operation)


def decide(session: Session) -> Decision:
    """Plan the retirement from the present service and ledger.

    Raises:
        Conflict: an operation is unfinished, which needs its arms.
    """
    entries = session.store.entries()
    return decide_retire(make_plan(session), session.platform.read(), open_operation(entries), open_retirement(entries))


def make_plan(session: Session) -> Plan | None:
    """The plan for the service as it is now; None when only the serving arm runs."""
    status = session.status()
    retained = [arm.id for arm in status.arms if arm.id != status.routed]
    if not retained:
        return None
    manifest, spec = Manifest.of(session.text()), live_spec(session.platform)
    return Plan(
        kind=Kind.RETIRE,
        strategy=Strategy.SIDE_BY_SIDE,
        baseline=manifest,
        goal=manifest,
        spec=spec,
        baseline_spec=spec,
        why=f"retained baseline {', '.join(retained)} of {session.title} ends",
    )
