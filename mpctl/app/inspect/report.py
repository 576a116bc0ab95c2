"""Report on a measurement, computed again from its raw samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mpctl.app.bench.recorded import Source
from mpctl.app.console import Console
from mpctl.app.files import read_file
from mpctl.app.inspect.run_source import find_source
from mpctl.app.policy import read_policy
from mpctl.app.requests import ReportRequest
from mpctl.app.session.place import Place
from mpctl.errors import InputError, MpctlError
from mpctl.experiment.run import Run
from mpctl.report.build import build_report
from mpctl.report.prices import read_prices, shipped_prices
from mpctl.report.values import Report

# How a file that mpctl report wrote begins; other files are overwritten with --force only.
_MARKS = (
    'content="mpctl report"',
    "<!-- mpctl report -->",
    '"kind": "Report"',
    "kind: Report",
    "mpctl report",
    "arm,traffic,",
)
_HEAD = 2000


@dataclass(frozen=True, slots=True)
class MeasuredReport:
    """A report with the measurement behind it."""

    run: Run
    report: Report


def make_report(place: Place, console: Console, request: ReportRequest) -> MeasuredReport:
    """Find the measurement, judge it again and report on it.

    Raises:
        InputError: the measurement is not found, or a file of prices or of the policy cannot be used.
    """
    source = find_source(place, console, request.run, request.service)
    return report_on(source, prices_file=request.prices_file, policy_file=request.policy_file)


def report_on(source: Source, *, prices_file: str | None = None, policy_file: str | None = None) -> MeasuredReport:
    """Report on a measurement, by its own policy and the shipped prices unless files replace them.

    Raises:
        InputError: a file cannot be used.
    """
    prices = read_prices(read_file(prices_file, "prices"), file=prices_file) if prices_file else shipped_prices()
    analysis, verdict = source.judge(read_policy(policy_file) if policy_file else None)
    return MeasuredReport(source.run, build_report(source.run, analysis, verdict, prices, service=source.service))


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
        raise InputError("exists already and is not a report", file=file, hint="choose another file, or --force")


def _is_report(path: Path) -> bool:
    """Return whether a file is empty or begins as a report of mpctl does."""
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD).decode(errors="replace")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from error
    return not head.strip() or any(mark in head for mark in _MARKS)


def write_report(path: Path, text: str) -> None:
    """Write a report so that a crash leaves the old file or the new one.

    Raises:
        MpctlError: the file cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(path)
    except OSError as error:
        raise MpctlError(f"{path} cannot be written: {error.strerror}", hint="choose another --output-file") from error
