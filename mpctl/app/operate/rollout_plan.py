"""The plan of a rollout, and what it says to whoever is asked to confirm it."""

from __future__ import annotations

from dataclasses import replace

from mpctl.app.operate.rollout_known import Known
from mpctl.app.operate.rollout_place import Place, current_traffic_route
from mpctl.app.session.base import Session
from mpctl.estimate.facts import engine_identity, target_name_of
from mpctl.json_types import Json
from mpctl.rollout.plan import BakePlan, Kind, Plan, Strategy, TrafficPlan, UsersPlan
from mpctl.rollout.revision import Manifest

ROLLING = "as any rolling update"


def plan_rollout(session: Session, known: Known, place: Place) -> Plan:
    """Pin what the rollout will do at this place."""
    request, change = known.request, known.change
    traffic, service = request.traffic, change.before
    target = target_name_of(service)
    plan = Plan(
        kind=Kind.ROLLOUT,
        strategy=place.strategy,
        baseline=Manifest.of(change.old_text),
        goal=Manifest.of(change.new_text),
        spec=change.spec,
        baseline_spec=change.old_spec,
        policy=known.policy,
        ready_timeout_s=session.ready_timeout_s(request.ready_timeout_s),
        keep_baseline=traffic.keep_baseline,
        why=f"rollout of {change.record}",
        draft=change.draft_name,
        target_model=target or service.model or service.name,
        load=known.load_place,
        traffic=TrafficPlan(traffic.steps_percent, traffic.step_duration_s, traffic.mirror_percent),
        by=request.by,
        fidelity=known.fidelity,
        earlier=known.earlier,
        engine=engine_identity(service, change.target.engine, target),
    )
    return placed(plan, place)


def placed(plan: Plan, place: Place, prediction: Json | None = None) -> Plan:
    """The plan at another place, with what was predicted for it."""
    return replace(
        plan,
        strategy=place.strategy,
        workload=f"workload-{place.workload.digest()[:12]}",
        downtime=place.downtime,
        route=place.route,
        deletes_retained_baseline=place.deletes_retained_baseline,
        bake=BakePlan(place.bake_s, place.bake_baseline),
        users=UsersPlan(place.placement, place.users, place.users_share_percent),
        prediction=prediction,
    )


def current(plan: Plan, session: Session, known: Known) -> Plan:
    """The plan with the route and the autoscaler's limits as they are now: under the lease, after the user was
    asked."""
    route = plan.route
    if route is not None:
        route = current_traffic_route(session, known, route["name"])
    return replace(plan, route=route, scaling=session.platform.scaling())


def explain_rollout(session: Session, plan: Plan, prompts: str) -> str:
    """Describe the steps of a rollout. ``prompts``: its workload in words."""
    sent = " from a Job in the cluster" if plan.load == "job" else ""
    clauses = (
        describe_place(session, plan),
        f"{prompts} to each arm{sent}",
        describe_traffic(plan),
        describe_bake(plan),
        f"an engine may take at most {plan.ready_timeout_s:.0f} s to become ready",
        f"a rollback takes {describe_rollback(session, plan)}",
    )
    steps = "; ".join(filter(None, clauses))
    return f"{session.title}: {plan.baseline_text} -> {plan.spec_text}, {steps}"


def describe_traffic(plan: Plan) -> str:
    """Describe the mirror and traffic steps before the promotion; empty without them."""
    if plan.route is None:
        return ""
    route, step_s = plan.route["name"], f"{plan.traffic.step_duration_s:.0f} s"
    clauses = []
    if plan.traffic.mirror_percent:
        clauses.append(
            f"if the gate promotes, the candidate gets copies of {plan.traffic.mirror_percent} % of the requests of "
            f"HTTPRoute {route} for {step_s}, the prompts of your users among them"
        )
    if plan.traffic.steps:
        shares = ", ".join(str(step) for step in plan.traffic.steps)
        duration = f"{step_s} each" if len(plan.traffic.steps) > 1 else f"for {step_s}"
        clauses.append(
            f"if the gate promotes, {shares} % of the traffic of HTTPRoute {route}, {duration}"
        )
    return "; ".join(clauses)


def describe_bake(plan: Plan) -> str:
    """Describe the bake of the promoted arm; empty without a bake."""
    if not plan.bake.seconds:
        return ""
    return f"after a promotion it is watched for {plan.bake.seconds:.0f} s and rolled back if it does not do well"


def describe_place(session: Session, plan: Plan) -> str:
    """Describe the place of the candidate, its effect on the service, and the start time of an engine."""
    side_by_side = plan.strategy is Strategy.SIDE_BY_SIDE
    if not session.platform.replaces_pods_itself:
        return (
            "side by side with the serving engine, no downtime"
            if side_by_side
            else "in place of the serving engine; the service is down while an engine starts"
        )
    if side_by_side:
        way = f"as a second service of one pod; a promotion replaces the pods one by one, {ROLLING}"
    elif plan.downtime:
        way = "in place of the serving pod, which stops first; the service is down while an engine starts"
    else:
        way = f"in place of the serving pods, each replaced by a ready one, {ROLLING}"
    return way + session.start_time()


def describe_rollback(session: Session, plan: Plan) -> str:
    """Describe the duration of a rollback after the promotion."""
    immediate = (
        "one write, the baseline is retained"
        if session.platform.replaces_pods_itself
        else "no time, the baseline is retained"
    )
    if plan.keep_baseline:
        return immediate
    cost = "as long as one engine start" + (
        " for each pod" if session.platform.replaces_pods_itself else ""
    )
    if plan.bake.seconds and (
        plan.bake.restarts_baseline
        or (not session.platform.replaces_pods_itself and plan.strategy is Strategy.SIDE_BY_SIDE)
    ):
        return f"{immediate} for a bake of {plan.bake.seconds:.0f} s; after that {cost}"
    return cost
