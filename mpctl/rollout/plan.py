"""The plan of an operation: everything it will do, pinned when it is opened."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from mpctl.gate.policy import Policy
from mpctl.rollout.ports import Arm


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

    @property
    def arms(self) -> tuple[Arm, Arm]:
        """The arms that may be live while the plan is carried out."""
        return (self.baseline_arm, self.arm)

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
                "policy": Policy.from_stored(record["policy"]),
                "traffic_steps": tuple(record.get("traffic_steps") or ()),
            }
        )
