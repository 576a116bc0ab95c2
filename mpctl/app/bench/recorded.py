"""Measurements of a service's rollouts, read from its records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mpctl.app.session.base import Session
from mpctl.experiment.run import Run
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import judge_run
from mpctl.gate.policy import Policy
from mpctl.gate.verdict import Verdict
from mpctl.rollout.ledger import Entry
from mpctl.rollout.measurement import Measurement
from mpctl.rollout.operation import Operation, operations
from mpctl.rollout.plan import Kind
from mpctl.rollout.steps.measure import stored_workload


@dataclass(frozen=True, slots=True)
class Source:
    """A measurement with its service; ``rounds`` were judged of ``planned``, None for those of the run itself."""

    run: Run
    service: str = ""
    rounds: int | None = None
    planned: int | None = None

    def judge(self, policy: Policy | None = None) -> tuple[Analysis, Verdict]:
        """Judge the measurement again, by its own policy unless another is given."""
        return judge_run(self.run, policy or self.run.policy, rounds=self.rounds, planned=self.planned)


def rollouts_of(session: Session, entries: Iterable[Entry] | None = None) -> list[Operation]:
    """The rollouts of a service that measured or were to, oldest first. ``entries``: the ledger, where it was read."""
    ledger = session.store.entries() if entries is None else entries
    return [o for o in operations(ledger) if o.plan.kind is Kind.ROLLOUT and o.plan.workload]


def measured_by(session: Session, operation: Operation) -> Source | None:
    """Return what a rollout measured, None when it measured nothing."""
    workload = stored_workload(session.store, operation)
    if workload is None:
        return None
    unused: Any = None  # reading needs neither an engine nor a load client
    measurement = Measurement(
        id=operation.id,
        created=operation.opened_at,
        who=operation.who,
        workload=workload,
        policy=operation.plan.policy,
        store=session.store,
        meter=unused,
        progress=session.console,
        target=unused,
        placement=operation.plan.placement,
        users=operation.plan.users,
    )
    run = measurement.judged()
    if not run.blocks:
        return None
    return Source(run, f"{session.namespace}/{session.name}", max(measurement.rounds(), 1), workload.repeats)
