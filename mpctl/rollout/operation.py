"""An operation (a rollout or a rollback) as the ledger tells it.

State is derived, never stored twice: reading the entries gives the operation that is open, which of its steps are
done and what they found out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mpctl.gate.policy import Policy
from mpctl.rollout.ports import Arm
from mpctl.rollout.records import Entry, Event

GROWN = "grown"  # not a step that acts: an entry with the number of engines that the autoscaler started meanwhile


class Kind(StrEnum):
    """What an operation wants: a new arm judged, a recorded revision back, or an arm that was kept to end."""

    ROLLOUT = "rollout"
    ROLLBACK = "rollback"
    RETIRE = "retire"


class Strategy(StrEnum):
    """side-by-side: the candidate runs beside the baseline, no downtime, needs room for two engines.

    in-place: measure, switch, measure, switch back on a failed gate; one engine at a time, the service is down while
    one starts.
    """

    SIDE_BY_SIDE = "side-by-side"
    IN_PLACE = "in-place"


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
class Plan:
    """Everything an operation will do, pinned when it is opened.

    ``text``: the manifest to end with; ``baseline``: the manifest it starts from; ``spec`` and
    ``baseline_spec``: the speculation of each in words. ``workload``: the name of a stored workload.
    ``target``: for a rollback, the number of the revision; ``undoes``: the operation a rollback undoes; ``why``: its
    cause; ``draft``: the head or model that drafts, empty where none is loaded; ``target_model``: what it drafts for;
    ``automatic``: the undone rollout itself asked for it, so its command goes on with it. ``downtime``: the
    service may be down while an engine starts. ``scaling``: the autoscaler as it was found, None without one.
    ``load``: where the load client runs: local (the machine of the command) or job (the cluster).
    ``overwrites``: ``baseline`` is somebody else's change, which was asked to be overwritten. ``route``: the users'
    route as it was found, None where none is touched; ``traffic_steps``: percentages of it that the candidate gets one
    after the other, each held for ``step_duration_s``; ``releases``: an older arm that was kept ends first;
    ``instant``: for a rollback, the arm to end with was kept and gets the route before anything else.
    """

    kind: Kind
    strategy: Strategy
    baseline: str
    text: str
    spec: str
    baseline_spec: str = "none"
    policy: Policy = field(default_factory=Policy)
    workload: str = ""
    ready_timeout_s: float = 600.0
    keep_baseline: bool = False
    target: int | None = None
    undoes: str | None = None
    why: str = ""
    automatic: bool = False
    draft: str = ""
    target_model: str = ""
    downtime: bool = False
    scaling: dict[str, Any] | None = None
    overwrites: bool = False
    load: str = "local"
    route: dict[str, Any] | None = None
    traffic_steps: tuple[int, ...] = ()
    step_duration_s: float = 0.0
    releases: bool = False
    instant: bool = False

    @property
    def baseline_arm(self) -> Arm:
        """The arm that runs when the operation starts."""
        return Arm(self.baseline)

    @property
    def arm(self) -> Arm:
        """The arm to end with."""
        return Arm(self.text)

    def terms_other_than(self, other: Plan) -> tuple[str, ...]:
        """Names of the terms in which two plans for the same change differ."""
        terms = ["strategy", "policy", "workload", "load", "keep_baseline", "downtime", "traffic_steps"]
        terms += ["step_duration_s"] if self.traffic_steps else []
        named = (t for t in terms if getattr(self, t) != getattr(other, t))
        return tuple(t.removesuffix("_s").replace("_", " ") for t in named)

    def digest(self) -> str:
        """sha256 over the whole plan, for reports: what was promoted was planned like this."""
        return hashlib.sha256(json.dumps(self.to_record(), sort_keys=True).encode()).hexdigest()

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return {**self.__dict__, "policy": self.policy.to_record(), "traffic_steps": [*self.traffic_steps]}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Plan:
        """The value :meth:`to_record` wrote."""
        return cls(
            **{
                **record,
                "kind": Kind(record["kind"]),
                "strategy": Strategy(record["strategy"]),
                "policy": Policy.from_record(record["policy"]),
                "traffic_steps": tuple(record.get("traffic_steps") or ()),
            }
        )


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
