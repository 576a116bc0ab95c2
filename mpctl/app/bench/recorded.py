"""Finished measurements: of files, of rollouts, and two of them compared."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from mpctl import bounded, commands
from mpctl.app.bench_requests import CompareRequest
from mpctl.app.files import read_policy, write_whole
from mpctl.app.session.base import Session
from mpctl.errors import InputError
from mpctl.experiment.run import Run, arm_of, combine
from mpctl.gate.analysis import Analysis
from mpctl.gate.arms import differences, open_differences
from mpctl.gate.assess import judge_run
from mpctl.gate.policy import Policy
from mpctl.gate.verdict import Verdict
from mpctl.rollout.ledger import Entry
from mpctl.rollout.measurement_records import MeasurementRecords
from mpctl.rollout.operation import Operation, operations
from mpctl.rollout.plan import Kind
from mpctl.rollout.steps.measure import stored_workload

_GZIP = b"\x1f\x8b"
_WRITERS = "a bench writes measurements"


def read_run(path: str) -> Run:
    """Read a measurement that ``mpctl bench`` wrote.

    Raises:
        InputError: the file is missing, damaged, or no measurement, or its policy is none.
    """
    try:
        data = Path(path).read_bytes()
        text = (bounded.gunzip(data) if data.startswith(_GZIP) else data).decode()
        record = bounded.loads(text)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path) from error
    except ValueError as error:
        raise InputError(f"not a measurement: {error}", file=path, hint=_WRITERS) from error
    if not isinstance(record, dict):
        raise InputError("not a measurement: not a JSON object", file=path, hint=_WRITERS)
    run = Run.from_record(record, file=path)
    Policy.from_record(run.policy, file=path)
    return run


def write_run(path: str, run: Run) -> None:
    """Write a measurement so that a crash leaves the old file or the new one.

    Raises:
        MpctlError: the file cannot be written.
    """
    target = Path(path)
    data = json.dumps(run.to_record(), allow_nan=False).encode()
    write_whole(
        target, gzip.compress(data, mtime=0) if target.suffix == ".gz" else data, option="--run"
    )


def choose_file(path: str | None, run_id: str) -> str:
    """Return the file for a measurement; checked before anything is measured.

    Raises:
        InputError: the directory cannot be written to, or the file exists and is not this measurement.
    """
    file = path or f"{run_id}.json.gz"
    parent = Path(file).absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(f"{parent} is not a writable directory", field="--run")
    if Path(file).exists() and not _holds(file, run_id):
        raise InputError(
            "exists already and is not this measurement",
            file=file,
            hint="choose another file with --run",
        )
    return file


def _holds(file: str, run_id: str) -> bool:
    """Return whether the file holds this measurement, written before the command was killed."""
    try:
        return read_run(file).id == run_id
    except InputError:
        return False


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A measurement with its service; ``rounds`` were judged of ``planned``, None for those of the run itself."""

    run: Run
    service: str = ""
    rounds: int | None = None
    planned: int | None = None

    def judge(self, policy: Policy | None = None) -> tuple[Analysis, Verdict]:
        """Judge the measurement again, by its own policy unless another is given."""
        return judge_run(self.run, policy, rounds=self.rounds, planned=self.planned)


def rollouts_of(session: Session, entries: Iterable[Entry] | None = None) -> list[Operation]:
    """The rollouts of a service that measured or were to, oldest first. ``entries``: the ledger, where it was read."""
    ledger = session.store.entries() if entries is None else entries
    return [o for o in operations(ledger) if o.plan.kind is Kind.ROLLOUT and o.plan.workload]


def measured_by(session: Session, operation: Operation) -> FinishedRun | None:
    """Return what a rollout measured, None when it measured nothing; answers that decided alone have no rounds."""
    workload = stored_workload(session.store, operation)
    if workload is None:
        return None
    records = MeasurementRecords.of(operation, workload, session.store)
    run = records.judged()
    if not run.blocks and run.answers is None:
        return None
    return finished_of(session, records, run)


def finished_of(session: Session, records: MeasurementRecords, run: Run) -> FinishedRun:
    """The run of these records with its service and the rounds that were judged."""
    return FinishedRun(
        run,
        f"{session.namespace}/{session.name}",
        max(records.rounds(), 1),
        records.workload.repeats,
    )


_ARMS = ("baseline", "candidate")


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two arms with the gate's verdict; ``differences`` between their measurements: overridden, or other clients."""

    run: Run
    analysis: Analysis
    verdict: Verdict
    differences: tuple[str, ...]


def compare(request: CompareRequest) -> RunComparison:
    """Judge the two arms of one measurement, or one arm of each of two.

    Raises:
        InputError: a file cannot be used, an arm is missing, or the measurements differ in more than their arms.
    """
    differing: tuple[str, ...] = ()
    if request.second is None:
        run = _both_arms(request.first)
    else:
        run, differing = _combined(request.first, request.second, force=request.force)
    policy = read_policy(request.policy_file) if request.policy_file else None
    analysis, verdict = judge_run(run, policy)
    return RunComparison(run, analysis, verdict, differing)


def _both_arms(text: str) -> Run:
    path, arm = _split(text)
    if arm is not None:
        raise InputError(
            f"{text} names one arm",
            hint=f"'{commands.line('bench', 'compare', path)}' compares both arms of the measurement",
        )
    run = read_run(text)
    if len({b.arm for b in run.blocks}) < 2:
        raise InputError("has only one arm", file=text, hint="name a second measurement")
    return run


def _combined(first: str, second: str, *, force: bool) -> tuple[Run, tuple[str, ...]]:
    (baseline_path, baseline_arm), (candidate_path, candidate_arm) = _split(first), _split(second)
    baseline, candidate = read_run(baseline_path), read_run(candidate_path)
    arms = arm_of(baseline, baseline_arm), arm_of(candidate, candidate_arm)
    differing = differences(baseline, arms[0], candidate, arms[1])
    if differing and not force:
        raise InputError(
            f"{baseline_path} and {candidate_path} were measured differently: {'; '.join(differing)}",
            hint="--force compares them anyway",
        )
    if baseline.client != candidate.client:
        differing += (
            f"load client: {baseline.client or 'unknown'} and {candidate.client or 'unknown'}",
        )
    joined = combine(baseline, arms[0], candidate, arms[1])
    every = tuple(difference.name for difference in open_differences(joined.arms, ()))
    return replace(joined, accepted=every if force else joined.accepted), differing


def _split(text: str) -> tuple[str, str | None]:
    path, _, arm = text.rpartition(":")
    return (path, arm) if path and arm in _ARMS else (text, None)
