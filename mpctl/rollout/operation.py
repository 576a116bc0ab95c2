"""An operation (a rollout or a rollback) as the ledger tells it.

State is derived, never stored twice: reading the entries gives the operation that is open, which of its steps are
done and what they found out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mpctl.rollout.ledger import Entry, Event
from mpctl.rollout.plan import Kind, Plan

GROWN = "grown"  # not a step that acts: an entry with the number of engines that the autoscaler started meanwhile


class Ending(StrEnum):
    """How an operation ended."""

    PROMOTED = "promoted"
    REJECTED = "rejected"
    UNDECIDED = "undecided"
    FAILED = "failed"
    ROLLED_BACK = "rolled back"
    UNDONE = "undone"
    ABANDONED = "abandoned"
    RETIRED = "retired"


@dataclass(frozen=True)
class Operation:
    """An operation and how far it came. ``done`` maps a step to what it found out."""

    id: str
    plan: Plan
    opened_at: str
    who: str
    done: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    begun: str = ""
    failure: str = ""
    ending: Ending | None = None
    closed_at: str = ""
    detail: str = ""

    @property
    def scaling(self) -> dict[str, Any] | None:
        """The autoscaler as the plan found it, with the number of engines at which it is held: that of the plan, or
        the greater one there was when a way back went on (``GROWN``)."""
        if self.plan.scaling is None:
            return None
        return {**self.plan.scaling, **self.done.get(GROWN, {})}

    def undo_plan(self, *, why: str, automatic: bool = False) -> Plan:
        """The plan that takes the service back to the manifest this operation started from."""
        plan = self.plan
        return Plan(
            kind=Kind.ROLLBACK,
            strategy=plan.strategy,
            baseline=plan.text,
            text=plan.baseline,
            spec=plan.baseline_spec,
            baseline_spec=plan.spec,
            ready_timeout_s=plan.ready_timeout_s,
            target=self.done.get("record", {}).get("revision"),
            undoes=self.id,
            why=why,
            automatic=automatic,
            downtime=plan.downtime,
            scaling=self.scaling,
            route=plan.route,
        )

    def with_entry(self, entry: Entry) -> Operation:
        """The operation after one more entry."""
        changes: dict[str, Any] = {}
        match entry.event:
            case Event.BEGUN:
                changes = {"begun": entry.step}
            case Event.DONE:
                changes = {"begun": "", "done": {**self.done, entry.step: entry.data}}
            case Event.FAILED:
                changes = {"failure": str(entry.data.get("reason", ""))}
            case Event.CLOSED:
                changes = {
                    "ending": Ending(entry.data["ending"]),
                    "closed_at": entry.at,
                    "detail": str(entry.data.get("detail", "")),
                    "begun": "",
                }
            case Event.OPENED:
                raise AssertionError("an operation is opened once")
        return Operation(**{**self.__dict__, **changes})


def operations(entries: Iterable[Entry]) -> tuple[Operation, ...]:
    """All operations of a ledger, oldest first."""
    found: dict[str, Operation] = {}
    for entry in entries:
        if entry.event is Event.OPENED:
            found[entry.operation] = Operation(
                id=entry.operation,
                plan=Plan.from_record(entry.data["plan"]),
                opened_at=entry.at,
                who=entry.who,
            )
        else:
            found[entry.operation] = found[entry.operation].with_entry(entry)
    return tuple(found.values())


def last_change(entries: Iterable[Entry]) -> Operation | None:
    """The last operation that changed what is served: promoted, or taken back by hand. Rejected ones and their
    automatic ways back changed nothing in the end."""
    changed = [
        op
        for op in operations(entries)
        if op.ending is Ending.PROMOTED or (op.ending is Ending.ROLLED_BACK and not op.plan.automatic)
    ]
    return changed[-1] if changed else None


def open_operation(entries: Iterable[Entry]) -> Operation | None:
    """The last operation that has not ended, or None. A rollback stands for what it undoes.

    One that only ends a kept arm does not count: it changes nothing that serves and can be repeated at any time, so it
    must neither stand in the way nor be undone in the place of what was promoted (:func:`open_retirement`).
    """
    return _last_unfinished(entries, (Kind.ROLLOUT, Kind.ROLLBACK))


def open_retirement(entries: Iterable[Entry]) -> Operation | None:
    """The interrupted operation that ends a kept arm, or None. Whatever is opened after it takes its place."""
    return _last_unfinished(entries, (Kind.RETIRE,))


def _last_unfinished(entries: Iterable[Entry], kinds: tuple[Kind, ...]) -> Operation | None:
    unfinished = [op for op in operations(entries) if op.ending is None and op.plan.kind in kinds]
    return unfinished[-1] if unfinished else None
