"""The plan of a service: for each method the preflight, the memory it needs, and the predicted gain."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mpctl.app.change import Change
from mpctl.app.plan.cost import PlannedCost
from mpctl.estimate.memory import Estimate
from mpctl.estimate.payoff.advice import Advice
from mpctl.estimate.payoff.grid import Change as Moved
from mpctl.estimate.payoff.grid import Choice, Grid
from mpctl.estimate.payoff.record import grid_record


@dataclass(frozen=True)
class Refusal:
    """The reason that a method has no figure, and a hint to get one."""

    reason: str
    hint: str | None = None


@dataclass(frozen=True)
class Needs:
    """Needs of a rollout of a method: GPUs besides those that serve, the staging mode of the draft, and notes on
    time and downtime."""

    gpus: int
    staging: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class MethodPlan:
    """One method. ``change``: with the findings of the preflight; None where no change can be made. ``grid`` or
    ``refusal``. ``learned``: what measured pairs changed. ``schedule``: K by batch size. ``rows`` of evidence."""

    method: str
    change: Change | None
    grid: Grid | None = None
    refusal: Refusal | None = None
    evidence: str = ""
    learned: str = ""
    changes: tuple[Moved, ...] = ()
    cost: PlannedCost | None = None
    needs: Needs | None = None
    advice: tuple[Advice, ...] = ()
    schedule: str = ""
    assumed: tuple[str, ...] = ()

    @property
    def last(self) -> Choice | None:
        """The advice for the highest concurrency."""
        return self.grid.choices[-1] if self.grid else None

    @property
    def refused(self) -> bool:
        """Return whether the preflight forbids the change."""
        return self.change is None or bool(self.change.refusals)

    @property
    def rank(self) -> tuple[bool, float]:
        """Sorts methods, the best first: those that can run, by the throughput ratio at the highest concurrency."""
        last = self.last
        return self.refused, -(last.entry.prediction.throughput.value if last else 0.0)

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        record: dict[str, Any] = {"method": self.method}
        if self.change is not None:
            record |= {
                "speculation": self.change.spec.config(),
                "draft": self.change.draft_name or None,
                "findings": [dict(f.__dict__) for f in self.change.findings],
                "unchecked": list(self.change.checked.unchecked),
                "canRun": not self.change.refusals,
                "diff": self.change.diff(),
                "kvPoolTokens": pool_record(self.change.checked.memory),
            }
        if self.refusal is not None:
            record["refused"] = {"reason": self.refusal.reason, "hint": self.refusal.hint}
        if self.grid is not None:
            record |= {"evidence": self.evidence, "learned": self.learned, "assumed": list(self.assumed)}
            record |= grid_record(self.grid, self.changes)
        record["cost"] = self.cost.to_record() if self.cost else None
        record["needs"] = {**self.needs.__dict__, "notes": list(self.needs.notes)} if self.needs else None
        record["advice"] = [dict(advice.__dict__) for advice in self.advice]
        record["schedule"] = self.schedule or None
        return record


def pool_record(memory: Estimate | None) -> dict[str, Any] | None:
    """The KV pool in tokens without and with the draft, from the pessimistic to the optimistic end."""
    if memory is None:
        return None
    before, after = memory.before, memory.after
    return {"before": [before.low, before.high], "after": [after.low, after.high], "basis": memory.basis}


@dataclass(frozen=True)
class ServicePlan:
    """All methods of one service, the best first. ``gpu``: its name as it was known; ``lengths``: of a request."""

    name: str
    namespace: str
    target: str
    gpu: str
    prompt: float
    output: float
    methods: tuple[MethodPlan, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        """``namespace/name``."""
        return "/".join(filter(None, (self.namespace, self.name)))

    @property
    def best(self) -> MethodPlan | None:
        """The first method that can run and has a figure."""
        return next((method for method in self.methods if not method.refused and method.grid is not None), None)

    def to_record(self) -> dict[str, Any]:
        """A JSON object."""
        return {
            "service": self.title,
            "target": self.target,
            "gpu": self.gpu,
            "promptTokens": self.prompt,
            "outputTokens": self.output,
            "notes": list(self.notes),
            "methods": [method.to_record() for method in self.methods],
        }
