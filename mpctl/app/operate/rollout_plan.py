"""The plan of a rollout: made from the request and the change, then fitted to what the platform has room for."""

from __future__ import annotations

from dataclasses import replace

from mpctl.app.change import Change
from mpctl.app.policy import read_policy
from mpctl.app.requests import MeasurementRequest, RolloutRequest
from mpctl.app.session.base import Session
from mpctl.app.session.load_client import LoadPlace
from mpctl.errors import InputError, NotPermitted, Refused
from mpctl.estimate import target_name_of
from mpctl.experiment.workload import Workload
from mpctl.gate.policy import Policy
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.revision import Manifest

AUTO = "auto"
BAKE_S = 600.0  # long enough for a few thousand requests of a busy service


def make_plan(
    change: Change,
    request: RolloutRequest,
    workload: Workload,
    unfinished: Operation | None,
    *,
    ready_timeout_s: float,
    load: LoadPlace,
) -> Plan:
    """Pin everything that the rollout will do."""
    strategy, downtime = _strategy(request, unfinished)
    return Plan(
        kind=Kind.ROLLOUT,
        strategy=strategy,
        baseline=Manifest.of(change.old_text),
        goal=Manifest.of(change.new_text),
        spec=change.spec,
        baseline_spec=change.old_spec,
        policy=_policy(change, request.measurement),
        workload=record_of(workload),
        ready_timeout_s=ready_timeout_s,
        keep_baseline=request.traffic.keep_baseline,
        downtime=downtime,
        why=f"rollout of {change.record}",
        draft=change.draft_name,
        load=load.where,
        load_pods=load.pods,
        target_model=target_name_of(change.before) or change.before.model or change.before.name,
        traffic_steps=request.traffic.steps_percent,
        step_duration_s=request.traffic.step_duration_s,
        mirror_percent=request.traffic.mirror_percent,
        by=request.by,
    )


def record_of(workload: Workload) -> str:
    """The name of a workload's record."""
    return f"workload-{workload.digest()[:12]}"


def _policy(change: Change, asked: MeasurementRequest) -> Policy:
    policy = read_policy(asked.policy) if asked.limits is None else Policy.from_record(asked.limits)
    if change.spec.config() is None:
        # Taking speculation away is judged by speed and output; there are no drafts to count.
        return Policy.from_record({**policy.to_record(), "min_tokens_per_step": 0})
    return policy


def _strategy(request: RolloutRequest, unfinished: Operation | None) -> tuple[Strategy, bool]:
    """The strategy asked for, else that of the unfinished rollout, else side by side; and whether downtime is
    accepted."""
    if request.strategy != AUTO:
        return Strategy(request.strategy), request.accept_downtime
    if unfinished is not None and unfinished.plan.kind is Kind.ROLLOUT:
        return unfinished.plan.strategy, unfinished.plan.downtime
    return Strategy.SIDE_BY_SIDE, request.accept_downtime


def fit_plan(session: Session, plan: Plan, request: RolloutRequest) -> tuple[Plan, tuple[str, ...]]:
    """The plan with a strategy that the platform has capacity for and the HTTPRoute it needs, and notes on it.

    Raises:
        InputError: options contradict each other, or ask for what the platform cannot do.
        Refused: nothing fits; with the reason and the alternatives.
    """
    side_by_side = plan.strategy is Strategy.SIDE_BY_SIDE
    plan = _with_route(session, plan, request)
    retained = session.platform.retained_baseline()
    notes: tuple[str, ...] = ()
    if retained is not None:
        plan = replace(plan, releases=True)
        notes = (f"{retained.arm}, retained since {retained.since}, ends first: its GPUs are needed",)
    retain = plan.keep_baseline and session.platform.rolls
    try:
        # Downtime is only taken where nothing else fits.
        downtime = plan.downtime and not side_by_side
        notes += session.platform.check(
            plan.arm, side_by_side=side_by_side, downtime=downtime, retain=retain, load_pods=load_pods(plan)
        )
    except Refused as refused:
        if request.strategy != AUTO or not plan.downtime or not session.platform.rolls or plan.route is not None:
            raise
        plan = replace(plan, strategy=Strategy.IN_PLACE)
        in_place = session.platform.check(plan.arm, side_by_side=False, downtime=True, load_pods=load_pods(plan))
        return plan, (f"{refused.message}; the service is changed in place", *in_place)
    plan, bake_notes = _with_bake(session, replace(plan, downtime=False) if side_by_side else plan, request)
    return plan, (*notes, *bake_notes)


def load_pods(plan: Plan) -> int:
    """Number of pods of the load Job; 0 where the prompts are sent from elsewhere."""
    return plan.load_pods if plan.load == "job" else 0


def _bake_s(session: Session, plan: Plan, request: RolloutRequest) -> float:
    """Return the duration of the bake. A rollout of the watch has none, as the watch observes the service anyway."""
    if request.traffic.bake_s is not None:
        return request.traffic.bake_s
    side_by_side = plan.strategy is Strategy.SIDE_BY_SIDE
    return BAKE_S if session.platform.rolls and side_by_side and not request.by else 0.0


def _with_bake(session: Session, plan: Plan, request: RolloutRequest) -> tuple[Plan, tuple[str, ...]]:
    """The plan with the time that the promoted arm is watched, and with the baseline retained meanwhile where an
    HTTPRoute can give it the traffic back and there is capacity for it."""
    plan = replace(plan, bake_s=_bake_s(session, plan, request))
    beside = session.platform.rolls and plan.strategy is Strategy.SIDE_BY_SIDE and not plan.keep_baseline
    if not (plan.bake_s and beside):
        return plan, ()
    try:
        route = plan.route or session.platform.route(request.traffic.route, (), force=request.force)
        session.platform.check(plan.arm, side_by_side=True, retain=True)
    except (InputError, NotPermitted, Refused) as error:
        return plan, (f"a rollback during the bake takes an engine start: {error.message}",)
    return replace(plan, route=route, bake_baseline=True), ()


def _with_route(session: Session, plan: Plan, request: RolloutRequest) -> Plan:
    """The plan with the users' HTTPRoute, where it shifts traffic or retains the baseline in a cluster."""
    moves = plan.traffic_steps or plan.mirror_percent
    if not (moves or (plan.keep_baseline and session.platform.rolls)):
        if request.traffic.route is not None and not _bake_s(session, plan, request):
            raise InputError(
                "a route is only used by --mirror, --traffic-steps, --keep-baseline and --bake", field="--route"
            )
        return plan
    if session.platform.rolls and plan.strategy is not Strategy.SIDE_BY_SIDE:
        raise InputError(
            "in place there is one arm at a time: nothing to shift traffic to or to retain",
            field="--mirror" if plan.mirror_percent else "--traffic-steps" if plan.traffic_steps else "--keep-baseline",
            hint="--strategy side-by-side",
        )
    route = session.platform.route(
        request.traffic.route, plan.traffic_steps, mirror=plan.mirror_percent, force=request.force
    )
    return replace(plan, route=route)
