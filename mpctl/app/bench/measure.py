"""Measure one or two arms: kept while it runs, continued after an interruption, written to one file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from mpctl import annex
from mpctl.app.bench.arms import Arms, open_servers, open_services
from mpctl.app.bench.recorded import choose_file, write_run
from mpctl.app.bench_requests import BenchRequest
from mpctl.app.console import Console
from mpctl.app.files import read_policy
from mpctl.app.planned_workload import describe_workload, read_workload_with_notes
from mpctl.app.session.base import Place, choose_load_place, who
from mpctl.errors import Conflict, InputError
from mpctl.experiment.block import BASELINE, CANDIDATE
from mpctl.experiment.run import Run
from mpctl.experiment.workload import Workload
from mpctl.gate.analysis import Analysis
from mpctl.gate.assess import judge_run
from mpctl.gate.policy import Policy
from mpctl.gate.rule import Outcome
from mpctl.gate.verdict import Verdict
from mpctl.json_types import Json
from mpctl.platform.file_store import FileStore
from mpctl.platform.state_files import state_root, try_lock
from mpctl.rollout.arm_engines import ArmEngines
from mpctl.rollout.measurement import Measurement
from mpctl.rollout.measurement_records import MeasurementRecords

_EXCLUDED = ("--spec --candidate", "--url --spec")
_NEEDED = {"--set": "--spec", "--spec-config": "--spec", "--model": "--url"}


@dataclass(frozen=True, slots=True)
class BenchMeasurement:
    """A finished measurement and its file; ``verdict`` is None for one arm, ``ended``: why it ended."""

    run: Run
    analysis: Analysis
    verdict: Verdict | None
    file: str
    rounds: int
    ended: str


def bench(place: Place, console: Console, request: BenchRequest) -> BenchMeasurement:
    """Measure the arms that a request names; nothing that serves is changed.

    Raises:
        InputError: an arm is not found, or an option cannot be used.
        Conflict: the same measurement runs in another process.
        MpctlError: an arm cannot be measured; finished blocks are kept.
    """
    _check(request)
    with _open(place, console, request) as arms:
        return measure(console, arms, request)


def _check(request: BenchRequest) -> None:
    """Refuse options that exclude each other, and one that lacks another."""
    speculation = request.speculation
    typed = {
        "--url": request.url,
        "--spec": speculation.method,
        "--candidate": request.candidate,
        "--set": speculation.settings,
        "--spec-config": speculation.config,
        "--model": request.model,
    }
    for first, second in map(str.split, _EXCLUDED):
        if typed[first] and typed[second]:
            raise InputError(f"cannot be combined with {first}", field=second)
    for flag, needed in _NEEDED.items():
        if typed[flag] and not typed[needed]:
            raise InputError(f"needs {needed}", field=flag)
    if request.candidate and ("://" in request.candidate) != bool(request.url):
        raise InputError(
            "a server is compared with a server, a service with a service",
            field="--candidate",
            hint="--url names the other server",
        )
    if request.url and request.service:
        raise InputError(f"cannot be combined with the service {request.service}", field="--url")


def _open(place: Place, console: Console, request: BenchRequest) -> AbstractContextManager[Arms]:
    if not request.url:
        return open_services(place, console, request)
    choose_load_place(request.measurement.load, "local")
    return open_servers(console, request)


def measure(console: Console, arms: Arms, request: BenchRequest) -> BenchMeasurement:
    """Measure the arms and write the file; continues an interrupted measurement of the same arms and workload."""
    workload = read_workload_with_notes(console, request.measurement, request.speculation.accepted)
    policy = _policy_of(request, speculates=arms.speculates)
    if request.measurement.asks_for_variants:
        running = arms.names if request.url or request.candidate else (BASELINE,)
        endpoints = [arms.engine_of(name).endpoint for name in running]
        divide = annex.need("with-variants")
        workload = divide(workload, request.measurement, endpoints, arms.command)
    home = state_root() / "bench"
    directory = _directory_of(home, f"{arms.identity}\n{workload.digest()}")
    run_id = f"bench-{directory.name}"
    file = choose_file(request.run_file, run_id)
    with _locked(home, directory.name):
        store = FileStore(directory, who())
        opened = store.load(run_id, "opened")
        if opened is not None:
            console.note(f"continuing {run_id}, begun {opened['at']}")
        earlier = _earlier(home, directory.name)
        records = _open_records(store, run_id, workload, policy, earlier=earlier)
        to_each = " to each arm" if len(arms.names) > 1 else ""
        console.note(f"{run_id}: {describe_workload(workload)}{to_each}")
        with arms.running():
            engines = ArmEngines(records, arms.meter, console, arms.engine_of)
            ended = Measurement(engines, compares=CANDIDATE in arms.names).measure(arms.names)
        run = records.as_chosen().run()
        write_run(file, run)
        analysis, verdict = judge_run(run, policy, rounds=ended.rounds)
        compared = verdict if CANDIDATE in arms.names else None
        outcome = {"outcome": compared.outcome.value} if compared else {}
        store.save(
            run_id, "finished", {"file": str(Path(file).absolute()), **outcome, **ended.to_record()}
        )
    return BenchMeasurement(run, analysis, compared, file, ended.rounds, ended.ended)


def _policy_of(request: BenchRequest, *, speculates: bool) -> Policy:
    """Return the policy; without one of the user's, an arm that does not speculate needs no drafts."""
    file = request.measurement.policy
    policy = read_policy(file)
    if speculates or file is not None:
        return policy
    return Policy.from_record({**policy.to_record(), "min_tokens_per_step": 0})


@contextmanager
def _locked(home: Path, name: str) -> Iterator[None]:
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = try_lock(home / f"{name}.lock")
    if lock is None:
        raise Conflict(
            f"bench-{name} runs in another process", hint="wait for it, or measure something else"
        )
    try:
        yield
    finally:
        os.close(lock)


def _open_records(
    store: FileStore, run_id: str, workload: Workload, policy: Policy, *, earlier: int
) -> MeasurementRecords:
    """The records of a new measurement, or of the interrupted one of the same command. ``earlier``: measurements of
    the same pair that did not promote."""
    opened: Json | None = store.load(run_id, "opened")
    if opened is None:
        opened = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "who": who()}
        store.save(run_id, "opened", opened)
    created, opened_by = str(opened["at"]), str(opened["who"])
    return MeasurementRecords(
        run_id, created, opened_by, workload, policy, store, earlier=earlier
    ).as_chosen()


def _directory_of(home: Path, identity: str) -> Path:
    """Return the directory of the unfinished measurement of this identity, or of a new one."""
    key = hashlib.sha256(identity.encode()).hexdigest()[:8]
    numbers = sorted(
        (int(p.name.split("-")[1]) for p in home.glob(f"{key}-*") if p.is_dir()), reverse=True
    )
    last = numbers[0] if numbers else 0
    current = home / f"{key}-{last}"
    if last and not (current / "operations" / f"bench-{current.name}" / "finished.json").exists():
        return current
    return home / f"{key}-{last + 1}"


def _earlier(home: Path, name: str) -> int:
    """Count the finished measurements before this one, of the same arms and workload, that did not promote."""
    key, _, number = name.rpartition("-")
    ended = (home / f"{key}-{n}" for n in range(1, int(number)))
    records = (FileStore(d, who()).load(f"bench-{d.name}", "finished") or {} for d in ended)
    return sum(
        record.get("outcome") in (Outcome.REJECT.value, Outcome.UNDECIDED.value)
        for record in records
    )
