"""What a command should do, given the service as it is and what the ledger says. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from mpctl.errors import Conflict, InputError
from mpctl.rollout.operation import Operation
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.ports import Live
from mpctl.rollout.revision import Revision, text_digest


class Act(StrEnum):
    """open a new operation, go on with an unfinished one, or nothing because it is already so."""

    OPEN = "open"
    RESUME = "resume"
    ALREADY = "already"


@dataclass(frozen=True)
class Decision:
    """``plan`` with OPEN, ``operation`` with RESUME."""

    act: Act
    plan: Plan | None = None
    operation: Operation | None = None


def decide_rollout(request: Plan, live: Live, unfinished: Operation | None) -> Decision:
    """The same command twice goes on where the first was stopped, or finds it done.

    Raises:
        Conflict: another operation is unfinished.
    """
    if unfinished is not None:
        plan = unfinished.plan
        same = plan.kind is Kind.ROLLOUT and plan.text == request.text
        its_way_back = plan.automatic and plan.baseline == request.text
        if not same and not its_way_back:
            raise Conflict(
                f"{unfinished.id} of {live.name} is unfinished ({unfinished.plan.spec}, since {unfinished.opened_at})",
                hint="mpctl resume goes on with it, mpctl rollback restores the service",
            )
        changed = () if its_way_back else plan.terms_other_than(request)
        if changed:
            raise Conflict(
                f"{unfinished.id} of {live.name} is unfinished and was planned with another {', '.join(changed)}",
                hint="mpctl resume goes on as planned; mpctl rollback restores the service, to start anew",
            )
        return Decision(Act.RESUME, operation=unfinished)
    if live.text == request.text:
        return Decision(Act.ALREADY)
    return Decision(Act.OPEN, plan=request)


def decide_retire(
    request: Plan | None, live: Live, unfinished: Operation | None, interrupted: Operation | None
) -> Decision:
    """Go on with the ``interrupted`` one of the service as it is now, or end what stands beside the service.

    ``request``: None when nothing stands there.

    Raises:
        Conflict: an operation is unfinished, and its arms are not ours to end.
    """
    if unfinished is not None:
        raise Conflict(
            f"{unfinished.id} of {live.name} is unfinished ({unfinished.plan.spec})",
            hint="mpctl resume goes on with it, mpctl rollback restores the service",
        )
    if interrupted is not None and interrupted.plan.text == live.text:
        return Decision(Act.RESUME, operation=interrupted)
    return Decision(Act.ALREADY) if request is None else Decision(Act.OPEN, plan=request)


def decide_rollback(
    live: Live,
    unfinished: Operation | None,
    last: Operation | None,
    revisions: tuple[Revision, ...],
    to_revision: int | None,
    *,
    strategy: Strategy | None = None,
    force: bool = False,
    lost: tuple[int, ...] = (),
) -> Decision:
    """Undo what is unfinished; otherwise go to the revision asked for, or to the one before the present state.

    ``force``: what is live may have been written by somebody else; it is kept as a revision and overwritten.
    ``lost``: numbers of revisions that were recorded and are not there.

    Raises:
        InputError: there is no such revision, or none to go back to, or the one before may be one that is lost.
        Conflict: an unfinished operation starts from another revision than the one asked for.
    """
    if unfinished is not None:
        plan = unfinished.plan
        if force and live.text not in (plan.baseline, plan.text):
            return Decision(Act.OPEN, plan=_overwriting(unfinished, live, revisions))
        if plan.kind is Kind.ROLLBACK:
            if to_revision not in (None, plan.target):
                raise Conflict(
                    f"{unfinished.id} to revision {plan.target} is unfinished",
                    hint="finish it first: mpctl rollback without --to-revision",
                )
            return Decision(Act.RESUME, operation=unfinished)
        if to_revision is None:
            return Decision(Act.OPEN, plan=unfinished.undo_plan(why=f"{unfinished.id} undone by hand"))
        if next((r.text for r in revisions if r.number == to_revision), None) != plan.baseline:
            raise Conflict(
                f"{unfinished.id} is unfinished; it starts from another revision than {to_revision}",
                hint="undo it first: mpctl rollback without --to-revision",
            )
        return Decision(Act.OPEN, plan=unfinished.undo_plan(why=f"{unfinished.id} undone by hand"))
    if to_revision is None and last is not None and _went_back(last, live):
        return Decision(Act.ALREADY)  # the same command again must not go forward to what was taken back
    revision = _target(live, revisions, to_revision, lost)
    if revision.text == live.text:
        return Decision(Act.ALREADY)
    chosen = strategy or (last.plan.strategy if last else Strategy.SIDE_BY_SIDE)
    return Decision(
        Act.OPEN,
        plan=Plan(
            kind=Kind.ROLLBACK,
            strategy=chosen,
            baseline=live.text,
            text=revision.text,
            spec=revision.spec,
            baseline_spec=revisions[-1].spec if revisions[-1].text == live.text else "as found",
            target=revision.number,
            why=f"rollback to revision {revision.number}",
        ),
    )


def accepting_downtime(decision: Decision) -> Decision:
    """The same way back when the service may be down while an engine starts. An unfinished rollback that was planned
    without that is replaced by one with it: it may wait for a GPU that never gets free."""
    if decision.plan is not None:
        return replace(decision, plan=replace(decision.plan, downtime=True))
    if decision.operation is None or decision.operation.plan.downtime:
        return decision
    operation, plan = decision.operation, decision.operation.plan
    again = replace(
        plan,
        downtime=True,
        undoes=operation.id,
        automatic=False,
        why=f"{plan.why}; an old engine may go first",
        scaling=operation.scaling,
        # The kept arm may be gone by then, and the restored service have the traffic.
        instant=plan.instant and "unshift" not in operation.done,
    )
    return Decision(Act.OPEN, plan=again)


def _overwriting(unfinished: Operation, live: Live, revisions: tuple[Revision, ...]) -> Plan:
    """Back to where the unfinished operation leads back to, over a change that is not ours."""
    plan = unfinished.plan
    goal = plan.text if plan.kind is Kind.ROLLBACK else plan.baseline
    spec = plan.spec if plan.kind is Kind.ROLLBACK else plan.baseline_spec
    back = unfinished.undo_plan(why=f"{unfinished.id} undone by hand over a foreign change")
    target = next((r.number for r in reversed(revisions) if r.text == goal), None)
    return replace(
        back,
        baseline=live.text,
        text=goal,
        spec=spec,
        baseline_spec="as found",
        target=target,
        overwrites=True,
        instant=plan.instant,
    )


def _went_back(last: Operation, live: Live) -> bool:
    plan = last.plan
    ended_with = (text_digest(plan.text), last.done.get("verify", {}).get("digest"))  # admission may have added to it
    return plan.kind is Kind.ROLLBACK and not plan.automatic and text_digest(live.text) in ended_with


def _target(live: Live, revisions: tuple[Revision, ...], number: int | None, lost: tuple[int, ...]) -> Revision:
    known = ", ".join(str(r.number) for r in revisions) or "none"
    before = next((r for r in reversed(revisions) if r.text != live.text), None)
    since = lost if before is None else tuple(n for n in lost if n > before.number)
    if number in lost or (number is None and since):
        numbers = ", ".join(str(n) for n in lost)
        raise InputError(
            f"service {live.name} has lost what was recorded as revision {numbers}; there are {known}",
            hint="restore it from a copy, or choose another with --to-revision",
        )
    if not revisions:
        raise InputError(f"service {live.name} has no recorded revision", hint="nothing was rolled out yet")
    if number is not None:
        for revision in revisions:
            if revision.number == number:
                return revision
        raise InputError(
            f"service {live.name} has no revision {number}; there are {known}",
            field="--to-revision",
            hint="mpctl history",
        )
    if before is not None:
        return before
    raise InputError(f"service {live.name} has no other revision than the present one", hint="mpctl history")
