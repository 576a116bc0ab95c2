"""Restore a recorded revision; what another writer changed elsewhere is kept."""

from __future__ import annotations

from dataclasses import replace

from mpctl.app.operate.outcome import OperationOutcome, Preview, carry_out, confirm_resume
from mpctl.app.operate.rollout_plan import ROLLING
from mpctl.app.requests import DryRun, RollbackRequest
from mpctl.app.session.base import Session
from mpctl.errors import InputError, Refused
from mpctl.rollout import runner
from mpctl.rollout.decide import Act, Decision, History, accepting_downtime, decide_rollback
from mpctl.rollout.operation import last_change
from mpctl.rollout.plan import Plan, Strategy
from mpctl.rollout.restore import keep_foreign_changes, live_spec


def run(session: Session, request: RollbackRequest) -> OperationOutcome:
    """Undo what is unfinished, otherwise restore the revision before or the one asked for, and compare after the write.

    Raises:
        InputError: there is no such revision, or none to go back to.
        Conflict: another operation or another writer changes the service.
        Cancelled: the user declined or pressed Ctrl-C.
    """
    ready_timeout_s = session.ready_timeout_s(request.ready_timeout_s)
    decision = decide(session, request, ready_timeout_s)
    if (
        decision.act is Act.ALREADY
        and request.dry_run is DryRun.NONE
        and session.holder() is not None
    ):
        with session.store.lease(
            "rollback"
        ):  # what a live holder is about to change may not be recorded yet
            decision = decide(session, request, ready_timeout_s)
    if decision.act is Act.ALREADY:
        return OperationOutcome.nothing_to_do(session, _already(session, request, decision))
    plan = decision.operation.plan if decision.operation else decision.plan
    assert plan is not None
    if decision.plan is not None:
        plan, notes = as_found(session, decision.plan)
        for note in notes:
            session.console.note(f"note: {note}")
    explanation = explain_rollback(session, plan)
    if request.dry_run is not DryRun.NONE:
        preview = Preview(session.name, plan, session.platform.read().text, explanation)
        return OperationOutcome(session.name, session.namespace, session.title, preview=preview)
    session.warn_of_owner(force=True)
    if decision.act is Act.OPEN:
        session.console.confirm(f"{explanation}\nContinue ({session.place})?")
    with session.store.lease("rollback"), session.context() as context:
        decision = decide(session, request, ready_timeout_s)
        operation = decision.operation
        if operation is not None:
            confirm_resume(session, operation)
        elif decision.plan is not None:
            operation = runner.open_plan(context, as_found(session, decision.plan)[0])
        if operation is None:
            return OperationOutcome.nothing_to_do(session, _already(session, request, decision))
        return carry_out(session, context, operation)


def _already(session: Session, request: RollbackRequest, decision: Decision) -> str:
    wanted = request.to_revision
    if wanted is None and last_change(session.store.entries()) is None:
        return f"no rollout of {session.title} was promoted, and it runs no speculation: nothing to roll back"
    done = f"is revision {wanted}" if wanted else "was rolled back; --to-revision goes further back"
    if decision.preserved:
        done += f"; kept as others changed it: {', '.join(decision.preserved)} (--exact restores every byte)"
    return f"{session.title} already {done}"


def decide(session: Session, request: RollbackRequest, ready_timeout_s: float) -> Decision:
    """Plan the rollback from the present service and ledger.

    Raises:
        InputError: there is no such revision, or none to go back to.
        Conflict: an unfinished operation starts from another revision than the one asked for, or another writer changed
            what is to be restored.
    """
    live, serving = session.platform.read(), live_spec(session.platform)
    history = History.of(session.store.entries(), session.store.revisions())
    if history.unfinished is not None:
        plan = history.unfinished.plan
        settled = session.platform.settled_text(live.text, (plan.baseline.text, plan.goal.text))
        live = replace(live, text=settled)
    decision = decide_rollback(
        live,
        history,
        request.to_revision,
        serving=serving,
        strategy=Strategy(request.strategy) if request.strategy else None,
        exact=request.exact,
    )
    if not request.exact:
        decision = keep_foreign_changes(decision, live, history, serving=serving)
    # An operation that is undone has a timeout of its own.
    if decision.plan is not None and (
        request.ready_timeout_s is not None or decision.plan.rollback.undoes is None
    ):
        decision = replace(decision, plan=replace(decision.plan, ready_timeout_s=ready_timeout_s))
    if decision.plan is not None and request.by:
        decision = replace(decision, plan=replace(decision.plan, why=request.why, by=request.by))
    return accepting_downtime(decision) if request.accept_downtime else decision


def as_found(session: Session, plan: Plan) -> tuple[Plan, tuple[str, ...]]:
    """The plan with autoscaler and HTTPRoute as they are now, unless it undoes an operation that recorded them; and
    notes on a retained baseline that cannot be used."""
    if plan.rollback.undoes is not None:
        return plan, ()
    plan = replace(plan, scaling=session.platform.scaling())
    retained = session.platform.retained_baseline()
    if retained is None:
        return plan, ()
    ends = "the retained baseline ends"
    if retained.arm != plan.arm.id:
        return plan, (f"{ends}: it is not what is restored",)
    if retained.pods_ready < retained.pods:
        return plan, (
            f"{ends}: {retained.pods_ready} of its pods are ready, the service has {retained.pods}",
        )
    try:
        # Whoever writes the route: it is restored once the service is.
        route = session.platform.route(retained.route, (), force=True)
        return replace(
            plan, rollback=replace(plan.rollback, uses_retained_baseline=True), route=route
        ), ()
    except (InputError, Refused) as error:
        return plan, (f"{ends}: {error.message}",)


def explain_rollback(session: Session, plan: Plan) -> str:
    """Describe the steps of a rollback."""
    down = "the service is down while the other engine starts"
    if plan.strategy is Strategy.SIDE_BY_SIDE:
        down = "no downtime"
    if session.platform.replaces_pods_itself:
        down = (
            "the old pod stops before the new one starts"
            if plan.downtime
            else f"a new pod first, {ROLLING}"
        )
        down += (
            session.start_time()
            + f", at most {plan.ready_timeout_s:.0f} s for each to become ready"
        )
    if plan.rollback.uses_retained_baseline and plan.route is not None:
        moved = (
            f"one write gives the retained baseline all traffic of HTTPRoute {plan.route['name']}"
        )
        down = f"{moved}, then the service is restored: {down}"
    if plan.rollback.kept_fields:
        down += f"; kept as others changed it: {', '.join(plan.rollback.kept_fields)}"
    if plan.overwrites:
        down += (
            "; the live manifest was changed by another writer and is recorded as a revision first"
        )
    return f"{session.title}: back to {plan.spec_text} ({plan.why}); {down}"
