"""Find the measurement that a user means: a file of `mpctl bench`, or a rollout of a service."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpctl.app.bench.run_file import read_run
from mpctl.app.console import Console
from mpctl.app.session.base import Session
from mpctl.app.session.open import open_session
from mpctl.app.session.place import Place
from mpctl.errors import InputError, MpctlError
from mpctl.experiment.run import Run
from mpctl.experiment.workload import Workload
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import Verdict, judge_run
from mpctl.gate.policy import Policy
from mpctl.rollout.measurement import Measurement, load_record
from mpctl.rollout.operation import Operation, operations
from mpctl.rollout.plan import Kind

_MEASURES = "'mpctl rollout' and 'mpctl bench' measure"


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


def find_source(place: Place, console: Console, run: str | None, service: str | None) -> Source:
    """Return the measurement of a file, of a named rollout, or of the last rollout that measured.

    Raises:
        InputError: the file is no measurement, or the rollout is not found or measured nothing.
    """
    if run is not None and (run.endswith((".json", ".gz")) or "/" in run or Path(run).is_file()):
        measured = read_run(run)
        if not measured.blocks:
            raise InputError("has no measured block", file=run)
        return Source(measured)
    session = open_session(place, console, service)
    rollouts = [o for o in operations(session.store.entries()) if o.plan.kind is Kind.ROLLOUT and o.plan.workload]
    if run is not None:
        return _of_rollout(session, rollouts, run)
    sources = (_source(session, operation) for operation in reversed(rollouts))
    last = next((source for source in sources if source is not None), None)
    if last is None:
        raise InputError(f"{session.title} has no rollout that measured", hint=_MEASURES)
    return last


def _of_rollout(session: Session, rollouts: list[Operation], name: str) -> Source:
    operation = _pick(session.title, rollouts, name)
    if session.store.load(operation.plan.workload, "workload") is None:
        raise MpctlError(
            f"workload of {operation.id} of {session.title} not found", hint="'mpctl rollout' measures again"
        )
    source = _source(session, operation)
    if source is None:
        raise InputError(
            f"{operation.id} of {session.title} measured nothing", hint="'mpctl history' lists the other rollouts"
        )
    return source


def _pick(title: str, rollouts: list[Operation], name: str) -> Operation:
    if not rollouts:
        raise InputError(f"{title} has no rollout that measured", hint=_MEASURES)
    for operation in rollouts:
        if operation.id == name:
            return operation
    listing = ", ".join(o.id for o in rollouts)
    raise InputError(
        f"rollout {name} of {title} not found", hint=f"rollouts: {listing}; or the path of a file of mpctl bench"
    )


def _source(session: Session, operation: Operation) -> Source | None:
    """Return what a rollout measured, None when it measured nothing."""
    workload = load_record(session.store, operation.plan.workload, "workload", Workload.from_record)
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
    )
    run = measurement.judged()
    if not run.blocks:
        return None
    return Source(run, f"{session.namespace}/{session.name}", max(measurement.rounds(), 1), workload.repeats)
