"""Operations that measure nothing: abandon, retire, restart, unlock, purge and prune."""

from __future__ import annotations

from datetime import UTC, datetime

from mpctl import commands
from mpctl.app.operate.outcome import OperationOutcome, carry_out, confirm_resume
from mpctl.app.session.base import Session
from mpctl.errors import Conflict, InputError, MpctlError, NotPermitted
from mpctl.platform.kubernetes.api.replies import Unreachable
from mpctl.platform.kubernetes.object_store import KubernetesStore
from mpctl.rollout import runner
from mpctl.rollout.decide import Act, Decision, decide_retire
from mpctl.rollout.ledger import Entry, live_revisions
from mpctl.rollout.operation import (
    Operation,
    prunable,
    require_finished,
    unfinished_operation,
    unfinished_retirement,
)
from mpctl.rollout.plan import Kind, Plan, Strategy
from mpctl.rollout.ports import Arm, Demand, PruneResult, RecordCounts
from mpctl.rollout.restore import live_spec
from mpctl.rollout.revision import Manifest


def abandon(session: Session) -> tuple[Operation, ...]:
    """Close every unfinished operation: record the live service, remove the candidate, unpin the autoscaler. Returns
    what was abandoned; empty when nothing was unfinished.

    Raises:
        Conflict: another operator works on the service.
        Cancelled: the user declined or pressed Ctrl-C.
        MpctlError: a step failed; the same call again continues.
    """
    entries = session.store.entries()
    operation = unfinished_operation(entries)
    if operation is None:
        return ()
    if session.platform.live_text() is not None:
        session.warn_of_owner(force=True)
    question = (
        f"{operation.id} of {session.title} ({operation.plan.spec_text}) ends here; "
        "the service stays as it is now"
    )
    session.console.confirm(f"{question}\nContinue ({session.place})?")
    with session.store.lease("abandon"), session.context() as context:
        return runner.abandon(context, why="abandoned by hand")


def retire(session: Session) -> OperationOutcome:
    """Stop every arm that does not serve.

    Raises:
        Conflict: an operation is unfinished, or another operator works on the service.
        Cancelled: the user declined or pressed Ctrl-C.
    """
    decision = decide_retirement(session)
    if decision.act is Act.ALREADY:
        return OperationOutcome.nothing_to_do(session, f"{session.title} has no retained baseline")
    if decision.plan is not None:
        question = f"{decision.plan.why}; a rollback then takes an engine start"
        session.console.confirm(f"{question}\nContinue ({session.place})?")
    with session.store.lease("retire"), session.context() as context:
        decision = decide_retirement(session)
        operation = decision.operation
        if operation is not None:
            confirm_resume(session, operation)
        elif decision.plan is not None:
            operation = runner.open_plan(context, decision.plan)
        if operation is None:
            return OperationOutcome.nothing_to_do(
                session, f"{session.title} has no retained baseline"
            )
        return carry_out(session, context, operation)


def decide_retirement(session: Session) -> Decision:
    """Plan the retirement from the present service and ledger.

    Raises:
        Conflict: an operation is unfinished, which needs its arms.
    """
    entries = session.store.entries()
    return decide_retire(
        retirement_plan(session),
        session.platform.read(),
        unfinished_operation(entries),
        unfinished_retirement(entries),
    )


def retirement_plan(session: Session) -> Plan | None:
    """The plan for the service as it is now; None when only the serving arm runs."""
    status = session.status()
    retained = [arm.id for arm in status.arms if arm.id != status.routed]
    if not retained:
        return None
    manifest, spec = Manifest.of(session.text()), live_spec(session.platform)
    return Plan(
        kind=Kind.RETIRE,
        strategy=Strategy.SIDE_BY_SIDE,
        baseline=manifest,
        goal=manifest,
        spec=spec,
        baseline_spec=spec,
        why=f"retained baseline {', '.join(retained)} of {session.title} ends",
    )


def restart(session: Session, *, why: str = "", by: str = "") -> OperationOutcome:
    """Start fresh engines, switch to them when they are ready, and stop the old ones. A restart that fails leaves the
    service as it was.

    Raises:
        Conflict: an operation is unfinished, or another operator works on the service.
        Refused: there is no capacity for one more engine.
        Cancelled: the user declined or pressed Ctrl-C.
    """
    session.warn_of_owner(force=True)
    if _interrupted_restart(session) is None:
        for finding in (item for item in session.path_findings() if item.id == "requests-lost"):
            session.console.warn(f"{finding.reason}: {finding.todo}")
        order = "each stops when a fresh one is ready" + (
            ", as in any rolling update" if session.platform.replaces_pods_itself else ""
        )
        question = f"Every engine of {session.title} is replaced by one of the same spec: {order}."
        session.console.confirm(f"{question}\nContinue ({session.place})?")
    with session.store.lease("restart"), session.context() as context:
        operation = _interrupted_restart(session)
        if operation is not None:
            confirm_resume(session, operation)
        else:
            operation = runner.open_plan(context, restart_plan(session, why=why, by=by))
        return carry_out(session, context, operation)


def _interrupted_restart(session: Session) -> Operation | None:
    """The interrupted restart.

    Raises:
        Conflict: another operation is unfinished.
    """
    operation = unfinished_operation(session.store.entries())
    if operation is None or operation.plan.kind is Kind.RESTART:
        return operation
    raise Conflict(
        f"{operation.id} of {session.title} is unfinished ({operation.plan.spec_text})",
        hint=f"{session.command('resume')} continues it, {session.command('rollback')} restores the service",
    )


def restart_plan(session: Session, *, why: str, by: str) -> Plan:
    """The plan for the service as it is now.

    Raises:
        Refused: the service does not serve, or there is no capacity for one more engine.
    """
    platform = session.platform
    text = platform.restarted_text(datetime.now(UTC).isoformat(timespec="seconds"))
    (fit,) = platform.fits(Demand(Arm(text), side_by_side=not platform.replaces_pods_itself))
    for note in fit.require():
        session.console.note(f"note: {note}")
    spec = live_spec(platform)
    return Plan(
        kind=Kind.RESTART,
        strategy=Strategy.SIDE_BY_SIDE,
        baseline=Manifest.of(session.text()),
        goal=Manifest.of(text),
        spec=spec,
        baseline_spec=spec,
        ready_timeout_s=session.ready_timeout_s(None),
        scaling=platform.scaling(),
        why=why or f"restart of {session.title}",
        by=by,
    )


def unlock(session: Session, *, force: bool = False) -> Operation | None:
    """Remove a dead operator's lease and fence its command off; ``force``: also that of a live one, and continue with a
    ledger that lost its newest entries. Returns the unfinished operation that can now be resumed.

    Raises:
        InputError: the service is on this machine, where a lock ends with its process.
        Conflict: the holder is alive.
        Cancelled: the user declined.
    """
    if not isinstance(session.store, KubernetesStore):
        raise InputError(
            "a lock of this machine ends with the process that holds it",
            hint=session.command("status"),
        )
    console, store, lease = session.console, session.store, session.store.held
    holder = lease.read()
    entries, operation, unreadable = _readable(session, store)
    missing = "" if unreadable else store.missing_entries(entries)
    if holder is None and not (missing and force):
        console.note(f"{session.title} is not locked")
        if unreadable is not None and force:
            raise unreadable  # what stops the commands is no lock, and force does not mend it
        return None
    if holder is not None:
        under_way = (
            f"; {operation.id} is at {operation.begun or 'rest'}" if operation is not None else ""
        )
        console.note(f"{session.title} is held by {holder.describe()}{under_way}")
        if not force:
            lease.require_dead(holder)
        console.confirm(f"Take {session.title} from {holder.who}?")
        lease.unlock(holder, force=force)
    if missing and force:
        console.note(f"tampering: {session.title}: {missing}")
        console.confirm(f"Continue {session.title} with the {len(entries)} entries that are left?")
        lease.forget_entries()
    console.note(
        f"{session.title} is free{'; its ledger still cannot be read' if unreadable else ''}"
    )
    return operation


def _readable(
    session: Session, store: KubernetesStore
) -> tuple[tuple[Entry, ...], Operation | None, MpctlError | None]:
    """The ledger and its unfinished operation; none and the error where it cannot be read, which is no reason to keep a
    lock, and says nothing about what was removed from its end."""
    try:
        entries = store.surviving_entries()
    except MpctlError as error:
        session.console.note(error.message)
        return (), None, error
    finally:
        for look_alike in store.look_alikes():
            session.console.note(look_alike)
    try:
        return entries, unfinished_operation(entries), None
    except MpctlError as error:
        session.console.note(error.message)
        return entries, None, None


def purge(session: Session, *, force: bool = False) -> RecordCounts:
    """Delete revisions, ledger, records and lock; the service itself stays as it is. Returns what was deleted.

    ``force``: also a history that cannot be read, in which an unfinished operation would not show.

    Raises:
        Conflict: an operation is unfinished, a retained baseline runs, or the history cannot be read.
        NotPermitted: with the roles that permit it.
        Cancelled: the user declined.
    """
    try:
        return _purge(session, force=force)
    except NotPermitted as error:
        raise NotPermitted(error.message, hint=_hint(session)) from error


def _purge(session: Session, *, force: bool) -> RecordCounts:
    recorded = session.store.recorded()
    if not recorded.total:
        return recorded
    lost = _lost(session, force=force)
    consequence = "the live service does not change"
    if lost is None:
        consequence += "; its history cannot be read, so an unfinished operation would not show"
    elif lost:
        numbers = ", ".join(str(number) for number in lost)
        consequence += (
            f"\nrevision{'s' if len(lost) > 1 else ''} {numbers} cannot be restored afterwards: "
            "no other copy is known"
        )
    session.console.confirm(
        f"Delete {recorded.describe()} of {session.title} ({session.place})?\n{consequence}",
        typed="" if lost == () else session.name,
    )
    with session.store.lease("purge"):
        _lost(session, force=force)
        session.store.purge()
    return recorded


def _lost(session: Session, *, force: bool) -> tuple[int, ...] | None:
    """Numbers of the revisions that served and differ from the live manifest, which nothing else restores; None where
    the history cannot be read."""
    try:
        entries, revisions = session.store.entries(), session.store.revisions()
    except (NotPermitted, Unreachable):
        raise
    except MpctlError as error:
        if force:
            return None
        raise Conflict(
            f"{error.message}; an unfinished operation would not show",
            hint=f"{session.command('prune', '--all', '--force')} deletes it all the same",
        ) from error
    live = session.platform.live_text()
    retained = None if live is None else session.platform.retained_baseline()
    require_finished(session.title, session.command, entries, retained)
    served = live_revisions(entries)
    return tuple(
        r.number for r in revisions if r.text != live and (r.number in served or not entries)
    )


def _hint(session: Session) -> str | None:
    if not isinstance(session.store, KubernetesStore):
        return None
    roles = commands.line("rbac", "--allow", "purge", namespace=session.namespace)
    return f"the operator role deletes no history; '{roles}' prints roles that do"


def prune(session: Session, keep: int) -> PruneResult:
    """Delete the measurements of all but the last ``keep`` operations. Nothing that a rollback needs is among them.

    Raises:
        NotPermitted: the right that is missing; nothing was deleted.
        Cancelled: the user declined.
    """
    names = prunable(session.store.entries(), keep)
    session.console.confirm(
        f"Delete the measurements of {session.title} but for the last {keep} operations ({session.place})?\n"
        "revisions and the ledger stay, in as few objects as possible: every rollback stays possible"
    )
    with session.store.lease("prune"):
        return session.store.prune(names)
