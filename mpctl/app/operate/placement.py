"""Tell users before anything starts, and choose the engines that are measured beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from mpctl import commands
from mpctl.app.bench.recorded import measured_by, rollouts_of
from mpctl.app.operate.rollout_plan import fit_plan, load_pods, record_of
from mpctl.app.requests import RolloutRequest
from mpctl.app.session.base import Session
from mpctl.errors import InputError, MpctlError, NotPermitted, Refused
from mpctl.experiment.counters import Counters
from mpctl.experiment.users import Placement, UserLoad, answered, earlier_rate, user_load
from mpctl.experiment.workload import Workload
from mpctl.gate.policy import Policy
from mpctl.rollout.placement import Asked, Choice, Room, at_users_load, choose_placement, in_turns, share_of
from mpctl.rollout.plan import Plan, Strategy

_AUTO = "auto"
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
    choice = choose_placement(users, _room(session, plan, request, users, workload, asked), asked)
    workload = _placed_workload(workload, choice.placement, users, request)
    plan = replace(plan, placement=choice.placement, users=users, workload=record_of(workload))
    if choice.placement is Placement.SPLIT:
        plan = replace(plan, users_share_percent=choice.share)
    if choice.placement.users_set_load:
        plan = replace(plan, route=_route(session, request, choice.placement, users.pods))
    return plan, workload, choice, notes


def as_placed(
    plan: Plan, workload: Workload, request: RolloutRequest, unfinished: Plan | None
) -> tuple[Plan, Workload]:
    """The plan and its workload as the unfinished rollout placed them, where the request leaves that to mpctl: the same
    command continues it."""
    if (
        unfinished is None
        or unfinished.users is None
        or request.traffic.measure_on not in (_AUTO, unfinished.placement)
    ):
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
    placement = None if traffic.measure_on == _AUTO else Placement(traffic.measure_on)
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


def _room(
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
        _route(session, request, placement, pods)
    except (InputError, NotPermitted, Refused) as error:
        return error.message
    return ""


def _route(session: Session, request: RolloutRequest, placement: Placement, pods: int) -> dict[str, object]:
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
