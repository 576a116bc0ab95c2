"""The plan of an operation: everything it will do, pinned when it is opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from mpctl.experiment.users import Placement, UserLoad
from mpctl.gate.policy import Policy
from mpctl.methods import Spec
from mpctl.records import Reader, Writer, decode, encode
from mpctl.rollout.ports import Arm
from mpctl.rollout.revision import SPEC_READER, SPEC_WRITER, Manifest, Revision, spec_text

_WRITERS: dict[type, Writer] = {**SPEC_WRITER, Policy: Policy.to_record, Manifest: Manifest.to_record}
_READERS: dict[type, Reader] = {**SPEC_READER, Policy: Policy.from_record, Manifest: Manifest.from_record}


class Kind(StrEnum):
    """The purpose of an operation: judge a candidate, restore a revision, end a retained baseline, or replace the
    engines by fresh ones of the same spec."""

    ROLLOUT = "rollout"
    ROLLBACK = "rollback"
    RETIRE = "retire"
    RESTART = "restart"


class Strategy(StrEnum):
    """side-by-side: the candidate runs beside the baseline, no downtime, needs capacity for two engines.

    in-place: measure, switch, measure, switch back on a failed gate; one engine at a time, the service is down while
    one starts.
    """

    SIDE_BY_SIDE = "side-by-side"
    IN_PLACE = "in-place"


@dataclass(frozen=True)
class Plan:
    """Everything an operation will do, pinned when it is opened.

    - ``baseline``: the manifest it starts from; ``goal``: the manifest to end with.
    - ``spec`` and ``baseline_spec``: the speculation of each, None where nobody read it.
    - ``workload``: the name of the stored workload; ``load``: where its client runs: local (the machine of the command)
      or job (the cluster), there in ``load_pods`` pods.
    - ``draft``: the head or model that drafts, empty where none is loaded; ``target_model``: the model it drafts for.
    - ``undoes``: the operation that a rollback undoes; ``why``: its cause; ``automatic``: the undone rollout itself
      asked for the rollback, so its command continues with it.
    - ``downtime``: the service may be down while an engine starts.
    - ``scaling``: the autoscaler as it was found, None without one.
    - ``overwrites``: ``baseline`` is another writer's change, which was asked to be overwritten.
    - ``restores``: the revision to restore where ``goal`` also holds what another writer changed, else 0; ``keeps``:
      paths of those fields.
    - ``route``: the users' route as it was found, None where none is touched; ``traffic_steps``: percentages of it that
      the candidate gets one after the other, each held for ``step_duration_s``; ``mirror_percent``: of its requests
      the candidate gets copies before that, for as long; 0 for none.
    - ``by``: the program that decided it by itself, ``watch``; empty for a person.
    - ``releases``: an older retained baseline ends first; ``instant``: for a rollback, the goal's arm was retained and
      gets the route before anything else.
    - ``bake_s``: how long the promoted arm is watched under users' traffic before the rollout ends; ``bake_baseline``:
      where promoted pods are replaced, the baseline is started again for that time.
    - ``placement``: where the arms are measured; ``users``: the load that users brought before, None where nobody read
      it; ``users_share_percent``: the share of users' requests that may meet the candidate while it is measured, 0
      for none.
    - ``prediction``: what the payoff model said before anything was measured, None where it had no figure.
    """

    kind: Kind
    strategy: Strategy
    baseline: Manifest
    goal: Manifest
    spec: Spec | None
    baseline_spec: Spec | None = None
    policy: Policy = field(default_factory=Policy)
    workload: str = ""
    ready_timeout_s: float = 600.0
    keep_baseline: bool = False
    undoes: str | None = None
    why: str = ""
    automatic: bool = False
    draft: str = ""
    target_model: str = ""
    downtime: bool = False
    scaling: dict[str, Any] | None = None
    overwrites: bool = False
    load: str = "local"
    load_pods: int = 1
    route: dict[str, Any] | None = None
    traffic_steps: tuple[int, ...] = ()
    step_duration_s: float = 0.0
    mirror_percent: int = 0
    releases: bool = False
    instant: bool = False
    by: str = ""
    restores: int = 0
    keeps: tuple[str, ...] = ()
    prediction: dict[str, Any] | None = None
    bake_s: float = 0.0
    bake_baseline: bool = False
    placement: Placement = Placement.SERVICE
    users: UserLoad | None = None
    users_share_percent: int = 0

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
        return Arm(self.baseline.text, copy=self.placement.copies_baseline)

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
        terms = [
            "strategy",
            "policy",
            "workload",
            "load",
            "load_pods",
            "keep_baseline",
            "downtime",
            "traffic_steps",
            "mirror_percent",
            "placement",
        ]
        terms += ["step_duration_s"] if self.traffic_steps or self.mirror_percent else []
        named = (t for t in terms if getattr(self, t) != getattr(other, t))
        return tuple(t.removesuffix("_s").replace("_", " ") for t in named)

    def digest(self) -> str:
        """sha256 over the whole plan, for reports; numbers of revisions, given when it is opened, do not count."""
        named = {"baseline": self.baseline.digest, "goal": self.goal.digest}
        return hashlib.sha256(json.dumps({**self.to_record(), **named}, sort_keys=True).encode()).hexdigest()

    def to_record(self) -> dict[str, Any]:
        """A JSON object, without the texts of the manifests."""
        return encode(self, _WRITERS)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Plan:
        """The value :meth:`to_record` wrote, without the texts of the manifests.

        Raises:
            ValueError: a field is missing, unknown or of another type.
        """
        return decode(cls, record, _READERS)
