"""The plan of a rollout: what the request asks for, fitted to the platform and to its users."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from mpctl.app.bench.recorded import finished_runs, rollouts_of
from mpctl.app.change import Change
from mpctl.app.files import read_policy
from mpctl.app.planned_workload import describe_workload
from mpctl.app.requests import RolloutRequest
from mpctl.app.session.base import Session
from mpctl.errors import InputError, NotPermitted, Refused
from mpctl.estimate import target_name_of
from mpctl.experiment.answer_sets import FULL, QUICK
from mpctl.experiment.counters import Counters
from mpctl.experiment.prompt_files import asks_for_more_than_a_text
from mpctl.experiment.run import Run
from mpctl.experiment.users import (
    Placement,
    UserLoad,
    answered,
    earlier_rate,
    oldest_start,
    user_load,
)
from mpctl.experiment.workload import Workload
from mpctl.gate.policy import Policy
from mpctl.json_types import Json
from mpctl.methods.preflight.known_bad import PREFIX
from mpctl.rollout.ledger import Entry
from mpctl.rollout.operation import Ending, Operation
from mpctl.rollout.placement import (
    PlacementWishes,
    Room,
    at_users_load,
    choose_placement,
    in_turns,
    share_of,
)
from mpctl.rollout.plan import BakePlan, Kind, Plan, Strategy, TrafficPlan, UsersPlan
from mpctl.rollout.ports import Arm, Demand
from mpctl.rollout.revision import Manifest
from mpctl.rollout.steps.measure import stored_workload, verdict_of
from mpctl.watch.sentinel import engine_of

AUTO = "auto"
_PARSERS = ("--tool-call-parser", "--reasoning-parser")
BAKE_S = 600.0  # long enough for a few thousand requests of a busy service
ROLLING = "as any rolling update"
_WINDOW_S = 5.0  # where the counters since the start tell users already
_START_S, _ANSWER_S = 60.0, 8.0  # of an engine and of an answer that nobody measured
_WARM_UPS = 1.25  # requests sent per timed one: warm-ups and probes are not recorded


@dataclass(frozen=True)
class Fit:
    """The part of a plan that depends on the service: at first what the request names, then what fits the cluster and
    its users."""

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
    placement_reason: str = ""  # why the arms are measured there, in sentences
    notes: tuple[str, ...] = ()  # on the capacity
    fidelity: str = QUICK  # the pass of answers before speed
    fidelity_reason: str = ""  # why the pass is full although the request names none
    earlier: int = 0  # measurements of the same pair that did not promote


class RolloutPlanner:
    """Plans one rollout of a change."""

    def __init__(
        self, session: Session, request: RolloutRequest, change: Change, load: str
    ) -> None:
        self._session, self._request, self._change, self._load = session, request, change, load
        self._arm = Arm(change.new_text)
        measurement = request.measurement
        self._policy = (
            read_policy(measurement.policy)
            if measurement.limits is None
            else Policy.from_record(measurement.limits)
        )
        if change.spec.config() is None:
            # Taking speculation away is judged by speed and output; there are no drafts to count.
            self._policy = Policy.from_record(
                {**self._policy.to_record(), "min_tokens_per_step": 0}
            )

    def plan(
        self,
        fit: Fit,
        prediction: Json | None = None,
        scaling: Json | None = None,
    ) -> Plan:
        """Pin everything that the rollout will do."""
        request, change = self._request, self._change
        traffic, service = request.traffic, change.before
        return Plan(
            kind=Kind.ROLLOUT,
            strategy=fit.strategy,
            baseline=Manifest.of(change.old_text),
            goal=Manifest.of(change.new_text),
            spec=change.spec,
            baseline_spec=change.old_spec,
            policy=self._policy,
            workload=f"workload-{fit.workload.digest()[:12]}",
            ready_timeout_s=self._session.ready_timeout_s(request.ready_timeout_s),
            keep_baseline=traffic.keep_baseline,
            why=f"rollout of {change.record}",
            draft=change.draft_name,
            target_model=target_name_of(service) or service.model or service.name,
            downtime=fit.downtime,
            scaling=scaling,
            load=self._load,
            route=fit.route,
            traffic=TrafficPlan(
                traffic.steps_percent, traffic.step_duration_s, traffic.mirror_percent
            ),
            deletes_retained_baseline=fit.deletes_retained_baseline,
            by=request.by,
            cause=request.cause,
            prediction=prediction,
            bake=BakePlan(fit.bake_s, fit.bake_baseline),
            users=UsersPlan(fit.placement, fit.users, fit.users_share_percent),
            fidelity=fit.fidelity,
            earlier=fit.earlier,
            engine=engine_of(service, change.target.engine, target_name_of(service)),
        )

    def fit_request(
        self, workload: Workload, unfinished: Operation | None, entries: Iterable[Entry]
    ) -> Fit:
        """Return what the request says. Where it leaves a choice to mpctl, the unfinished rollout has made it: the same
        command continues that."""
        begun = unfinished.plan if unfinished is not None else None
        risks = "" if self._request.fidelity else self._known_risks(workload)
        fidelity = self._request.fidelity or (FULL if risks else QUICK)
        if self._request.fidelity is None and begun is not None and begun.kind is Kind.ROLLOUT:
            fidelity = begun.fidelity
        fidelity_reason = (
            f"answers are compared in full (--fidelity full): {risks}" if risks else ""
        )
        fit = Fit(
            workload,
            Strategy.SIDE_BY_SIDE,
            self._request.accept_downtime,
            fidelity=fidelity,
            fidelity_reason=fidelity_reason,
            earlier=self._earlier(workload, entries),
        )
        if self._request.strategy != AUTO:
            fit = replace(fit, strategy=Strategy(self._request.strategy))
        elif begun is not None and begun.kind is Kind.ROLLOUT:
            fit = replace(fit, strategy=begun.strategy, downtime=begun.downtime)
        if (
            begun is None
            or begun.users.load is None
            or self._request.traffic.measure_on not in (AUTO, begun.users.placement)
        ):
            return fit
        workload = self._workload_beside_users(workload, begun.users.placement, begun.users.load)
        return replace(fit, placement=begun.users.placement, workload=workload)

    def _earlier(self, workload: Workload, entries: Iterable[Entry]) -> int:
        """Number of rollouts from the same manifest to the same one whose analyses of the same prompts could have
        decided and did not promote."""
        pair = (Manifest.of(self._change.old_text), Manifest.of(self._change.new_text))
        prompts = {kind.name: kind.digest() for kind in workload.traffic}

        def same_prompts(operation: Operation) -> bool:
            stored = stored_workload(self._session.store, operation)
            return (
                stored is None or {kind.name: kind.digest() for kind in stored.traffic} == prompts
            )

        def could_decide(operation: Operation) -> bool:
            rules = verdict.rules if (verdict := verdict_of(operation)) else ()
            return any(
                rule.rule == "time per token" and rule.interval and rule.interval.closed
                for rule in rules
            )

        candidates = [
            operation
            for operation in rollouts_of(self._session, entries)
            if (operation.plan.baseline, operation.plan.goal) == pair
            and operation.ending in (Ending.UNDECIDED, Ending.REJECTED)
        ]
        return sum(could_decide(operation) and same_prompts(operation) for operation in candidates)

    def _known_risks(self, workload: Workload) -> str:
        """Name what answers are known to break with: agents, hybrid models and combinations of the known-bad rows;
        empty without any."""
        change, facts = self._change, self._change.target.checkpoint.facts
        command = change.before.command
        parsers = [name for name in _PARSERS if command.get(name)]
        rows = [f.id for f in change.findings if f.id.startswith(PREFIX) and f.severity != "note"]
        risks = {
            "requests bring tools or several turns": any(
                asks_for_more_than_a_text(prompt)
                for kind in workload.traffic
                for prompt in kind.prompts
            ),
            "the model is a hybrid": facts is not None
            and facts.shape is not None
            and facts.shape.hybrid,
            f"the engine has {', '.join(parsers)}": parsers,
            f"the preflight found {', '.join(rows)}": rows,
        }
        return "; ".join(risk for risk, holds in risks.items() if holds)

    def fit_to_service(self, requested: Fit) -> Fit:
        """Ask the service for its users, and the platform for room beside it.

        Raises:
            InputError: options contradict each other, or ask for what the platform cannot do.
            Refused: nothing fits, or nothing can be measured beside the users; before anything was started.
        """
        wishes = self._wishes()
        users = read_users(self._session, self._request.traffic.users_window_s, wishes.placement)
        _require_limits(self._policy, users)
        try:
            fit = self.fit_platform(requested)
        except Refused as refused:
            if not users.seen or wishes.placement is Placement.SERVICE:
                raise
            raise Refused(
                f"{users.describe()}, and the baseline cannot be measured while they do; nothing runs beside it, "
                f"either: {refused.message}",
                hint="; ".join(
                    filter(
                        None,
                        (refused.hint, "take the service out of traffic before a change in place"),
                    )
                ),
            ) from refused
        choice = choose_placement(users, self._room(fit, users, wishes), wishes)
        placement = choice.placement
        workload = self._workload_beside_users(fit.workload, placement, users)
        return replace(
            fit,
            workload=workload,
            placement=placement,
            users=users,
            users_share_percent=choice.share if placement is Placement.SPLIT else 0,
            route=self._users_route(placement, users.pods)
            if placement.users_set_load
            else fit.route,
            placement_reason=choice.describe(),
        )

    def fit_platform(self, fit: Fit) -> Fit:
        """Choose a strategy that the platform has capacity for, the bake after it, and the retained baseline that ends
        first; read the HTTPRoute that the traffic needs.

        Raises:
            InputError: options contradict each other, or ask for what the platform cannot do.
            Refused: nothing fits; with the reason and the alternatives.
        """
        request, platform = self._request, self._session.platform
        side_by_side = fit.strategy is Strategy.SIDE_BY_SIDE
        bake_s = request.traffic.bake_s
        if bake_s is None:  # the watch observes the service anyway
            bake_s = (
                BAKE_S if platform.replaces_pods_itself and side_by_side and not request.by else 0.0
            )
        fit = replace(fit, route=self._traffic_route(fit.strategy, bake_s))
        retained = platform.retained_baseline()
        notes: tuple[str, ...] = ()
        if retained is not None:
            fit = replace(fit, deletes_retained_baseline=True)
            notes = (
                f"the baseline that is retained since {retained.since} ends first: its GPUs are needed",
            )
        # Downtime is only taken where nothing else fits.
        demand = Demand(
            self._arm,
            side_by_side=side_by_side,
            downtime=fit.downtime and not side_by_side,
            retain=request.traffic.keep_baseline and platform.replaces_pods_itself,
            load_job=self._load == "job",
        )
        try:
            notes += platform.check(demand)
        except Refused as refused:
            if (
                request.strategy != AUTO
                or not fit.downtime
                or not platform.replaces_pods_itself
                or fit.route is not None
            ):
                raise
            notes = platform.check(replace(demand, side_by_side=False, downtime=True, retain=False))
            notes = (f"{refused.message}; the service is changed in place", *notes)
            return replace(fit, strategy=Strategy.IN_PLACE, notes=notes)
        fit = replace(fit, downtime=demand.downtime, bake_s=bake_s, notes=notes)
        if (
            not (bake_s and platform.replaces_pods_itself and side_by_side)
            or request.traffic.keep_baseline
        ):
            return fit
        try:
            route = fit.route or platform.route(request.traffic.route, (), force=request.force)
            platform.check(Demand(self._arm, side_by_side=True, retain=True))
        except (InputError, NotPermitted, Refused) as error:
            return replace(
                fit,
                notes=(
                    *notes,
                    f"a rollback during the bake takes an engine start: {error.message}",
                ),
            )
        return replace(fit, route=route, bake_baseline=True)

    def with_current_route(self, fit: Fit) -> Fit:
        """The fit with its route as it is now: under the lease, after the user was asked."""
        if fit.route is None:
            return fit
        traffic, route = self._request.traffic, self._session.platform.route
        steps, mirror = traffic.steps_percent, traffic.mirror_percent
        return replace(
            fit, route=route(fit.route["name"], steps, mirror=mirror, force=self._request.force)
        )

    def _traffic_route(self, strategy: Strategy, bake_s: float) -> Json | None:
        """The users' HTTPRoute, where the rollout shifts traffic or retains the baseline in a cluster."""
        traffic, platform = self._request.traffic, self._session.platform
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
        force = self._request.force
        return platform.route(
            traffic.route, traffic.steps_percent, mirror=traffic.mirror_percent, force=force
        )

    def _users_route(self, placement: Placement, pods: int) -> Json:
        """The HTTPRoute that copies or splits users' requests while the arms are measured."""
        share, mirrors = share_of(placement, pods), placement is Placement.MIRROR
        return self._session.platform.route(
            self._request.traffic.route,
            () if mirrors else (share,),
            mirror=share if mirrors else 0,
            force=self._request.force,
        )

    def _route_fault(self, placement: Placement, pods: int) -> str:
        """The reason why no route copies or splits its requests; empty where one does."""
        try:
            self._users_route(placement, pods)
        except (InputError, NotPermitted, Refused) as error:
            return error.message
        return ""

    def _workload_beside_users(
        self, workload: Workload, placement: Placement, users: UserLoad
    ) -> Workload:
        """The workload of a placement: at the users' own load on a copy of the baseline, unless the request names
        one."""
        measurement = self._request.measurement
        if (
            placement.copies_baseline
            and not measurement.concurrency
            and not measurement.requests_per_s
        ):
            rounds = None if measurement.rounds is None else workload.repeats
            workload = at_users_load(workload, users, rounds=rounds)
        return in_turns(workload) if placement is Placement.TURNS else workload

    def _wishes(self) -> PlacementWishes:
        traffic = self._request.traffic
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
            self._policy.max_pod_gap,
            3600 * self._policy.max_baseline_age,
        )

    def _room(self, fit: Fit, users: UserLoad, wishes: PlacementWishes) -> Room:
        """Read what can run beside the service; nothing where none was asked for, no user was ever seen, and engines
        are young."""
        if wishes.placement in (None, Placement.SERVICE) and not (
            users.seen or users.earlier or wishes.age_note(users)
        ):
            return Room(engines=1)
        start_s = self._session.start_s() or _START_S
        quiet = self._workload_beside_users(fit.workload, Placement.PAIR, users)
        answer_s = users.answer_s or _ANSWER_S
        block_s = quiet.repeats * math.fsum(
            quiet.requests_of(cell)
            * (answer_s / cell.concurrency if cell.rate is None else 1 / cell.rate)
            for cell in quiet.cells
        )  # predicted, of all planned prompts to one arm
        if fit.strategy is Strategy.IN_PLACE:
            fault = "--strategy in-place runs no engine beside the service"
            return Room(0, fault=fault, start_s=start_s, block_s=block_s)
        engines, shortage = 2, ""
        try:
            self._session.platform.check(
                Demand(self._arm, side_by_side=True, pair=True, load_job=self._load == "job")
            )
        except Refused as refused:
            engines, shortage = 1, refused.message
        return Room(
            engines,
            shortage,
            mirror_fault=self._route_fault(Placement.MIRROR, users.pods),
            split_fault=self._route_fault(Placement.SPLIT, users.pods),
            start_s=start_s,
            block_s=block_s,
            pairs=in_turns(quiet).repeats,
        )


def read_users(session: Session, window_s: float, wanted: Placement | None) -> UserLoad:
    """Read the counters of every serving engine twice.

    Raises:
        Refused: an engine cannot be read, so its users would not be seen; not where a copy is asked for.
    """
    first = _counters(session, wanted)
    clock = session.clock
    now = clock.now().timestamp()
    earlier = earlier_rate(first, now, _sent(session, first))
    if earlier:
        window_s = min(window_s, _WINDOW_S)
    engines = "1 serving engine" if len(first) == 1 else f"{len(first)} serving engines"
    session.console.step("users", f"two readings of {engines}, {window_s:.0f} s apart")
    clock.sleep(window_s)
    load = user_load(first, _counters(session, wanted), window_s, earlier)
    return replace(load, age_s=now - (oldest_start(first) or now))


def _counters(session: Session, wanted: Placement | None) -> Mapping[str, Counters]:
    read = session.counters()
    if read.failed and (wanted is None or not wanted.copies_baseline):
        name, why = next(iter(read.failed.items()))
        raise Refused(
            f"{session.title}: users cannot be told, as the counters of {name} cannot be read: {why}",
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
    for operation, finished in finished_runs(session, without_rounds=True):
        if datetime.fromisoformat(operation.closed_at or operation.opened_at).timestamp() < started:
            break
        total += _recorded_requests(finished.run)
    return total


def _recorded_requests(run: Run) -> float:
    """Requests to one arm of a measurement: timed ones with their warm-ups, answers that were compared and scored, and
    the untimed ones before the rounds."""
    timed = max(
        (sum(len(b.samples) for b in run.blocks if b.arm == arm) for arm in run.arms), default=0
    )
    compared = run.answers.requests if run.answers else 0
    untimed = sum(
        max(burst.requests - compared, 0) for burst in run.bursts.values()
    )  # each counts the compared, too
    scored = sum(check.scored for check in (run.answers, run.round_answers) if check)
    return _WARM_UPS * timed + compared + untimed + scored


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
                f"{users.describe()}, and {name} of {value:g} would let their requests into the figures: equal engines "
                "look 1.13x to 1.23x faster",
                hint=f"leave {name} at {default:g}; mpctl chooses engines without users",
            )


def explain_rollout(session: Session, plan: Plan, workload: Workload) -> str:
    """Describe the steps of a rollout."""
    sent = " from a Job in the cluster" if plan.load == "job" else ""
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
        f"if the gate promotes, the candidate gets copies of {plan.traffic.mirror_percent} % of the requests of "
        f"HTTPRoute {plan.route['name']} for {plan.traffic.step_duration_s:.0f} s, the prompts of your users among "
        "them; "
        if plan.traffic.mirror_percent
        else ""
    )
    if not plan.traffic.steps:
        return copies
    shares = ", ".join(str(step) for step in plan.traffic.steps)
    duration = (
        f"{plan.traffic.step_duration_s:.0f} s each"
        if len(plan.traffic.steps) > 1
        else f"for {plan.traffic.step_duration_s:.0f} s"
    )
    return f"{copies}if the gate promotes, {shares} % of the traffic of HTTPRoute {plan.route['name']}, {duration}; "


def describe_bake(plan: Plan) -> str:
    """Describe the bake of the promoted arm, as a clause that ends with a semicolon; empty without a bake."""
    if not plan.bake.seconds:
        return ""
    return f"after a promotion it is watched for {plan.bake.seconds:.0f} s and rolled back if it does not do well; "


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
