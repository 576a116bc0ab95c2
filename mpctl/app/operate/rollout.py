"""Roll speculation onto a service behind a measured gate."""

from __future__ import annotations

import math
from dataclasses import replace

from mpctl import annex
from mpctl.app.change import Change
from mpctl.app.operate.outcome import OperationOutcome, Preview, carry_out, confirm_resume
from mpctl.app.operate.rollout_known import Known, read_known
from mpctl.app.operate.rollout_place import Place, available_place, requested_place
from mpctl.app.operate.rollout_plan import current, explain_rollout, placed, plan_rollout
from mpctl.app.planned_workload import describe_workload, remember_files
from mpctl.app.requests import DryRun, RolloutRequest
from mpctl.app.session.base import Session
from mpctl.errors import Conflict
from mpctl.experiment.users import USERS_LOAD
from mpctl.rollout import runner
from mpctl.rollout.context import Context
from mpctl.rollout.decide import Act, decide_rollout
from mpctl.rollout.operation import Operation, unfinished_operation
from mpctl.rollout.plan import Plan


def run(session: Session, request: RolloutRequest) -> OperationOutcome:
    """Measure the change, promote it if the gate says so, restore the service otherwise. Killed at any point, the same
    request continues.

    Raises:
        InputError: the request cannot be used.
        Refused: the preflight forbids the change, or nothing has room.
        Conflict: another operation or another writer changes the service.
        Cancelled: the user declined or pressed Ctrl-C.
    """
    if request.signing.key is not None:
        # A key that cannot sign stops the rollout before it starts.
        annex.need("require-signer")(request.signing)
    known = read_known(session, request)
    session.load_place = known.load_place
    place = requested_place(known)
    plan = plan_rollout(session, known, place)
    decision = decide_rollout(
        plan, session.platform.read(), known.unfinished, holder=session.holder()
    )
    nothing_to_do = OperationOutcome.nothing_to_do(
        session, f"{session.title} already runs {known.change.spec.describe()}"
    )
    if decision.act is Act.ALREADY:
        return nothing_to_do
    opens = decision.act is Act.OPEN
    if opens:
        session.warn_of_owner(force=request.force)
    known.change.report(session.console)
    known.change.require_allowed()
    if opens:
        place = available_place(session, known, place)
        change = _checked_under_users_load(session, known, place)
        for note in place.notes:
            session.console.note(f"note: {note}")
        if place.load_gap:
            session.console.warn(f"[{USERS_LOAD}] {place.load_gap}")
        predict = annex.find("predict")
        prediction = (
            predict(session, request.speculation, change, place.workload.concurrency)
            if predict
            else None
        )
        plan = placed(plan, place, prediction)
    shown = plan
    if decision.operation is not None and request.dry_run is not DryRun.NONE:
        shown = decision.operation.read(session.store.revisions()).plan
    reasons = (
        explain_rollout(session, shown, describe_workload(place.workload)),
        place.reason,
        known.fidelity_reason,
    )
    explanation = "\n".join(filter(None, reasons))
    if request.dry_run is not DryRun.NONE:
        preview = Preview(session.name, shown, session.platform.read().text, explanation)
        return OperationOutcome(session.name, session.namespace, session.title, preview=preview)
    if opens:
        session.console.confirm(f"{explanation}\nContinue ({session.place})?")
    return _execute(session, known, place, plan, opens=opens) or nothing_to_do


def _checked_under_users_load(session: Session, known: Known, place: Place) -> Change:
    """Check the change under the users' load as well, which it carries after a promotion, and report what that finds
    beyond the measurement's load.

    Raises:
        Refused: the preflight forbids the change under that load.
    """
    change, measured_load = known.change, known.measured_load
    in_flight = math.ceil(place.users.in_flight_per_pod or 0) if place.users is not None else 0
    if in_flight <= (measured_load.concurrency or 0):
        return change
    under_users_load = change.under_load(replace(measured_load, concurrency=in_flight))
    under_users_load.report_findings(session.console, shown=change.findings)
    under_users_load.require_allowed()
    return under_users_load


def _execute(
    session: Session, known: Known, place: Place, plan: Plan, *, opens: bool
) -> OperationOutcome | None:
    """Carry out the rollout under the service's lease, and sign its verdict where asked; None where the service already
    runs the spec. ``opens``: the plan has a place and was confirmed; another one only continues an operation."""
    request = known.request
    with session.store.lease("rollout"), session.context() as without_prompts:
        context = replace(
            without_prompts, prompts={kind.name: kind.prompts for kind in place.workload.traffic}
        )
        operation = _resume_or_open(context, session, known, place, plan, opens=opens)
        if operation is None:
            return None
        remember_files(plan.workload, request.measurement)
        outcome = carry_out(session, context, operation)
    if request.signing.key is not None and outcome.operation is not None:
        annex.need("sign-promoted")(session, outcome.operation, request.signing, request.bundle)
    return outcome


def _resume_or_open(
    context: Context, session: Session, known: Known, place: Place, plan: Plan, *, opens: bool
) -> Operation | None:
    """Decide again under the lease: the service may have changed since the user was asked. None where it already runs
    the spec.

    Raises:
        Conflict: the operation that was to be continued has ended.
    """
    decision = decide_rollout(
        plan, session.platform.read(), unfinished_operation(session.store.entries())
    )
    if decision.act is Act.ALREADY:
        return None
    if decision.operation is not None:
        confirm_resume(session, decision.operation)
        return decision.operation
    if not opens:
        raise Conflict(
            f"the operation that was to be continued on {session.title} has ended meanwhile",
            hint="run the same command again to plan from the service as it is now",
        )
    session.store.save(plan.workload, "workload", place.workload.to_record(), only=True)
    return runner.open_plan(context, current(plan, session, known))
