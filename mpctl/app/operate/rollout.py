"""Roll speculation onto a service behind a measured gate."""

from __future__ import annotations

import math
from dataclasses import replace

from mpctl import annex, formatting
from mpctl.app.change import Change, prepare
from mpctl.app.change.check import Load
from mpctl.app.operate.outcome import OperationOutcome, carry_out, confirm_resume, preview
from mpctl.app.operate.rollout_plan import AUTO, Fit, RolloutPlanner, explain_rollout
from mpctl.app.planned_variants import adapters_named, asks_for_variants, with_variants
from mpctl.app.planned_workload import read_workload_with_notes, remember_files
from mpctl.app.requests import DryRun, RolloutRequest
from mpctl.app.session.base import Session, choose_load_place
from mpctl.errors import Conflict
from mpctl.experiment.prompt_files import CONVERSATIONS
from mpctl.experiment.users import USERS_LOAD, below_users_load
from mpctl.experiment.workload import Workload
from mpctl.methods import METHODS
from mpctl.rollout import runner
from mpctl.rollout.context import Context
from mpctl.rollout.decide import Act, decide_rollout
from mpctl.rollout.operation import Operation, unfinished_operation
from mpctl.rollout.plan import Plan
from mpctl.rollout.ports import Arm
from mpctl.rollout.steps.measure import measured_engine, stored_workload

_MANY_HITS = 0.2  # of the users' prompt tokens, from the prefix cache


def run(session: Session, request: RolloutRequest) -> OperationOutcome:
    """Measure the change, promote it if the gate says so, restore the service otherwise. Killed at any point, the same
    request continues.

    Raises:
        InputError: the request cannot be used.
        Refused: the preflight forbids the change, or nothing fits.
        Conflict: another operation or another writer changes the service.
        Cancelled: the user declined or pressed Ctrl-C.
    """
    console = session.console
    if request.signing.key is not None:
        annex.need("require-signer")(
            request.signing
        )  # a key that cannot sign stops the rollout before it starts
    request = _with_users_prompts(session, request)
    workload = read_workload_with_notes(console, request.measurement, request.speculation.accepted)
    request = _with_best_method(session, request, workload)
    prompts = tuple(prompt for kind in workload.traffic for prompt in kind.prompts)
    measured_load = Load(workload.most, max(workload.temperatures), prompts)
    change = prepare(session, request.speculation, measured_load)
    entries = session.store.entries()
    unfinished = unfinished_operation(entries)
    session.load_place = choose_load_place(
        request.measurement.load, session.platform.name, unfinished=unfinished
    )
    workload = _with_variants(session, request, workload, unfinished)
    planner, prediction = RolloutPlanner(session, request, change, session.load_place), None
    fit = planner.fit_request(workload, unfinished, entries)
    decision = decide_rollout(
        planner.plan(fit), session.platform.read(), unfinished, holder=session.holder()
    )
    nothing_to_do = OperationOutcome.nothing_to_do(
        session, f"{session.title} already runs {change.spec.describe()}"
    )
    if decision.act is Act.ALREADY:
        return nothing_to_do
    opens = decision.act is Act.OPEN
    if opens and (warning := session.ownership_warning(force=request.force)):
        console.warn(warning)
    change.report(console)
    change.require_allowed()
    if opens:
        fit = planner.fit_to_service(fit)
        for note in fit.notes:
            console.note(f"note: {note}")
        at_once = max(fit.workload.concurrency, default=0)
        if gap := below_users_load(fit.users, fit.placement, at_once):
            console.warn(f"[{USERS_LOAD}] {gap}")
        change = _checked_under_users_load(session, change, measured_load, fit)
        if predict := annex.find("predict"):
            prediction = predict(session, request.speculation, change, fit.workload.concurrency)
    plan = planner.plan(fit, prediction)
    reasons = (
        explain_rollout(session, plan, fit.workload),
        fit.placement_reason,
        fit.fidelity_reason,
    )
    explanation = "\n".join(filter(None, reasons))
    if request.dry_run is not DryRun.NONE:
        return OperationOutcome.of_preview(session, preview(session, plan, explanation))
    if opens:
        console.confirm(f"{explanation}\nContinue ({session.place})?")
    return _execute(session, request, planner, fit, plan) or nothing_to_do


def _execute(
    session: Session, request: RolloutRequest, planner: RolloutPlanner, fit: Fit, plan: Plan
) -> OperationOutcome | None:
    """Carry out the rollout under the service's lease, and sign its verdict where asked; None where the service already
    runs the spec."""
    with session.store.lease("rollout"), session.context() as without_prompts:
        context = replace(
            without_prompts, prompts={kind.name: kind.prompts for kind in fit.workload.traffic}
        )
        operation = _resume_or_open(context, session, planner, fit, plan)
        if operation is None:
            return None
        remember_files(plan.workload, request.measurement)
        outcome = carry_out(session, context, operation)
    if request.signing.key is not None and outcome.operation is not None:
        annex.need("sign-promoted")(session, outcome.operation, request.signing, request.bundle)
    return outcome


def _checked_under_users_load(
    session: Session, change: Change, measured_load: Load, fit: Fit
) -> Change:
    """Check the change under the users' load as well, which it carries after a promotion, and report what that finds
    beyond the measurement's load.

    Raises:
        Refused: the preflight forbids the change under that load.
    """
    in_flight = math.ceil(fit.users.in_flight_per_pod or 0) if fit.users is not None else 0
    if in_flight <= (measured_load.concurrency or 0):
        return change
    under_users_load = change.under_load(replace(measured_load, concurrency=in_flight))
    under_users_load.report_findings(session.console, shown=change.findings)
    under_users_load.require_allowed()
    return under_users_load


def _resume_or_open(
    context: Context, session: Session, planner: RolloutPlanner, fit: Fit, plan: Plan
) -> Operation | None:
    """Decide again under the lease: the service may have changed since the user was asked. None where it already runs
    the spec."""
    decision = decide_rollout(
        plan, session.platform.read(), unfinished_operation(session.store.entries())
    )
    if decision.act is Act.ALREADY:
        return None
    if decision.operation is not None:
        confirm_resume(session, decision.operation)
        return decision.operation
    session.store.save(plan.workload, "workload", fit.workload.to_record(), only=True)
    return runner.open_plan(
        context,
        planner.plan(planner.with_current_route(fit), plan.prediction, session.platform.scaling()),
    )


def _with_users_prompts(session: Session, request: RolloutRequest) -> RolloutRequest:
    """The request with conversations where it names no prompts, the method drafts from hidden states, which may cost
    hits of the prefix cache, and the service's users have many. An unfinished rollout has chosen already."""
    measurement, method = request.measurement, METHODS.get(request.speculation.method)
    named = measurement.prompts or measurement.warm is not None or asks_for_variants(measurement)
    if named or method is None or not method.prompt_states:
        return request
    unfinished = unfinished_operation(session.store.entries())
    stored = stored_workload(session.store, unfinished) if unfinished is not None else None
    if stored is None:
        share = session.counters().prefix_hit_share or 0.0
        if share <= _MANY_HITS:
            return request
        session.console.note(
            f"users get {formatting.share(share, 0)} of their prompts from the prefix cache, and {method.name} may "
            f"lose that: --prompts {CONVERSATIONS}"
        )
    elif CONVERSATIONS not in stored.shares:
        return request
    return replace(request, measurement=replace(measurement, prompts=(CONVERSATIONS,)))


def _with_best_method(
    session: Session, request: RolloutRequest, workload: Workload
) -> RolloutRequest:
    """The request with the plan's best method where it asks for ``auto``.

    Raises:
        Conflict: a rollout is unfinished, which may be of another method by now.
        Refused: no method is predicted to gain.
    """
    if request.speculation.method != AUTO:
        return request
    unfinished = unfinished_operation(session.store.entries())
    if unfinished is not None:
        raise Conflict(
            f"{unfinished.id} of {session.title} is unfinished",
            hint=f"{session.command('resume')} continues it",
        )
    best = annex.need("choose-method")(session, request.speculation, workload.concurrency)
    return replace(request, speculation=best)


def _with_variants(
    session: Session, request: RolloutRequest, workload: Workload, unfinished: Operation | None
) -> Workload:
    """The workload with the variants that the request asks for; an unfinished rollout has its own.

    Raises:
        InputError: something that is asked for is not served.
    """
    measurement = request.measurement
    if not asks_for_variants(measurement):
        return workload
    stored = stored_workload(session.store, unfinished) if unfinished is not None else None
    if stored is not None and stored.variants:
        return stored.with_prompts({kind.name: kind.prompts for kind in workload.traffic}.get)
    with session.context() as context:
        live = measured_engine(context, Arm(session.platform.read().text), None)
        return with_variants(
            workload, measurement, [live.endpoint], named=adapters_named(session.service().command)
        )
