"""What the decisions of a rollout rest on, read once: the request with its choices made, the change, the ledger."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from mpctl import annex, formatting
from mpctl.app.bench.recorded import rollouts_of
from mpctl.app.change import Change, prepare
from mpctl.app.change.check import Load
from mpctl.app.files import read_policy
from mpctl.app.planned_workload import read_workload_with_notes
from mpctl.app.requests import RolloutRequest
from mpctl.app.session.base import EngineCounters, Session, choose_load_place
from mpctl.errors import Conflict
from mpctl.experiment.answer_sets import FULL, QUICK
from mpctl.experiment.prompt_files import CONVERSATIONS, asks_for_more_than_a_text
from mpctl.experiment.workload import Workload
from mpctl.gate.policy import Policy
from mpctl.methods import METHODS
from mpctl.methods.preflight.known_bad import PREFIX
from mpctl.rollout.ledger import Entry
from mpctl.rollout.operation import Ending, Operation, unfinished_operation
from mpctl.rollout.plan import Kind, Plan
from mpctl.rollout.ports import Arm
from mpctl.rollout.revision import Manifest
from mpctl.rollout.steps.measure import measured_engine, stored_workload, verdict_of

AUTO = "auto"
_MANY_HITS = 0.2  # of the users' prompt tokens, from the prefix cache
_PARSERS = ("--tool-call-parser", "--reasoning-parser")


@dataclass(frozen=True)
class Known:
    """A rollout before the platform's capacity is asked, and its users are told by a second reading of the engines."""

    request: RolloutRequest
    change: Change
    measured_load: Load  # for which the change was checked
    workload: Workload
    policy: Policy
    first_reading: EngineCounters  # before the checks, whose time counts
    read_at: float  # Unix time of that
    load_place: str  # where the load client runs: job or local
    risks: str = ""  # for answers, where the request names no pass of them
    earlier: int = 0  # measurements of the same pair that did not promote
    unfinished: Operation | None = None

    @property
    def fidelity(self) -> str:
        """The pass of answers before speed: as named, else of the unfinished rollout, else as the risks need it."""
        if self.request.fidelity:
            return self.request.fidelity
        return self.begun.fidelity if self.begun else FULL if self.risks else QUICK

    @property
    def fidelity_reason(self) -> str:
        """Why the pass is full although the request names none; empty otherwise."""
        full = self.risks and self.fidelity == FULL
        return f"answers are compared in full (--fidelity full): {self.risks}" if full else ""

    @property
    def begun(self) -> Plan | None:
        """The plan of an unfinished rollout, which has made the choices that the request leaves open."""
        plan = None if self.unfinished is None else self.unfinished.plan
        return plan if plan is not None and plan.kind is Kind.ROLLOUT else None


def read_known(session: Session, request: RolloutRequest) -> Known:
    """Read the ledger, the engines' counters and the files of the request, and prepare the change.

    Raises:
        InputError: the request cannot be used.
        Conflict: a rollout is unfinished, and the request asks for a method to be chosen.
        Refused: no method is predicted to gain, where one is to be chosen.
    """
    entries = session.store.entries()
    unfinished = unfinished_operation(entries)
    read_at = session.clock.now().timestamp()
    first_reading = session.counters()
    request = with_users_prompts(session, request, unfinished, first_reading)
    workload = read_workload_with_notes(
        session.console, request.measurement, request.speculation.accepted
    )
    if request.speculation.method == AUTO:
        request = _with_best_method(session, request, workload, unfinished)
    measured_load = Load(workload.most, max(workload.temperatures))
    change = prepare(session, request.speculation, measured_load)
    load_place = choose_load_place(
        request.measurement.load, session.platform.name, unfinished=unfinished
    )
    if request.measurement.asks_for_variants:
        workload = _with_variants(session, request, workload, unfinished)
    risks = "" if request.fidelity else known_risks(change, workload)
    return Known(
        request,
        change,
        measured_load,
        workload,
        _policy(request, change),
        first_reading,
        read_at,
        load_place,
        risks,
        earlier=_earlier(session, change, workload, entries),
        unfinished=unfinished,
    )


def _policy(request: RolloutRequest, change: Change) -> Policy:
    measurement = request.measurement
    policy = (
        read_policy(measurement.policy)
        if measurement.limits is None
        else Policy.from_record(measurement.limits)
    )
    if change.spec.config() is not None:
        return policy
    # Taking speculation away is judged by speed and output; there are no drafts to count.
    return Policy.from_record({**policy.to_record(), "min_tokens_per_step": 0})


def _earlier(session: Session, change: Change, workload: Workload, entries: Iterable[Entry]) -> int:
    """Number of rollouts from the same manifest to the same one whose analyses of the same prompts could have
    decided and did not promote."""
    pair = (Manifest.of(change.old_text), Manifest.of(change.new_text))

    def same_prompts(operation: Operation) -> bool:
        stored = stored_workload(session.store, operation)
        return stored is None or stored.digests == workload.digests

    def could_decide(operation: Operation) -> bool:
        rules = verdict.rules if (verdict := verdict_of(operation)) else ()
        return any(
            rule.rule == "time per token" and rule.interval and rule.interval.closed
            for rule in rules
        )

    candidates = [
        operation
        for operation in rollouts_of(session, entries)
        if (operation.plan.baseline, operation.plan.goal) == pair
        and operation.ending in (Ending.UNDECIDED, Ending.REJECTED)
    ]
    return sum(could_decide(operation) and same_prompts(operation) for operation in candidates)


def known_risks(change: Change, workload: Workload) -> str:
    """Name what answers are known to break with: agents, hybrid models and combinations of the known-bad rows;
    empty without any."""
    facts = change.target.checkpoint.facts
    command = change.before.whole_command
    parsers = [name for name in _PARSERS if command.get(name)]
    rows = [f.id for f in change.findings if f.id.startswith(PREFIX) and f.severity != "note"]
    risks = {
        "requests bring tools or several turns": any(
            map(asks_for_more_than_a_text, workload.prompts)
        ),
        "the model is a hybrid": facts is not None
        and facts.shape is not None
        and facts.shape.hybrid,
        f"the engine has {', '.join(parsers)}": parsers,
        f"the preflight found {', '.join(rows)}": rows,
    }
    return "; ".join(risk for risk, holds in risks.items() if holds)


def with_users_prompts(
    session: Session,
    request: RolloutRequest,
    unfinished: Operation | None,
    reading: EngineCounters,
) -> RolloutRequest:
    """The request with conversations where it names no prompts, the method drafts from hidden states, which may cost
    hits of the prefix cache, and the service's users have many. An unfinished rollout has chosen already."""
    measurement, method = request.measurement, METHODS.get(request.speculation.method)
    named = measurement.prompts or measurement.warm is not None or measurement.asks_for_variants
    if named or method is None or not method.prompt_states:
        return request
    stored = stored_workload(session.store, unfinished)
    if stored is None:
        share = reading.prefix_hit_share or 0.0
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
    session: Session, request: RolloutRequest, workload: Workload, unfinished: Operation | None
) -> RolloutRequest:
    """The request with the plan's best method in place of ``auto``.

    Raises:
        Conflict: a rollout is unfinished, which may be of another method by now.
        Refused: no method is predicted to gain.
    """
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
    stored = stored_workload(session.store, unfinished)
    if stored is not None and stored.variants:
        return stored.with_prompts({kind.name: kind.prompts for kind in workload.traffic}.get)
    with session.context() as context:
        live = measured_engine(context, Arm(session.platform.read().text), None)
        divide = annex.need("with-variants")
        divided: Workload = divide(
            workload, request.measurement, [live.endpoint], session.service().whole_command
        )
        return divided
