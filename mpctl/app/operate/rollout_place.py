"""Where a rollout's arms run, and whether users are on the service: asked of the platform, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from mpctl.app.bench.recorded import rollouts_of
from mpctl.app.operate.rollout_known import AUTO, Known
from mpctl.app.requests import TrafficRequest
from mpctl.app.session.base import EngineCounters, Session
from mpctl.errors import InputError, NotPermitted, Refused
from mpctl.experiment.counters import Counters
from mpctl.experiment.users import (
    Placement,
    UserLoad,
    answered,
    below_users_load,
    earlier_rate,
    oldest_start,
    user_load,
)
from mpctl.experiment.workload import Workload
from mpctl.gate.policy import Policy
from mpctl.json_types import Json
from mpctl.rollout.measurement_records import most_sent
from mpctl.rollout.placement import (
    PlacementWishes,
    Room,
    at_users_load,
    choose_placement,
    in_turns,
    share_of,
)
from mpctl.rollout.plan import Strategy
from mpctl.rollout.ports import Arm, Demand, Fit

BAKE_S = 600.0  # long enough for a few thousand requests of a busy service
_UNUSED_BAKE_S = 120.0  # of a service that hardly anybody has used since its engines started
_WINDOW_S = 5.0  # where the counters since the start tell users already
_START_S = 60.0  # of an engine that nobody measured


@dataclass(frozen=True)
class Place:
    """The part of a plan that depends on the service: at first what the request names, then what the cluster has room
    for and its users leave."""

    workload: Workload
    strategy: Strategy
    downtime: bool  # the service may be down while an engine starts
    placement: Placement = Placement.SERVICE
    users: UserLoad | None = None  # before anything was started
    users_share_percent: int = 0
    route: Json | None = None
    deletes_retained_baseline: bool = False  # that of an earlier rollout ends first
    bake_s: float = 0.0
    bake_baseline: bool = False
    reason: str = ""  # why the arms are measured there, in sentences
    notes: tuple[str, ...] = ()  # on the capacity

    @property
    def load_gap(self) -> str:
        """The warning of a measurement far below the users' load; empty for another."""
        at_once = max(self.workload.concurrency, default=0)
        return below_users_load(self.users, self.placement, at_once)


@dataclass(frozen=True)
class UsersRoute:
    """The answer whether a route copies or splits users' requests: the route, or the fault that keeps it from it."""

    route: Json | None = None
    fault: str = ""


def requested_place(known: Known) -> Place:
    """The place that the request names. Where it leaves a choice to mpctl, the unfinished rollout has made it: the same
    command continues that."""
    request, begun = known.request, known.begun
    place = Place(known.workload, Strategy.SIDE_BY_SIDE, request.accept_downtime)
    if request.strategy != AUTO:
        strategy = Strategy(request.strategy)
        stops = request.accept_downtime and strategy is Strategy.IN_PLACE
        place = replace(place, strategy=strategy, downtime=stops)
    elif begun is not None:
        place = replace(place, strategy=begun.strategy, downtime=begun.downtime)
    if begun is None or begun.users.load is None:
        return place
    placement = begun.users.placement
    if request.traffic.measure_on not in (AUTO, placement):
        return place
    workload = _workload_beside_users(known, placement, begun.users.load)
    return replace(place, placement=placement, workload=workload)


def available_place(session: Session, known: Known, requested: Place) -> Place:
    """Ask the service for its users, and the platform for room beside it.

    Raises:
        InputError: options contradict each other, or ask for what the platform cannot do.
        Refused: nothing has room, or nothing can be measured beside the users; before anything was started.
    """
    wishes = _wishes(known.request.traffic, known.policy)
    users = read_users(session, known, wishes.placement)
    _require_limits(known.policy, users)
    place, capacity = place_on_platform(session, known, requested, users, wishes)
    routes: Mapping[Placement, UsersRoute] = {}
    room = Room(engines=1)
    if _asks_for_room(users, wishes):
        if place.strategy is not Strategy.IN_PLACE:
            mirror, split = (
                share_of(each, users.pods) for each in (Placement.MIRROR, Placement.SPLIT)
            )
            routes = {
                Placement.MIRROR: _read_route(session, known, (), mirror),
                Placement.SPLIT: _read_route(session, known, (split,)),
            }
        room = _room(session, known, place, users, routes, capacity)
    choice = choose_placement(users, room, wishes)
    placement = choice.placement
    chosen_route = routes[placement].route if placement.users_set_load else place.route
    return replace(
        place,
        workload=_workload_beside_users(known, placement, users),
        placement=placement,
        users=users,
        users_share_percent=choice.share if placement is Placement.SPLIT else 0,
        route=chosen_route,
        reason=choice.in_words,
    )


def place_on_platform(
    session: Session, known: Known, place: Place, users: UserLoad, wishes: PlacementWishes
) -> tuple[Place, Capacity]:
    """The place with the route that the traffic needs and what there is capacity for: the strategy, and a baseline that
    is kept for the bake; and the platform's answer.

    Raises:
        InputError: options contradict each other, or ask for what the platform cannot do.
        Refused: nothing has room; with the reason and the alternatives.
    """
    request, platform = known.request, session.platform
    bake_s = request.traffic.bake_s
    if bake_s is None:
        # A watch that rolls out observes the service anyway.
        bakes = platform.replaces_pods_itself and not request.by
        usual_s = BAKE_S if users.seen or users.earlier else _UNUSED_BAKE_S
        bake_s = usual_s if bakes and place.strategy is Strategy.SIDE_BY_SIDE else 0.0
    place = replace(place, route=_traffic_route(session, known, place.strategy, bake_s))
    if (retained := platform.retained_baseline()) is not None:
        note = (
            f"the baseline that is retained since {retained.since} ends first: its GPUs are needed"
        )
        place = replace(place, deletes_retained_baseline=True, notes=(note,))
    capacity = _read_capacity(session, known, place, bake_s, _asks_for_room(users, wishes))
    named, in_place = capacity.named, capacity.in_place
    if not named.fault:
        # Downtime is only taken where nothing else has room.
        downtime = place.downtime and place.strategy is Strategy.IN_PLACE
        notes = (*place.notes, *named.notes)
        place = replace(place, downtime=downtime, bake_s=bake_s, notes=notes)
        return _with_bake_baseline(session, known, place, capacity.baseline), capacity
    if in_place is not None and not in_place.fault:
        notes = (
            *place.notes,
            f"{named.fault}; the service is changed in place",
            *in_place.notes,
        )
        bake_s = request.traffic.bake_s or 0.0
        place = replace(place, strategy=Strategy.IN_PLACE, bake_s=bake_s, notes=notes)
        return place, capacity
    refused = in_place or named
    if not users.seen or wishes.placement is Placement.SERVICE:
        refused.require()
    advice = "take the service out of traffic before a change in place"
    raise Refused(
        f"{users.in_words}, and the baseline cannot be measured while they do; nothing runs beside it, "
        f"either: {refused.fault}",
        hint="; ".join(filter(None, (refused.hint, advice))),
    )


@dataclass(frozen=True)
class Capacity:
    """The platform's answer to all that a rollout may need room for. ``named``: what the request names. None where it
    was not asked: ``in_place``, a change that may stop the service; ``baseline``, one that is kept while the promoted
    arm is watched; ``pair``, a copy of the baseline next to the candidate."""

    named: Fit
    in_place: Fit | None
    baseline: Fit | None
    pair: Fit | None


def _read_capacity(
    session: Session, known: Known, place: Place, bake_s: float, asks_for_room: bool
) -> Capacity:
    """Ask once for all that the choice may come to."""
    request, cluster = known.request, session.platform.replaces_pods_itself
    beside, keeps = place.strategy is Strategy.SIDE_BY_SIDE, request.traffic.keep_baseline
    arm, load_job = Arm(known.change.new_text), known.load_place == "job"
    named = Demand(
        arm,
        side_by_side=beside,
        downtime=place.downtime and not beside,
        retain=keeps and cluster,
        load_job=load_job,
    )
    may_stop = request.strategy == AUTO and place.downtime and cluster and place.route is None
    others = (
        replace(named, side_by_side=False, downtime=True, retain=False) if may_stop else None,
        Demand(arm, side_by_side=True, retain=True)
        if bake_s and cluster and beside and not keeps
        else None,
        Demand(arm, side_by_side=True, pair=True, load_job=load_job)
        if asks_for_room and beside
        else None,
    )
    answers = iter(session.platform.fits(named, *filter(None, others)))
    return Capacity(
        next(answers), *(None if demand is None else next(answers) for demand in others)
    )


def _with_bake_baseline(session: Session, known: Known, place: Place, fit: Fit | None) -> Place:
    """With a baseline that runs during the bake, where a route can send the users back to it and it has room."""
    if fit is None:
        return place
    route = _read_route(session, known, ()) if place.route is None else UsersRoute(place.route)
    if fault := route.fault or fit.fault:
        note = f"a rollback during the bake takes an engine start: {fault}"
        return replace(place, notes=(*place.notes, note))
    return replace(place, route=route.route, bake_baseline=True)


def _traffic_route(
    session: Session, known: Known, strategy: Strategy, bake_s: float
) -> Json | None:
    """The users' HTTPRoute, where the rollout shifts traffic or retains the baseline in a cluster."""
    traffic, platform = known.request.traffic, session.platform
    moves = traffic.steps_percent or traffic.mirror_percent
    if not moves and not (traffic.keep_baseline and platform.replaces_pods_itself):
        if traffic.route is not None and not bake_s:
            raise InputError(
                "a route is only used by --mirror, --traffic-steps, --keep-baseline and --bake",
                field="MPCTL_ROUTE",
            )
        return None
    if platform.replaces_pods_itself and strategy is not Strategy.SIDE_BY_SIDE:
        steps = "--traffic-steps" if traffic.steps_percent else "--keep-baseline"
        raise InputError(
            "in place there is one arm at a time: nothing to shift traffic to or to retain",
            field="--mirror" if traffic.mirror_percent else steps,
            hint="--strategy side-by-side",
        )
    return current_traffic_route(session, known, traffic.route)


def current_traffic_route(session: Session, known: Known, name: str | None) -> Json:
    """The HTTPRoute of this name, or the only one, as it is now and able to carry what the request asks for.

    Raises:
        InputError: several routes, or none of that name.
        Refused: it cannot carry a step or the mirrored requests.
    """
    traffic = known.request.traffic
    return session.platform.route(
        name, traffic.steps_percent, mirror=traffic.mirror_percent, force=known.request.force
    )


def _read_route(
    session: Session, known: Known, steps: tuple[int, ...], mirror: int = 0
) -> UsersRoute:
    """Read the HTTPRoute, and whether it can carry what is asked of it."""
    name, force = known.request.traffic.route, known.request.force
    try:
        return UsersRoute(session.platform.route(name, steps, mirror=mirror, force=force))
    except (InputError, NotPermitted, Refused) as error:
        return UsersRoute(fault=error.message)


def _workload_beside_users(known: Known, placement: Placement, users: UserLoad) -> Workload:
    """The workload of a placement: at the users' own load on a copy of the baseline, unless the request names one."""
    measurement, workload = known.request.measurement, known.workload
    names_load = measurement.concurrency or measurement.requests_per_s
    if placement.copies_baseline and not names_load:
        rounds = None if measurement.rounds is None else workload.repeats
        workload = at_users_load(workload, users, rounds=rounds)
    return in_turns(workload) if placement is Placement.TURNS else workload


def _wishes(traffic: TrafficRequest, policy: Policy) -> PlacementWishes:
    placement = None if traffic.measure_on == AUTO else Placement(traffic.measure_on)
    if traffic.users_share_percent is not None and placement not in (None, Placement.SPLIT):
        raise InputError(
            f"cannot be combined with --measure-on {placement}, which gives the candidate no request of a user",
            field="--users-share",
            hint="--measure-on split, or leave it out",
        )
    return PlacementWishes(
        placement,
        traffic.users_share_percent,
        traffic.mirror_percent,
        traffic.measure_limit_s,
        policy.max_pod_gap,
        3600 * policy.max_baseline_age,
    )


def _asks_for_room(users: UserLoad, wishes: PlacementWishes) -> bool:
    """Whether the arms may run elsewhere than on the service: where that was asked for, or a user was ever seen, or
    engines are old."""
    elsewhere = wishes.placement not in (None, Placement.SERVICE)
    return elsewhere or users.seen or users.earlier or users.age_s > wishes.max_age_s


def _room(
    session: Session,
    known: Known,
    place: Place,
    users: UserLoad,
    routes: Mapping[Placement, UsersRoute],
    capacity: Capacity,
) -> Room:
    """What can run beside the service."""
    start_s = session.start_s() or _START_S
    quiet = _workload_beside_users(known, Placement.PAIR, users)
    block_s = quiet.arm_s(users.answer_s)
    if place.strategy is Strategy.IN_PLACE:
        fault = "--strategy in-place runs no engine beside the service"
        return Room(0, fault=fault, start_s=start_s, block_s=block_s)
    shortage = "" if capacity.pair is None else capacity.pair.fault
    return Room(
        1 if shortage else 2,
        shortage,
        mirror_fault=routes[Placement.MIRROR].fault,
        split_fault=routes[Placement.SPLIT].fault,
        start_s=start_s,
        block_s=block_s,
        pairs=in_turns(quiet).repeats,
    )


def read_users(session: Session, known: Known, wanted: Placement | None) -> UserLoad:
    """Read the counters of every serving engine a second time, when the window has passed since the first.

    Raises:
        Refused: an engine cannot be read, so its users would not be seen; not where a copy is asked for.
    """
    window_s, read_at = known.request.traffic.users_window_s, known.read_at
    first = _engines(session, known.first_reading, wanted)
    earlier = earlier_rate(first, read_at, _sent(session, first))
    if earlier:
        window_s = min(window_s, _WINDOW_S)
    passed_s = session.clock.now().timestamp() - read_at
    window_s = max(window_s, passed_s)
    session.console.step(
        "users", f"serving engines: {len(first)}, read twice, {window_s:.0f} s apart"
    )
    session.clock.sleep(window_s - passed_s)
    second = _engines(session, session.counters(), wanted)
    load = user_load(first, second, window_s, earlier)
    return replace(load, age_s=read_at - (oldest_start(first) or read_at))


def _engines(
    session: Session, read: EngineCounters, wanted: Placement | None
) -> Mapping[str, Counters]:
    if read.failed and (wanted is None or not wanted.copies_baseline):
        name, why = next(iter(read.failed.items()))
        raise Refused(
            f"{session.title}: it cannot be seen whether users are on the service, as the counters of {name} cannot be "
            f"read: {why}",
            hint="--measure-on pair measures a copy of the baseline, whoever is on the service",
        )
    return read.engines


def _sent(session: Session, engines: Mapping[str, Counters]) -> float:
    """Requests that mpctl sent to the engines since the first of them started, as far as they are recorded. An
    operation counts if it ended after that: a promoted candidate started in the middle of its own rollout."""
    started = oldest_start(engines)
    if started is None or not answered(engines):
        return 0.0
    total = 0.0
    for operation in reversed(rollouts_of(session)):
        if datetime.fromisoformat(operation.closed_at or operation.opened_at).timestamp() < started:
            break
        total += most_sent(session.store, operation.id)
    return total


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
        if value > default:
            raise Refused(
                f"{users.in_words}, and {name} of {value:g} would let their requests into the figures: equal engines "
                "look 1.13x to 1.23x faster",
                hint=f"leave {name} at {default:g}; mpctl chooses engines without users",
            )
