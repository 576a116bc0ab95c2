"""A plan in words, for the user who is asked to confirm it."""

from __future__ import annotations

from mpctl.app.session.base import Session
from mpctl.app.workload import describe_workload
from mpctl.experiment.workload import Workload
from mpctl.rollout.plan import Plan, Strategy

_ROLLING = "as any rolling update"


def explain_rollout(session: Session, plan: Plan, workload: Workload) -> str:
    """Describe the steps of a rollout."""
    pods = f" of {plan.load_pods} pods" if plan.load_pods > 1 else ""
    sent = f" from a Job{pods} in the cluster" if plan.load == "job" else ""
    return (
        f"{session.title}: {plan.baseline_text} -> {plan.spec_text}, {describe_place(session, plan)}; "
        f"{describe_workload(workload)} to each arm{sent}; {describe_traffic(plan)}{describe_bake(plan)}"
        f"an engine may take at most {plan.ready_timeout_s:.0f} s to become ready; "
        f"a rollback takes {describe_rollback(session, plan)}"
    )


def describe_traffic(plan: Plan) -> str:
    """The mirror and traffic steps before the promotion, as clauses that end with a semicolon; empty without them."""
    if plan.route is None:
        return ""
    copies = (
        f"if the gate promotes, the candidate gets copies of {plan.mirror_percent} % of the requests of HTTPRoute "
        f"{plan.route['name']} for {plan.step_duration_s:.0f} s, the prompts of your users among them; "
        if plan.mirror_percent
        else ""
    )
    if not plan.traffic_steps:
        return copies
    shares = ", ".join(str(step) for step in plan.traffic_steps)
    held = f"{plan.step_duration_s:.0f} s each" if len(plan.traffic_steps) > 1 else f"for {plan.step_duration_s:.0f} s"
    return f"{copies}if the gate promotes, {shares} % of the traffic of HTTPRoute {plan.route['name']}, {held}; "


def describe_bake(plan: Plan) -> str:
    """Describe the bake of the promoted arm, as a clause that ends with a semicolon; empty without a bake."""
    if not plan.bake_s:
        return ""
    return f"after a promotion it is watched for {plan.bake_s:.0f} s and rolled back if it does not do well; "


def describe_place(session: Session, plan: Plan) -> str:
    """Describe the place of the candidate, its effect on the service, and the start time of an engine."""
    side_by_side = plan.strategy is Strategy.SIDE_BY_SIDE
    if not session.platform.rolls:
        return (
            "side by side with the serving engine, no downtime"
            if side_by_side
            else "in place of the serving engine; the service is down while an engine starts"
        )
    if side_by_side:
        place = f"as a second service of one pod; a promotion replaces the pods one by one, {_ROLLING}"
    elif plan.downtime:
        place = "in place of the serving pod, which stops first; the service is down while an engine starts"
    else:
        place = f"in place of the serving pods, each replaced by a ready one, {_ROLLING}"
    return place + session.start_time()


def describe_rollback(session: Session, plan: Plan) -> str:
    """Describe the duration of a rollback after the promotion."""
    immediate = "one write, the baseline is retained" if session.platform.rolls else "no time, the baseline is retained"
    if plan.keep_baseline:
        return immediate
    cost = "as long as one engine start" + (" for each pod" if session.platform.rolls else "")
    if plan.bake_s and (plan.bake_baseline or (not session.platform.rolls and plan.strategy is Strategy.SIDE_BY_SIDE)):
        return f"{immediate} for a bake of {plan.bake_s:.0f} s; after that {cost}"
    return cost


def explain_rollback(session: Session, plan: Plan) -> str:
    """Describe the steps of a rollback."""
    down = "the service is down while the other engine starts"
    if plan.strategy is Strategy.SIDE_BY_SIDE:
        down = "no downtime"
    if session.platform.rolls:
        down = "the old pod stops before the new one starts" if plan.downtime else f"a new pod first, {_ROLLING}"
        down += session.start_time() + f", at most {plan.ready_timeout_s:.0f} s for each to become ready"
    if plan.instant and plan.route is not None:
        moved = f"one write gives the retained baseline all traffic of HTTPRoute {plan.route['name']}"
        down = f"{moved}, then the service is restored: {down}"
    if plan.keeps:
        down += f"; kept as others changed it: {', '.join(plan.keeps)}"
    if plan.overwrites:
        down += "; the live manifest was changed by another writer and is recorded as a revision first"
    return f"{session.title}: back to {plan.spec_text} ({plan.why}); {down}"
