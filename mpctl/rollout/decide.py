"""The action that a command should take, given the live service and the ledger. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from mpctl.errors import Conflict, InputError
from mpctl.methods import Spec
from mpctl.rollout.ledger import Entry, live_revisions, lost_revisions
from mpctl.rollout.operation import Operation, last_change, unfinished_operation
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.ports import Live
from mpctl.rollout.revision import Manifest, Revision


class Act(StrEnum):
    """Open a new operation, resume an unfinished one, or do nothing because the service is already so."""

    OPEN = "open"
    RESUME = "resume"
    ALREADY = "already"


@dataclass(frozen=True)
class Decision:
    """The action of a command on a service."""

    act: Act
    plan: Plan | None = None  # with OPEN
    operation: Operation | None = None  # with RESUME
    # Fields that differ from the requested revision, because another writer changed them.
    preserved: tuple[str, ...] = ()


def decide_rollout(
    requested: Plan, live: Live, unfinished: Operation | None, *, holder: str | None = None
) -> Decision:
    """Decide about a rollout: the same command twice continues where the first was stopped, or finds it done.

    ``requested``: what the command would open now; ``holder``: the operator that works on the service.

    Raises:
        Conflict: another operation is unfinished.
    """
    if unfinished is not None:
        plan = unfinished.plan
        same = plan.kind is Kind.ROLLOUT and plan.goal == requested.goal
        undoes_same = (
            plan.rollback.automatic and plan.baseline == requested.goal
        )  # the same rollout, after it failed
        if (
            holder is not None
            and (not same or plan.terms_other_than(requested))
            and not undoes_same
        ):
            raise Conflict(
                f"service {live.namespace}/{live.name} is held by {holder}: {unfinished.id} ({plan.spec_text}), since "
                f"{unfinished.opened_at}",
                hint=f"wait for it; '{live.command('status')}' shows it",
            )
        if not same and not undoes_same:
            raise Conflict(
                f"{unfinished.id} of {live.name} is unfinished ({plan.spec_text}, since {unfinished.opened_at})",
                hint=f"{live.command('resume')} continues it, {live.command('rollback')} restores the service",
            )
        changed_terms = () if undoes_same else plan.terms_other_than(requested)
        if changed_terms:
            raise Conflict(
                f"{unfinished.id} of {live.name} is unfinished and was planned with another {', '.join(changed_terms)}",
                hint=f"{live.command('resume')} continues as planned; {live.command('rollback')} restores the service "
                "first",
            )
        return Decision(Act.RESUME, operation=unfinished)
    if Manifest.of(live.text) == requested.goal:
        return Decision(Act.ALREADY)
    return Decision(Act.OPEN, plan=requested)


def decide_retire(
    requested: Plan | None, live: Live, unfinished: Operation | None, interrupted: Operation | None
) -> Decision:
    """Resume the ``interrupted`` retirement of the service as it is now, or stop its retained baseline.

    ``requested``: None when nothing is retained.

    Raises:
        Conflict: an operation is unfinished, and its arms are not ours to end.
    """
    if unfinished is not None:
        raise Conflict(
            f"{unfinished.id} of {live.name} is unfinished ({unfinished.plan.spec_text})",
            hint=f"{live.command('resume')} continues it, {live.command('rollback')} restores the service",
        )
    if interrupted is not None and interrupted.plan.goal == Manifest.of(live.text):
        return Decision(Act.RESUME, operation=interrupted)
    return Decision(Act.ALREADY) if requested is None else Decision(Act.OPEN, plan=requested)


@dataclass(frozen=True)
class History:
    """The recorded history. ``last``: the last operation that changed what is served; ``lost``: numbers of revisions
    that the ledger names and that are not found; ``recorded``: the service as it was recorded last."""

    unfinished: Operation | None = None
    last: Operation | None = None
    revisions: tuple[Revision, ...] = ()
    lost: tuple[int, ...] = ()
    recorded: Revision | None = None

    @classmethod
    def of(cls, entries: tuple[Entry, ...], revisions: tuple[Revision, ...]) -> History:
        """The history of a service; the unfinished operation comes with the texts of its manifests.

        Raises:
            MpctlError: a revision that the unfinished operation needs is lost.
            Tampered: it is not the one that the ledger names.
        """
        unfinished = unfinished_operation(entries)
        read = None if unfinished is None else unfinished.read(revisions)
        newest = max(live_revisions(entries), default=0)
        recorded = next((r for r in revisions if r.number == newest), None)
        return cls(
            read, last_change(entries), revisions, lost_revisions(entries, revisions), recorded
        )


def decide_rollback(
    live: Live,
    history: History,
    to_revision: int | None,
    *,
    serving: Spec | None = None,
    strategy: Strategy | None = None,
    exact: bool = False,
) -> Decision:
    """Undo what is unfinished; otherwise restore the revision asked for, or the baseline of the last promotion.

    ``serving``: the speculation by the live engine's own arguments, None where no engine is ready. ``exact``: every
    byte is restored; what is live may be another writer's, is kept as a revision and overwritten.

    Raises:
        InputError: there is no such revision, or nothing was promoted, or the revision is lost.
        Conflict: an unfinished operation starts from another revision than the one asked for, or the service has the
            manifest to restore and its engine runs otherwise.
    """
    if history.unfinished is not None:
        return _undo(live, history.unfinished, history.revisions, to_revision, exact=exact)
    last, newest = history.last, history.revisions[-1] if history.revisions else None
    unspeculative = serving is not None and serving.is_none
    if to_revision is None and last is None and newest is not None and unspeculative:
        return Decision(Act.ALREADY)
    revision = _target(live, history, to_revision)
    if _already(live, revision, serving, exact=exact or to_revision is not None):
        return Decision(Act.ALREADY)
    chosen = strategy or (last.plan.strategy if last else Strategy.SIDE_BY_SIDE)
    return Decision(
        Act.OPEN,
        plan=Plan(
            kind=Kind.ROLLBACK,
            strategy=chosen,
            baseline=Manifest.of(live.text),
            goal=Manifest.of(revision.text, revision.number),
            spec=revision.spec,
            baseline_spec=newest.spec
            if newest is not None and newest.text == live.text
            else serving,
            why=f"rollback to revision {revision.number}",
            overwrites=exact,
        ),
    )


def _undo(
    live: Live,
    unfinished: Operation,
    revisions: tuple[Revision, ...],
    to_revision: int | None,
    *,
    exact: bool,
) -> Decision:
    plan = unfinished.plan
    digest = next((r.digest for r in revisions if r.number == to_revision), None)
    if plan.kind is Kind.ROLLBACK:
        # Its goal may also have another writer's changes, and then another number.
        restored = plan.rollback.restored_revision or plan.goal.number
        if to_revision not in (None, restored):
            raise Conflict(
                f"{unfinished.id} to revision {restored} is unfinished",
                hint=f"finish it first: {live.command('rollback')}",
            )
    elif to_revision is not None and digest != plan.baseline.digest:
        raise Conflict(
            f"{unfinished.id} is unfinished; it starts from another revision than {to_revision}",
            hint=f"undo it first: {live.command('rollback')}",
        )
    if exact and Manifest.of(live.text) not in (plan.baseline, plan.goal):
        forced = replacing_rollback(
            unfinished, why=f"{unfinished.id} undone by hand over a foreign change"
        )
        return Decision(
            Act.OPEN, plan=replace(forced, baseline=Manifest.of(live.text), overwrites=True)
        )
    if plan.kind is Kind.ROLLBACK:
        return Decision(Act.RESUME, operation=unfinished)
    return Decision(Act.OPEN, plan=unfinished.undo_plan(why=f"{unfinished.id} undone by hand"))


def _already(live: Live, revision: Revision, serving: Spec | None, *, exact: bool) -> bool:
    """Return whether the service already runs what is to be restored, by its engine's own arguments. A change that
    leaves the speculation as it was is no reason to roll back, unless the revision was asked for by number.

    Raises:
        Conflict: the manifest is the revision's, but the engine runs otherwise or cannot be asked.
    """
    if live.text != revision.text:
        return serving is not None and serving == revision.spec and not exact
    require_confirmed(live, has_manifest_of(live, revision), revision.spec, serving)
    return True


def has_manifest_of(live: Live, revision: Revision) -> str:
    """The sentence on a service that has a revision's manifest, without its full stop."""
    return f"service {live.name} has the manifest of revision {revision.number}"


def require_confirmed(live: Live, restored: str, spec: Spec | None, serving: Spec | None) -> Spec:
    """Return what serves, which has to be ``spec`` where that is known. ``restored``: what was, or is, for messages.

    Raises:
        Conflict: the engine runs otherwise or cannot be asked.
    """
    if serving is None:
        raise Conflict(
            f"{restored}, but no engine is ready to confirm it",
            hint=f"{live.command('status')} shows why",
        )
    if spec is not None and serving != spec:
        raise Conflict(
            f"{restored}, but its engine runs {serving.describe()}, expected {spec.describe()}",
            hint="stop whatever else starts this engine, then run the same command again",
        )
    return serving


def accepting_downtime(decision: Decision) -> Decision:
    """The same rollback when the service may be down while an engine starts. An unfinished rollback that was planned
    without that is replaced by one with it: it may wait for a GPU that never gets free."""
    if decision.plan is not None:
        return replace(decision, plan=replace(decision.plan, downtime=True))
    if decision.operation is None or decision.operation.plan.downtime:
        return decision
    operation, plan = decision.operation, decision.operation.plan
    with_downtime = replace(
        plan,
        downtime=True,
        why=f"{plan.why}; an old engine may go first",
        scaling=operation.scaling,
        rollback=replace(
            plan.rollback,
            undoes=operation.id,
            automatic=False,
            # The retained baseline may be gone by then, and the restored service have the traffic.
            uses_retained_baseline=plan.rollback.uses_retained_baseline
            and "unshift" not in operation.done,
        ),
    )
    return Decision(Act.OPEN, plan=with_downtime)


def replacing_rollback(unfinished: Operation, *, why: str) -> Plan:
    """A new rollback to the manifest that the unfinished operation would restore, which ends that operation.

    Its ``baseline`` is the manifest that mpctl left live.
    """
    plan = unfinished.plan
    repeats = plan.kind is Kind.ROLLBACK  # the same way once more; otherwise back from the goal
    return replace(
        unfinished.undo_plan(why=why),
        baseline=plan.baseline if repeats else plan.goal,
        goal=plan.goal if repeats else plan.baseline,
        spec=plan.spec if repeats else plan.baseline_spec,
        baseline_spec=None,
        rollback=replace(plan.rollback, undoes=unfinished.id, automatic=False),
    )


def _target(live: Live, history: History, number: int | None) -> Revision:
    """The revision asked for; without a number the baseline of the last promotion, or what its rollback restored."""
    revisions, last, lost = history.revisions, history.last, history.lost
    recorded = ", ".join(str(r.number) for r in revisions) or "none"
    wanted = None
    if number is None and last is not None:
        wanted = last.plan.baseline if last.plan.kind is Kind.ROLLOUT else last.plan.goal
        number = wanted.number
    if number in lost:
        numbers = ", ".join(str(n) for n in lost)
        raise InputError(
            f"revision {numbers} of service {live.name} is lost; there are {recorded}",
            hint="restore it from a copy, or choose another with --to-revision",
        )
    if not revisions:
        raise InputError(
            f"service {live.name} has no recorded revision", hint="nothing was rolled out yet"
        )
    if number is None:
        raise InputError(
            f"no rollout of service {live.name} was promoted; there are revisions {recorded}",
            hint=f"choose one with --to-revision; {live.command('history')} lists them",
        )
    for revision in revisions:
        if revision.number == number:
            if wanted is not None:
                wanted.read(
                    revisions
                )  # raises where the revision is not the one that the ledger names
            return revision
    raise InputError(
        f"service {live.name} has no revision {number}; there are {recorded}",
        field="--to-revision",
        hint=live.command("history"),
    )
