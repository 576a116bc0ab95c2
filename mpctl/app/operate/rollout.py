"""Roll speculation onto a service behind a measured gate."""

from __future__ import annotations

from dataclasses import replace

from mpctl.app.bench.power import CALIBRATION_ROUNDS, calibration_noise, continued, plan_rounds, recorded_noise
from mpctl.app.change import Change, prepare
from mpctl.app.change.check import Load
from mpctl.app.files import read_policy
from mpctl.app.operate.outcome import Outcome, carry_out, confirm_resume, preview
from mpctl.app.operate.rollout_plan import AUTO, as_placed, explain_rollout, make_plan, place_plan
from mpctl.app.plan.predicted import choose_best, describe_prediction, predict_rollout
from mpctl.app.requests import DryRun, RolloutRequest
from mpctl.app.session.base import Session, place_load
from mpctl.app.workload import loader_for, read_workload, remember_files
from mpctl.errors import Conflict, InputError
from mpctl.estimate.memory import compare_with_log
from mpctl.experiment.workload import Workload
from mpctl.gate.power import Noise
from mpctl.rollout import runner
from mpctl.rollout.context import Context
from mpctl.rollout.decide import Act, Decision, decide_rollout
from mpctl.rollout.ledger import Entry
from mpctl.rollout.operation import Operation, open_operation
from mpctl.rollout.plan import Kind, Plan
from mpctl.rollout.ports import Arm
from mpctl.rollout.steps.measure import target_of


def run(session: Session, request: RolloutRequest) -> Outcome:
    """Measure the change, promote it if the gate says so, restore the service otherwise. Killed at any point, the same
    request continues.

    Raises:
        InputError: the request cannot be used.
        Refused: the preflight forbids the change, or nothing fits.
        Conflict: another operation or another writer changes the service.
        Cancelled: the user declined or pressed Ctrl-C.
    """
    workload = read_workload(request.measurement, loader_for(session))
    request = _named(session, request, workload)
    change = prepare(session, request.speculation, Load(workload.most, max(workload.temperatures)))
    entries = session.store.entries()
    unfinished = open_operation(entries)
    workload, power = _planned(session, request, workload, unfinished, entries)
    plan = _plan(session, request, change, workload, unfinished)
    plan, workload = as_placed(plan, workload, request, None if unfinished is None else unfinished.plan)
    decision = decide_rollout(plan, session.platform.read(), unfinished, holder=session.holder())
    if decision.act is Act.ALREADY:
        return Outcome.nothing_to_do(session, f"{session.title} already runs {change.spec.describe()}")
    _check(session, request, change, decision, unfinished)
    users = ""
    if decision.act is Act.OPEN:
        if power and not change.spec.is_none:
            session.console.note(power)
        plan, workload, choice, notes = place_plan(session, plan, request, workload)
        for note in notes:
            session.console.note(f"note: {note}")
        plan = _with_prediction(session, request, change, plan, workload)
        users = f"\n{choice.describe()}"
    explanation = explain_rollout(session, plan, workload) + users
    if request.dry_run is not DryRun.NONE:
        return Outcome.of_preview(session, preview(session, plan, explanation))
    if decision.act is Act.OPEN:
        session.console.confirm(f"{explanation}\nContinue ({session.place})?")
    with session.store.lease("rollout"), session.context() as outside:
        context = replace(outside, prompts={kind.name: kind.prompts for kind in workload.traffic})
        operation = _resume_or_open(session, context, request, plan, workload)
        if operation is None:
            return Outcome.nothing_to_do(session, f"{session.title} already runs {change.spec.describe()}")
        outcome = carry_out(session, context, operation)
    return replace(outcome, pool=_pool(session, change))


def _named(session: Session, request: RolloutRequest, workload: Workload) -> RolloutRequest:
    """The request with the plan's best method where it asks for ``auto``.

    Raises:
        Conflict: a rollout is unfinished, which may be of another method by now.
        Refused: no method is predicted to gain.
    """
    if request.speculation.method != AUTO:
        return request
    unfinished = open_operation(session.store.entries())
    if unfinished is not None:
        raise Conflict(
            f"{unfinished.id} of {session.title} is unfinished", hint=f"{session.command('resume')} continues it"
        )
    speculation, best = choose_best(session, request.speculation, workload.concurrency)
    ratio = best.last.entry.prediction.throughput.text() if best.last else ""
    session.console.note(f"auto: {' '.join((best.method, *speculation.settings))}, predicted throughput ratio {ratio}")
    return replace(request, speculation=speculation)


def _planned(
    session: Session,
    request: RolloutRequest,
    workload: Workload,
    unfinished: Operation | None,
    entries: tuple[Entry, ...],
) -> tuple[Workload, str]:
    """The workload with its rounds, and a sentence on its power; an unfinished rollout has its rounds already.

    Raises:
        InputError: the gain to detect is out of reach, or nothing is known of the noise and nothing may be sent.
    """
    asked = request.measurement
    if unfinished is not None and unfinished.plan.kind is Kind.ROLLOUT:
        return workload if asked.detect is None else continued(workload, session, unfinished), ""
    policy = read_policy(asked.policy)

    def calibrate() -> Noise:
        if request.dry_run is not DryRun.NONE:
            raise InputError(
                f"the noise of {session.title} is unknown: no rollout measured it, and a dry run sends nothing",
                field="--detect",
                hint="leave out --detect in the dry run",
            )
        session.require_load_client()
        session.load = place_load(asked.load, asked.load_pods, session.platform.name)
        session.console.step("calibrate", f"{CALIBRATION_ROUNDS} rounds on the serving engine, for its noise")
        with session.context() as context:
            live = target_of(context, Arm(session.platform.read().text), "")
            return calibration_noise(context.meter, live.endpoint, workload, policy)

    return plan_rounds(asked, workload, policy, recorded_noise(session, entries), calibrate)


def _with_prediction(session: Session, request: RolloutRequest, change: Change, plan: Plan, workload: Workload) -> Plan:
    """The plan with what the payoff model says of the change, to be compared with what is measured."""
    if change.spec.is_none:
        return plan
    prediction = predict_rollout(session, request.speculation, workload.concurrency, change.spec.k)
    if prediction is not None:
        session.console.note(describe_prediction(prediction))
    return replace(plan, prediction=prediction)


def _plan(
    session: Session, request: RolloutRequest, change: Change, workload: Workload, unfinished: Operation | None
) -> Plan:
    measurement = request.measurement
    session.load = place_load(measurement.load, measurement.load_pods, session.platform.name, unfinished=unfinished)
    timeout_s = session.ready_timeout_s(request.ready_timeout_s)
    return make_plan(change, request, workload, unfinished, ready_timeout_s=timeout_s, load=session.load)


def _check(
    session: Session, request: RolloutRequest, change: Change, decision: Decision, unfinished: Operation | None
) -> None:
    """Report the preflight, and refuse what must not or cannot be measured."""
    if decision.act is Act.OPEN and (owner := session.owned(force=request.force)):
        session.console.warn(owner)
    change.report(session.console)
    change.require_allowed()
    if unfinished is None or unfinished.plan.kind is Kind.ROLLOUT:  # a rollback measures nothing
        session.require_load_client()


def _resume_or_open(
    session: Session, context: Context, request: RolloutRequest, plan: Plan, workload: Workload
) -> Operation | None:
    """Decide again under the lease: the service may have changed since the user was asked. None: it is as asked."""
    decision = decide_rollout(plan, session.platform.read(), open_operation(session.store.entries()))
    if decision.operation is not None:
        confirm_resume(session, decision.operation)
        return decision.operation
    if decision.act is Act.ALREADY:
        return None
    session.store.save(plan.workload, "workload", workload.to_record(), only=True)
    remember_files(plan.workload, request.measurement)
    plan = replace(plan, scaling=session.platform.scaling())
    if plan.route is not None:
        name, steps = plan.route["name"], plan.traffic_steps
        route = session.platform.route(name, steps, mirror=plan.mirror_percent, force=request.force)
        plan = replace(plan, route=route)
    return runner.open_plan(context, plan)


def _pool(session: Session, change: Change) -> str:
    """The KV pool that the engine logged, compared with the estimate; empty where nothing was estimated."""
    memory = change.checked.memory
    log = None if memory is None else session.engine_log()
    return "" if memory is None or log is None else compare_with_log(memory, log) or ""
