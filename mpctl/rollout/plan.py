"""The plan of an operation: everything it will do, pinned when it is opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from mpctl.experiment.users import Placement, UserLoad
from mpctl.gate.policy import Policy
from mpctl.json_types import Json
from mpctl.methods import Spec, spec_text
from mpctl.records import Record
from mpctl.rollout.ports import Arm
from mpctl.rollout.revision import Manifest, Revision


class Kind(StrEnum):
    """The purpose of an operation: judge a candidate, restore a revision, end a retained baseline, or replace the
    engines by fresh ones of the same spec."""

    ROLLOUT = "rollout"
    ROLLBACK = "rollback"
    RETIRE = "retire"
    RESTART = "restart"
    REFRESH = "refresh"  # a training of an earlier version, which changed nothing that serves


class Strategy(StrEnum):
    """side-by-side: the candidate runs beside the baseline, no downtime, needs capacity for two engines.

    in-place: measure, switch, measure, switch back on a failed gate; one engine at a time, the service is down while
    one starts.
    """

    SIDE_BY_SIDE = "side-by-side"
    IN_PLACE = "in-place"


@dataclass(frozen=True)
class UsersPlan(Record):
    """Where the arms are measured, and what users have to do with it."""

    placement: Placement = Placement.SERVICE
    load: UserLoad | None = None  # that users brought before; None where nobody read it
    share_percent: int = (
        0  # share of users' requests that may meet the candidate while it is measured
    )


@dataclass(frozen=True)
class TrafficPlan(Record):
    """Users' requests that the candidate gets once the gate has promoted it, before it becomes the service."""

    steps: tuple[int, ...] = ()  # percentages of the requests, one after the other
    step_duration_s: float = 0.0  # how long each of them and the mirror lasts
    mirror_percent: int = 0  # of the requests, copied to the candidate before the first step

    @property
    def reaches_candidate(self) -> bool:
        """True when the candidate gets requests or copies of them."""
        return bool(self.steps or self.mirror_percent)


@dataclass(frozen=True)
class BakePlan(Record):
    """The time for which the promoted arm is watched under users' traffic before the rollout ends."""

    seconds: float = 0.0
    restarts_baseline: bool = (
        False  # where pods are replaced, the baseline is started again for that time
    )


@dataclass(frozen=True)
class RollbackPlan(Record):
    """What a rollback undoes, and how."""

    undoes: str | None = None  # the operation
    automatic: bool = (
        False  # the undone rollout itself asked for it, so its command continues with it
    )
    uses_retained_baseline: bool = False  # gives it the route before anything else
    # Where the goal also has another writer's changes: the revision to restore, else 0; and the paths of those changes.
    restored_revision: int = 0
    kept_fields: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan(Record):
    """Everything an operation will do, pinned when it is opened. A record has the manifests without their texts."""

    GONE = frozenset({"cause"})

    kind: Kind
    strategy: Strategy
    baseline: Manifest  # the operation starts from it
    goal: Manifest  # and ends with it
    spec: Spec | None  # the goal's speculation; None where nobody read it
    baseline_spec: Spec | None = None
    policy: Policy = field(default_factory=Policy)
    workload: str = ""  # name of the stored workload
    ready_timeout_s: float = 600.0
    keep_baseline: bool = False
    why: str = ""  # the cause of a rollback
    draft: str = ""  # the head or model that drafts; empty where none is loaded
    target_model: str = ""  # the model it drafts for
    downtime: bool = False  # the service may be down while an engine starts
    scaling: Json | None = None  # the autoscaler as it was found; None without one
    overwrites: bool = (
        False  # ``baseline`` is another writer's change, which was asked to be overwritten
    )
    load: str = "local"  # where the load client runs: local (the machine of the command) or job (the cluster)
    route: Json | None = None  # users' route as it was found; None where none is touched
    users: UsersPlan = UsersPlan()
    traffic: TrafficPlan = TrafficPlan()
    bake: BakePlan = BakePlan()
    rollback: RollbackPlan = RollbackPlan()
    deletes_retained_baseline: bool = False  # an older rollout's, before anything starts
    by: str = ""  # the program that decided by itself, ``watch``; empty for a person
    prediction: Json | None = (
        None  # the payoff model's, before anything was measured; None without a figure
    )
    fidelity: str = (
        "off"  # the pass of answers before speed: one of experiment.answer_sets.FIDELITIES
    )
    earlier: int = 0  # measurements of the same pair that did not promote, across which the gate's error is spent
    engine: dict[str, str] = field(
        default_factory=dict
    )  # what decides its answers besides speculation

    @property
    def baseline_arm(self) -> Arm:
        """The arm that runs when the operation starts."""
        return Arm(self.baseline.text)

    @property
    def arm(self) -> Arm:
        """The arm to end with."""
        return Arm(self.goal.text)

    @property
    def arms(self) -> tuple[Arm, Arm]:
        """The arms that may be live while the plan is carried out."""
        return (self.baseline_arm, self.arm)

    def name_of(self, arm: Arm) -> str:
        """The arm as messages name it."""
        if self.kind is Kind.ROLLOUT:
            return "the candidate" if arm == self.arm else "the baseline"
        return f"the engine with {self.spec_text}"

    @property
    def measured_baseline(self) -> Arm:
        """The baseline that is measured: a copy of it where users are on the service."""
        return Arm(self.baseline.text, copy=self.users.placement.copies_baseline)

    @property
    def spec_text(self) -> str:
        """The goal's speculation for people."""
        return spec_text(self.spec)

    @property
    def baseline_text(self) -> str:
        """The baseline's speculation for people."""
        return spec_text(self.baseline_spec)

    def read(self, revisions: Iterable[Revision]) -> Plan:
        """The plan with the texts of both manifests, from their revisions.

        Raises:
            MpctlError: a revision is lost, or holds another text than the plan was made for.
        """
        every = tuple(revisions)
        return replace(self, baseline=self.baseline.read(every), goal=self.goal.read(every))

    def terms_other_than(self, other: Plan) -> tuple[str, ...]:
        """Names of the terms in which two plans for the same change differ."""
        theirs = other._terms()
        return tuple(name for name, term in self._terms().items() if term != theirs[name])

    def _terms(self) -> dict[str, object]:
        traffic = self.traffic
        return {
            "strategy": self.strategy,
            "policy": self.policy,
            "workload": self.workload,
            "load": self.load,
            "keep baseline": self.keep_baseline,
            "downtime": self.downtime,
            "traffic steps": traffic.steps,
            "mirror percent": traffic.mirror_percent,
            "placement": self.users.placement,
            "fidelity": self.fidelity,
            "step duration": traffic.reaches_candidate and traffic.step_duration_s,
        }

    def digest(self) -> str:
        """sha256 over the whole plan, for reports; numbers of revisions, given when it is opened, do not count."""
        named = {"baseline": self.baseline.digest, "goal": self.goal.digest}
        return hashlib.sha256(
            json.dumps({**self.to_record(), **named}, sort_keys=True).encode()
        ).hexdigest()
