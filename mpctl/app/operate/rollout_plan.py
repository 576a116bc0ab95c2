"""The plan of a rollout: what the request asks for, fitted to the platform and to its users."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from mpctl import commands
from mpctl.app.bench.recorded import measured_by, rollouts_of
from mpctl.app.change import Change
from mpctl.app.files import read_policy
from mpctl.app.requests import MeasurementRequest, RolloutRequest
from mpctl.app.session.base import LoadPlace, Session
from mpctl.app.workload import describe_workload
from mpctl.errors import InputError, MpctlError, NotPermitted, Refused
from mpctl.estimate import target_name_of
from mpctl.experiment.counters import Counters
from mpctl.experiment.users import Placement, UserLoad, answered, earlier_rate, user_load
from mpctl.experiment.workload import Workload
from mpctl.gate.policy import Policy
from mpctl.rollout.operation import Operation
from mpctl.rollout.placement import Asked, Choice, Room, at_users_load, choose_placement, in_turns, share_of
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


_WINDOW_S = 5.0  # where the counters since the start tell users already
_START_S, _ANSWER_S = 60.0, 8.0  # of an engine and of an answer that nobody measured
_WARM_UPS = 1.25  # requests sent per recorded one: warm-ups and probes are not recorded


def place_plan(
    session: Session, plan: Plan, request: RolloutRequest, workload: Workload
) -> tuple[Plan, Workload, Choice, tuple[str, ...]]:
    """Return the plan with its strategy, route and placement, its workload, the choice, and notes on the capacity.

    Raises:
        InputError: options contradict each other.
        Refused: nothing fits, or nothing can be measured beside the users; before anything was started.
    """
    asked = _asked(request)
    users = read_users(session, request.traffic.users_window_s, asked.placement)
    _require_limits(plan.policy, users)
    asked = replace(asked, max_pod_gap=plan.policy.max_pod_gap)
    try:
        plan, notes = fit_plan(session, plan, request)
    except Refused as refused:
        if not users.seen or asked.placement is Placement.SERVICE:
            raise
        raise Refused(
            f"{users.describe()}, and the baseline cannot be measured while they do; nothing runs beside it, either: "
            f"{refused.message}",
            hint=f"take the service out of traffic, or add a GPU: '{commands.line('capacity', 'CLUSTER')}' shows them",
        ) from refused
    choice = choose_placement(users, _room_beside(session, plan, request, users, workload, asked), asked)
    workload = _placed_workload(workload, choice.placement, users, request)
    plan = replace(plan, placement=choice.placement, users=users, workload=record_of(workload))
    if choice.placement is Placement.SPLIT:
        plan = replace(plan, users_share_percent=choice.share)
    if choice.placement.users_set_load:
        plan = replace(plan, route=_route_of_users(session, request, choice.placement, users.pods))
    return plan, workload, choice, notes


def as_placed(
    plan: Plan, workload: Workload, request: RolloutRequest, unfinished: Plan | None
) -> tuple[Plan, Workload]:
    """The plan and its workload as the unfinished rollout placed them, where the request leaves that to mpctl: the same
    command continues it."""
    if unfinished is None or unfinished.users is None or request.traffic.measure_on not in (AUTO, unfinished.placement):
        return plan, workload
    workload = _placed_workload(workload, unfinished.placement, unfinished.users, request)
    return replace(plan, placement=unfinished.placement, workload=record_of(workload)), workload


def _placed_workload(workload: Workload, placement: Placement, users: UserLoad, request: RolloutRequest) -> Workload:
    """The workload of a placement: at the users' own load on a copy of the baseline, unless the request names one."""
    measurement = request.measurement
    if placement.copies_baseline and not measurement.concurrency and not measurement.requests_per_s:
        rounds = None if measurement.rounds is None and measurement.detect is None else workload.repeats
        workload = at_users_load(workload, users, rounds=rounds)
    return in_turns(workload) if placement is Placement.TURNS else workload


def _asked(request: RolloutRequest) -> Asked:
    traffic = request.traffic
    placement = None if traffic.measure_on == AUTO else Placement(traffic.measure_on)
    if traffic.users_share_percent is not None and placement not in (None, Placement.SPLIT):
        raise InputError(
            f"cannot be combined with --measure-on {placement}, which gives the candidate no request of a user",
            field="--users-share",
            hint="--measure-on split, or leave it out",
        )
    return Asked(placement, traffic.users_share_percent, traffic.mirror_percent, traffic.measure_limit_s)


def read_users(session: Session, window_s: float, asked: Placement | None) -> UserLoad:
    """Read the counters of every serving engine twice.

    Raises:
        Refused: an engine cannot be read, so its users would not be seen; not where a copy is asked for.
    """
    first = _counters(session, asked)
    clock = session.clock
    earlier = earlier_rate(first, clock.now().timestamp(), _sent(session, first))
    if earlier:
        window_s = min(window_s, _WINDOW_S)
    session.console.step("users", f"two readings of {len(first)} serving engines, {window_s:.0f} s apart")
    clock.sleep(window_s)
    return user_load(first, _counters(session, asked), window_s, earlier)


def _counters(session: Session, asked: Placement | None) -> Mapping[str, Counters]:
    read = session.counters()
    if read.failed and (asked is None or not asked.copies_baseline):
        name, why = next(iter(read.failed.items()))
        raise Refused(
            f"{session.title}: users cannot be told, as the counters of {name} cannot be read: {why}",
            hint="--measure-on pair measures a copy of the baseline, whoever is on the service",
        )
    return read.engines


def _sent(session: Session, engines: Mapping[str, Counters]) -> float:
    """Requests that mpctl sent to the engines since the first of them started, as far as they are recorded."""
    started = min((c.started for c in engines.values() if c.started is not None), default=None)
    if started is None or not answered(engines):
        return 0.0
    total = 0
    for operation in rollouts_of(session):
        if datetime.fromisoformat(operation.opened_at).timestamp() < started:
            continue
        try:
            source = measured_by(session, operation)
        except MpctlError:
            continue
        if source is not None:
            total += max(sum(len(b.samples) for b in source.run.blocks if b.arm == arm) for arm in source.run.arms)
    return _WARM_UPS * total


def _require_limits(policy: Policy, users: UserLoad) -> None:
    """Refuse limits that let users' requests into the figures.

    Raises:
        Refused: the message names the limit.
    """
    if not users.seen:
        return
    for name in ("max_token_gap", "max_cache_gap"):
        default, _ = Policy.terms()[name]
        value = getattr(policy, name)
        if default is not None and value > default:
            raise Refused(
                f"{users.describe()}, and {name} of {value:g} would let their requests into the figures: equal engines "
                "look 1.13x to 1.23x faster",
                hint=f"leave {name} at {default:g}; mpctl chooses engines without users",
            )


def _room_beside(
    session: Session, plan: Plan, request: RolloutRequest, users: UserLoad, workload: Workload, asked: Asked
) -> Room:
    """Read what can run beside the service; nothing where no user was ever seen and none was asked for."""
    if asked.placement in (None, Placement.SERVICE) and not users.seen and not users.earlier:
        return Room(engines=1)
    start_s = session.start_s() or _START_S
    quiet = _placed_workload(workload, Placement.PAIR, users, request)
    block_s = _block_s(quiet, users.answer_s or _ANSWER_S)
    if plan.strategy is Strategy.IN_PLACE:
        return Room(0, fault="--strategy in-place runs no engine beside the service", start_s=start_s, block_s=block_s)
    engines, shortage = 2, ""
    try:
        session.platform.check(plan.arm, side_by_side=True, pair=True, load_pods=load_pods(plan))
    except Refused as refused:
        engines, shortage = 1, refused.message
    return Room(
        engines,
        shortage,
        mirror_fault=_route_fault(session, request, Placement.MIRROR, users.pods),
        split_fault=_route_fault(session, request, Placement.SPLIT, users.pods),
        start_s=start_s,
        block_s=block_s,
        pairs=in_turns(quiet).repeats,
    )


def _route_fault(session: Session, request: RolloutRequest, placement: Placement, pods: int) -> str:
    try:
        _route_of_users(session, request, placement, pods)
    except (InputError, NotPermitted, Refused) as error:
        return error.message
    return ""


def _route_of_users(session: Session, request: RolloutRequest, placement: Placement, pods: int) -> dict[str, object]:
    share = share_of(placement, pods)
    mirrors = placement is Placement.MIRROR
    steps = () if mirrors else (share,)
    return session.platform.route(request.traffic.route, steps, mirror=share if mirrors else 0, force=request.force)


def _block_s(workload: Workload, answer_s: float) -> float:
    """Predicted time of all planned prompts to one arm."""
    return workload.repeats * math.fsum(
        workload.requests_of(cell) * (answer_s / cell.concurrency if cell.rate is None else 1 / cell.rate)
        for cell in workload.cells
    )


ROLLING = "as any rolling update"


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
        place = f"as a second service of one pod; a promotion replaces the pods one by one, {ROLLING}"
    elif plan.downtime:
        place = "in place of the serving pod, which stops first; the service is down while an engine starts"
    else:
        place = f"in place of the serving pods, each replaced by a ready one, {ROLLING}"
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
