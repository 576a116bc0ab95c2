"""Judge a finished measurement again: a report on it, or an explanation of its verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mpctl.app.bench.recorded import FinishedRun, measured_by, read_run, rollouts_of
from mpctl.app.console import Console
from mpctl.app.files import read_policy
from mpctl.app.inspect_requests import ExplainRequest, ReportRequest, is_file
from mpctl.app.session.base import Place, Session
from mpctl.app.session.open import open_session
from mpctl.errors import InputError, MpctlError
from mpctl.experiment.run import Run
from mpctl.gate.analysis import Analysis
from mpctl.gate.decomposition import Decomposition
from mpctl.gate.policy import Policy
from mpctl.gate.verdict import Verdict
from mpctl.json_types import Json
from mpctl.report.build import build_report
from mpctl.report.markdown import markdown_report
from mpctl.report.record import report_record
from mpctl.report.values import Report
from mpctl.rollout.operation import Operation


def find_source(
    place: Place, console: Console, run: str | None, service: str | None
) -> FinishedRun:
    """Return the measurement of a file, of a named rollout, or of the last rollout that measured.

    Raises:
        InputError: the file is no measurement, or the rollout is not found or measured nothing.
    """
    if run is not None and is_file(run):
        measured = read_run(run)
        if not measured.blocks:
            raise InputError("has no measured block", file=run)
        return FinishedRun(measured)
    return find_rollout(open_session(place, console, service), run)[1]


def find_rollout(session: Session, run: str | None) -> tuple[Operation, FinishedRun]:
    """Return the named rollout, else the last one that measured, with its measurement.

    Raises:
        InputError: the rollout is not found or measured nothing.
    """
    rollouts = rollouts_of(session)
    if run is not None and rollouts:
        return _of_rollout(session, rollouts, run)
    sources = ((operation, measured_by(session, operation)) for operation in reversed(rollouts))
    last = next(((operation, source) for operation, source in sources if source is not None), None)
    if last is None:
        raise InputError(f"{session.title} has no rollout that measured", hint=_measures(session))
    return last


def _measures(session: Session) -> str:
    rollout, bench = session.command("rollout", "--spec", "METHOD"), session.command("bench")
    return f"'{rollout}' and '{bench}' measure"


def _of_rollout(
    session: Session, rollouts: list[Operation], name: str
) -> tuple[Operation, FinishedRun]:
    operation = next((operation for operation in rollouts if operation.id == name), None)
    if operation is None:
        listing = ", ".join(o.id for o in rollouts)
        raise InputError(
            f"rollout {name} of {session.title} not found",
            hint=f"rollouts: {listing}; or the path of a file that a bench wrote",
        )
    if session.store.load(operation.plan.workload, "workload") is None:
        raise MpctlError(
            f"workload of {operation.id} of {session.title} not found", hint=_measures(session)
        )
    source = measured_by(session, operation)
    if source is None:
        raise InputError(
            f"{operation.id} of {session.title} measured nothing",
            hint=f"'{session.command('history')}' lists the other rollouts",
        )
    return operation, source


# How a file that mpctl report wrote begins; other files are overwritten with --force only.
_MARKS = (
    'content="mpctl report"',
    "<!-- mpctl report -->",
    '"kind": "Report"',
    "kind: Report",
    '{"payload": ',
)
_HEAD = 2000


@dataclass(frozen=True, slots=True)
class MeasuredReport:
    """A report with the measurement behind it."""

    run: Run
    report: Report
    service: str = ""  # NAMESPACE/NAME; empty for a measurement of none

    def markdown(self) -> str:
        """Return the report as a comment of a pull request."""
        return markdown_report(self.report)

    def record(self) -> Json:
        """Return the report with all figures."""
        return report_record(self.report)


def make_report(place: Place, console: Console, request: ReportRequest) -> MeasuredReport:
    """Find the measurement, judge it again and report on it.

    Raises:
        InputError: the measurement is not found, or the policy file cannot be used.
    """
    source = find_source(place, console, request.run, request.service)
    return report_on(source, policy_file=request.policy_file, price_per_hour=request.price_per_hour)


def report_on(
    source: FinishedRun, *, policy_file: str | None = None, price_per_hour: float | None = None
) -> MeasuredReport:
    """Report on a measurement, by its own policy unless a file replaces it. ``price_per_hour`` of one engine, USD.

    Raises:
        InputError: the file cannot be used.
    """
    analysis, verdict = source.judge(read_policy(policy_file) if policy_file else None)
    report = build_report(
        source.run, analysis, verdict, service=source.service, price_per_hour=price_per_hour
    )
    return MeasuredReport(source.run, report, source.service)


def require_writable(path: Path, *, force: bool) -> None:
    """Refuse an output file before anything is computed.

    Raises:
        InputError: the directory does not exist, or the file exists and is not a report.
    """
    file, field = str(path), "--output-file"
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path.absolute().parent} is not a directory", file=file, field=field)
    if path.is_dir():
        raise InputError("is a directory", file=file, field=field)
    if path.exists() and not force and not _is_report(path):
        raise InputError(
            "exists already and is not a report", file=file, hint="choose another file, or --force"
        )


def _is_report(path: Path) -> bool:
    """Return whether a file is empty or begins as a report of mpctl does."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD).decode(errors="replace")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from error
    return not head.strip() or any(mark in head for mark in _MARKS)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict with the measurement and the analysis it judges, and per traffic condition the factors of the measured
    ratio."""

    run: Run
    analysis: Analysis
    verdict: Verdict
    decompositions: tuple[Decomposition | None, ...]


def explain_policy(request: ExplainRequest) -> Policy:
    """Return the policy to explain.

    Raises:
        InputError: the policy file cannot be used.
    """
    return read_policy(request.policy_file)


def explain_run(place: Place, console: Console, request: ExplainRequest) -> Explanation:
    """Judge a measurement again, and decompose its throughput ratio.

    Raises:
        InputError: the measurement is not found, or the policy file cannot be used.
    """
    policy = read_policy(request.policy_file) if request.policy_file else None
    source = find_source(place, console, request.run, request.service)
    analysis, verdict = source.judge(policy)
    parts = tuple(Decomposition.of(comparison) for comparison in analysis.cells)
    return Explanation(source.run, analysis, verdict, parts)
