"""Which way a rollout goes, chosen from what fits and explained before it is confirmed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mpctl.errors import InputError, Refused
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Kind, Plan, Strategy

if TYPE_CHECKING:
    from mpctl.app.session.base import Session

AUTO = "auto"


def first_choice(options: dict[str, Any], unfinished: Operation | None) -> dict[str, Any]:
    """``options`` with a strategy: the one asked for, else that of the unfinished rollout, else side-by-side."""
    if options["strategy"] != AUTO:
        return options
    going = unfinished.plan if unfinished is not None and unfinished.plan.kind is Kind.ROLLOUT else None
    chosen = going.strategy if going is not None else Strategy.SIDE_BY_SIDE
    down = going.downtime if going is not None else options["accept_downtime"]
    return {**options, "strategy": chosen.value, "accept_downtime": down}


def with_traffic(plan: Plan, options: dict[str, Any]) -> Plan:
    """The plan with the steps of users' traffic that were asked for."""
    return replace(plan, traffic_steps=options["traffic_steps"] or (), step_duration_s=options["step_duration"])


def fitting(session: Session, plan: Plan, options: dict[str, Any]) -> tuple[Plan, tuple[str, ...]]:
    """The plan in a way that fits, with the route it needs, and notes on it.

    Raises:
        InputError: options contradict each other, or ask for what the platform cannot do.
        Refused: nothing fits; with the reason and the alternatives.
    """
    beside = plan.strategy is Strategy.SIDE_BY_SIDE
    plan = _with_route(session, plan, options)
    kept = session.platform.retained_baseline()
    notes: tuple[str, ...] = ()
    if kept is not None:
        plan = replace(plan, releases=True)
        notes = (f"{kept.arm}, kept since {kept.since}, ends first: its GPUs are needed",)
    keep = plan.keep_baseline and session.platform.rolls
    try:
        # Downtime is only taken where nothing else fits.
        downtime = plan.downtime and not beside
        notes += session.platform.check(plan.arm, side_by_side=beside, downtime=downtime, retain=keep)
    except Refused as refused:
        auto = options["strategy"] == AUTO and plan.downtime and session.platform.rolls
        if not auto or plan.route is not None:
            raise
        plan = replace(plan, strategy=Strategy.IN_PLACE)
        return plan, (
            f"{refused.message}; so it is changed in place",
            *session.platform.check(plan.arm, side_by_side=False, downtime=True),
        )
    return (replace(plan, downtime=False) if beside else plan), notes


def _with_route(session: Session, plan: Plan, options: dict[str, Any]) -> Plan:
    """The plan with the users' route, where it shares out traffic or keeps the old arm in a cluster."""
    field = "--traffic-steps" if plan.traffic_steps else "--keep-baseline"
    if not (plan.traffic_steps or (plan.keep_baseline and session.platform.rolls)):
        if options["route"] is not None:
            raise InputError("a route is only used by --traffic-steps and --keep-baseline", field="--route")
        return plan
    if session.platform.rolls and plan.strategy is not Strategy.SIDE_BY_SIDE:
        raise InputError(
            "there is one arm at a time in place, so nothing to share traffic with or to keep",
            field=field,
            hint="--strategy side-by-side",
        )
    route = session.platform.route(options["route"], plan.traffic_steps, force=options["force"])
    return replace(plan, route=route)


def describe_traffic(plan: Plan) -> str:
    """What users' traffic does before the promotion, as a clause that ends with a semicolon; empty without steps."""
    if not plan.traffic_steps or plan.route is None:
        return ""
    shares = ", ".join(str(step) for step in plan.traffic_steps)
    held = f"{plan.step_duration_s:.0f} s each" if len(plan.traffic_steps) > 1 else f"for {plan.step_duration_s:.0f} s"
    return f"if the gate agrees, {shares} % of the traffic of HTTPRoute {plan.route['name']}, {held}; "


def describe_place(session: Session, plan: Plan) -> str:
    """Where the candidate runs, what that means for the service, and how long an engine takes to start."""
    beside = plan.strategy is Strategy.SIDE_BY_SIDE
    if not session.platform.rolls:
        return (
            "beside the serving engine, no downtime"
            if beside
            else "in the place of the serving engine, which is down while the other starts"
        )
    if beside:
        place = "as a second InferenceService of one pod, no downtime; promoted, every pod is replaced by a ready one"
    elif plan.downtime:
        place = "in the place of the serving pod, which goes first: the service is down while an engine starts"
    else:
        place = "in the place of the serving pods, each going when a new one is ready, no downtime"
    return place + session.start_time()


def describe_back(session: Session, plan: Plan) -> str:
    """How long the way back takes."""
    if plan.keep_baseline:
        return "one write, the old engine is kept" if session.platform.rolls else "at once, the old engine is kept"
    return "as long as one engine start" + (" for each pod" if session.platform.rolls else "")
