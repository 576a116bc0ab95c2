"""An operation (a rollout or a rollback) as the ledger tells it.

State is derived, never stored twice: reading the entries gives the operation that is open, which of its steps are
done and what they found out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TypeVar

from mpctl.errors import Conflict
from mpctl.json_types import Json, JsonView
from mpctl.records import Record, restored
from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.plan import Kind, Plan, RollbackPlan
from mpctl.rollout.ports import RetainedBaseline
from mpctl.rollout.revision import Revision

RESIZED = "grown"  # not a step that acts: the entry with the replicas that the autoscaler started meanwhile
RETIRE_BAKED = "retire-baked"  # the step that ends a baseline retained for the bake


class Ending(StrEnum):
    """The ending of an operation."""

    PROMOTED = "promoted"
    REJECTED = "rejected"
    UNDECIDED = "undecided"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"
    UNDONE = "undone"
    ABANDONED = "abandoned"
    RETIRED = "retired"
    RESTARTED = "restarted"
    OFFERED = "offered"  # of a training of an earlier version, as the next
    REFUSED = "refused"


class StepResult(Record):
    """The result of a step: a frozen dataclass, written to the ledger by its fields and read back as its type."""


@dataclass(frozen=True)
class NoResult(StepResult):
    """The result of a step that found out nothing."""


@dataclass(frozen=True)
class ResizeResult(StepResult):
    """Replicas that the autoscaler ran when an interrupted rollback continued."""

    replicas: int


_Result = TypeVar("_Result", bound=StepResult)


@dataclass(frozen=True)
class Operation:
    """An operation and how far it came."""

    id: str
    plan: Plan
    opened_at: str  # RFC 3339
    who: str
    done: Mapping[str, JsonView] = field(
        default_factory=dict
    )  # finished steps with their results' records
    begun: str = ""  # the step that acts, or acted when the command died
    failure: str = ""  # why a step failed; the rollback is then to come
    replicas: int | None = (
        None  # that ran when an interrupted rollback continued, where more than the plan found
    )
    ending: Ending | None = None
    closed_at: str = ""
    detail: str = ""  # the reason for the ending
    seconds: Mapping[str, float] = field(default_factory=dict)  # by step; "" after the last one
    recorded_at: str = ""  # of the last entry

    def result(self, step: str, kind: type[_Result]) -> _Result | None:
        """The result of a finished step; None while it is not finished.

        Raises:
            MpctlError: the ledger's entry is no such result.
        """
        if step not in self.done:
            return None
        what = f"result of step {step} of {self.id}"
        return restored(what, kind.from_record, self.done[step], hint="restore the ledger")

    @property
    def scaling(self) -> Json | None:
        """The autoscaler as the plan found it, with the replicas at which it is pinned."""
        if self.plan.scaling is None or self.replicas is None:
            return self.plan.scaling
        return {**self.plan.scaling, "replicas": self.replicas}

    def undo_plan(self, *, why: str, automatic: bool = False) -> Plan:
        """The plan that takes the service back to the manifest this operation started from."""
        plan = self.plan
        # The operation started the baseline again and has not stopped it.
        retains = (
            plan.route is not None
            and bool(self.done.get("keep-baseline", {}).get("arm"))
            and RETIRE_BAKED not in self.done
        )
        return Plan(
            kind=Kind.ROLLBACK,
            strategy=plan.strategy,
            baseline=plan.goal,
            goal=plan.baseline,
            spec=plan.baseline_spec,
            baseline_spec=plan.spec,
            ready_timeout_s=plan.ready_timeout_s,
            why=why,
            downtime=plan.downtime,
            scaling=self.scaling,
            route=plan.route,
            rollback=RollbackPlan(self.id, automatic, retains),
            by=plan.by if automatic else "",
        )

    def with_entry(self, entry: Entry) -> Operation:
        """The operation after one more entry."""
        step = "" if self.failure else self.begun
        spent = self.seconds.get(step, 0.0) + _seconds_between(self.recorded_at, entry.at)
        timed = replace(self, seconds={**self.seconds, step: spent}, recorded_at=entry.at)
        return timed._after(entry)

    def _after(self, entry: Entry) -> Operation:
        match entry.event:
            case Event.BEGUN:
                return replace(self, begun=entry.step)
            case Event.DONE if entry.step == RESIZED:
                return replace(
                    self, begun=entry.then, replicas=ResizeResult.from_record(entry.data).replicas
                )
            case Event.DONE:
                return replace(self, begun=entry.then, done={**self.done, entry.step: entry.data})
            case Event.FAILED:
                return replace(self, failure=str(entry.data.get("reason", "")))
            case Event.CLOSED:
                ending, detail = Ending(entry.data["ending"]), str(entry.data.get("detail", ""))
                return replace(self, ending=ending, closed_at=entry.at, detail=detail, begun="")
            case Event.OPENED:
                raise ValueError(f"{self.id} is opened twice")

    def read(self, revisions: Iterable[Revision]) -> Operation:
        """The operation with the texts that its plan names.

        Raises:
            MpctlError: a revision is lost, or holds another text than the plan was made for.
        """
        return replace(self, plan=self.plan.read(revisions))


def operation_opened_by(entry: Entry) -> Operation:
    """The operation that an OPENED entry begins."""
    plan = Plan.from_record(entry.data["plan"])
    return Operation(
        id=entry.operation,
        plan=plan,
        opened_at=entry.at,
        who=entry.who,
        begun=entry.then,
        recorded_at=entry.at,
    )


def _seconds_between(before: str, after: str) -> float:
    """Seconds between two entries of the ledger; 0 where the clock was set back meanwhile."""
    passed = datetime.fromisoformat(after) - datetime.fromisoformat(before)
    return max(passed.total_seconds(), 0.0)


def operations(entries: Iterable[Entry]) -> tuple[Operation, ...]:
    """All operations of a ledger, oldest first.

    Raises:
        MpctlError: an entry is no entry of an operation; the message names it.
    """
    by_id: dict[str, Operation] = {}

    def extended(entry: Entry) -> Operation:
        if entry.event is Event.OPENED and entry.operation not in by_id:
            return operation_opened_by(entry)
        if entry.operation not in by_id:
            raise ValueError(f"{entry.operation} was never opened")
        return by_id[entry.operation].with_entry(entry)

    for entry in entries:
        what = f"entry {entry.seq} of the ledger, written by {entry.who}"
        by_id[entry.operation] = restored(
            what, extended, entry, hint="restore the ledger; nothing was changed"
        )
    return tuple(by_id.values())


def last_change(entries: Iterable[Entry]) -> Operation | None:
    """The last operation that changed what is served: promoted, or rolled back by hand. Rejected ones and their
    automatic rollbacks changed nothing in the end, and a restart serves the same spec."""
    changed = [
        op
        for op in operations(entries)
        if op.ending is Ending.PROMOTED
        or (op.ending is Ending.ROLLED_BACK and not op.plan.rollback.automatic)
    ]
    return changed[-1] if changed else None


def unfinished_operation(entries: Iterable[Entry]) -> Operation | None:
    """The last operation that has not ended, or None. While a rollback is unfinished, so is the operation that it
    undoes: the rollback is returned, and ends both.

    A retirement does not count (:func:`unfinished_retirement`): it changes nothing that serves and can be repeated at
    any time, so it must neither block others nor be undone in place of what was promoted.
    """
    return _last_unfinished(entries, (Kind.ROLLOUT, Kind.ROLLBACK, Kind.RESTART))


def unfinished_retirement(entries: Iterable[Entry]) -> Operation | None:
    """The interrupted operation that stops a retained baseline, or None. The next operation takes its place."""
    return _last_unfinished(entries, (Kind.RETIRE,))


def _last_unfinished(entries: Iterable[Entry], kinds: tuple[Kind, ...]) -> Operation | None:
    unfinished = [op for op in operations(entries) if op.ending is None and op.plan.kind in kinds]
    return unfinished[-1] if unfinished else None


KEPT_OPERATIONS = 10  # operations whose measurements stay


def prunable(entries: Sequence[Entry], keep: int = KEPT_OPERATIONS) -> frozenset[str]:
    """Names of the operations and workloads whose measurements may go: all but the last ``keep`` operations and the
    unfinished ones. Revisions and the ledger stay, so every rollback stays possible."""
    every = operations(entries)
    recent = [operation for operation in every if operation.plan.kind is not Kind.RETIRE]
    retained = {operation.id for operation in recent[max(len(recent) - keep, 0) :]}
    retained |= {operation.id for operation in every if operation.ending is None}
    named = {name for o in every if o.id in retained for name in (o.id, o.plan.workload)}
    return frozenset(
        name for o in every for name in (o.id, o.plan.workload) if name and name not in named
    )


def require_finished(
    title: str,
    command: Callable[[str], str],
    entries: Sequence[Entry],
    retained: RetainedBaseline | None,
) -> None:
    """Refuse to delete a history that something still needs. ``command``: a verb as a command on the service.

    Raises:
        Conflict: an operation is unfinished, or a retained baseline runs.
    """
    operation = unfinished_operation(entries)
    if operation is not None:
        raise Conflict(
            f"{operation.id} of {title} is unfinished",
            hint=f"'{command('rollback')}' undoes it, '{command('resume')}' continues it, '{command('abandon')}' ends "
            "it where it stands",
        )
    if retained is not None or unfinished_retirement(entries) is not None:
        raise Conflict(
            f"{title} has a retained baseline", hint=f"stop it with '{command('retire')}'"
        )
