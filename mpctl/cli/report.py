"""``mpctl report``: a measurement as a page, a comment, test results or records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from mpctl.cli.options.shared import own_output_option, shared_options
from mpctl.cli.options.types import File, option
from mpctl.cli.settings import Settings
from mpctl.errors import InputError, MpctlError

if TYPE_CHECKING:
    from mpctl.app.session.base import Session
    from mpctl.experiment.run import Run
    from mpctl.report.values import Report
    from mpctl.rollout.operation import Operation

_FORMATS = ("html", "md", "json", "yaml", "junit", "csv")
_BY_ENDING = {
    ".html": "html",
    ".htm": "html",
    ".md": "md",
    ".json": "json",
    ".yaml": "yaml",
    ".xml": "junit",
    ".csv": "csv",
}
# How a file of ours begins, by which one is told from a file of somebody else that stands in its way.
_OURS = (
    'content="mpctl report"',
    "<!-- mpctl report -->",
    '"kind": "Report"',
    "kind: Report",
    "mpctl report",
    "arm,traffic,",
)
_HEAD = 2000


class Source(NamedTuple):
    """A run and how far it was judged; ``service`` as people call it."""

    run: Run
    service: str = ""
    look: int | None = None
    looks: int | None = None


@click.command("report")
@click.argument("run", required=False, metavar="[RUN]")
@option("-s", "--service", metavar="NAME", help="Service whose rollout is meant; default: the only one.")
@own_output_option(
    _FORMATS,
    help="html: one page that opens offline. md: for a pull request. junit: for CI. json, yaml: all figures. csv: "
    "every sample. Default: by the ending of --output-file, else md. Read from here alone, not from MPCTL_OUTPUT.",
)
@option("--output-file", type=File(), metavar="FILE", help="Where to write; default: standard output.")
@option("--force", is_flag=True, help="Overwrite a file that is no report.")
@option("--prices", type=File(), metavar="FILE", help="Your prices instead of the table that comes with mpctl; YAML.")
@option(
    "--policy", type=File(), metavar="FILE", help="Judge by these limits instead of those it was measured with; YAML."
)
@shared_options
@click.pass_context
def command(ctx: click.Context, /, run: str | None, **options: Any) -> None:
    """Write a report of a measurement, computed again from its raw samples.

    RUN is a file that mpctl bench wrote, or a rollout of a service as mpctl history names it; without it, the last
    rollout that measured something. Nothing is changed, and the exit code does not depend on the verdict.

    \b
    Examples:
      mpctl report --output-file report.html
      mpctl report rollout-3 -o md
      mpctl report bench-1a2b3c4d-1.json.gz -o junit --output-file TEST-gate.xml
    """
    settings = Settings.of(ctx, options)
    form = _format(options["output"], options["output_file"])
    target = _target(options["output_file"], force=options["force"])
    source = find_source(settings, run, options["service"])
    text = render(source, form, prices=options["prices"], policy=options["policy"])
    if target is None:
        settings.terminal.exact(text)
        return
    _write(target, text)
    settings.terminal.note(f"wrote {target}")


def render(source: Source, form: str, *, prices: str | None = None, policy: str | None = None) -> str:
    """The text of a report in one of the formats.

    Raises:
        InputError: a file of prices or of limits is wrong.
        MpctlError: a library that the format needs is not installed.
    """
    if form == "csv":
        from mpctl.report.samples import samples_csv

        return samples_csv(source.run)
    report = _report(source, prices, policy)
    if form == "html":
        from mpctl.report.html import html_report

        return html_report(report)
    if form == "junit":
        from mpctl.report.junit import junit_report

        return junit_report(report)
    if form == "md":
        from mpctl.report.markdown import markdown_report

        return markdown_report(report)
    from mpctl.cli.printer import document

    return document("Report", report.to_record(), form) + "\n"


def _report(source: Source, prices: str | None, policy: str | None) -> Report:
    from mpctl.app.files import read_file
    from mpctl.cli.request import read_policy
    from mpctl.report.build import build_report
    from mpctl.report.prices import read_prices, shipped_prices
    from mpctl.rollout.measurement import judge_run

    table = read_prices(read_file(prices, "prices"), file=prices) if prices else shipped_prices()
    limits = read_policy(policy) if policy else source.run.policy
    analysis, verdict = judge_run(source.run, limits, look=source.look, looks=source.looks)
    return build_report(source.run, analysis, verdict, table, service=source.service)


def _format(asked: str | None, file: str | None) -> str:
    if asked:
        if asked == "html" and file is None and sys.stdout.isatty():
            raise InputError("a page is not for a terminal", field="-o", hint="--output-file report.html")
        return asked
    if file is None:
        return "md"
    ending = Path(file).suffix.lower()
    if ending not in _BY_ENDING:
        known = ", ".join(_BY_ENDING)
        raise InputError(f"the ending {ending or 'of no name'} says no format; known are {known}", file=file, hint="-o")
    return _BY_ENDING[ending]


def _target(file: str | None, *, force: bool) -> Path | None:
    """Where to write; found out before anything is computed.

    Raises:
        InputError: the directory is not there, or something that is no report is in the way.
    """
    if file is None or file == "-":
        return None
    path = Path(file)
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path.absolute().parent} is no directory", file=file, field="--output-file")
    if path.is_dir():
        raise InputError("is a directory", file=file, field="--output-file")
    if path.exists() and not force:
        try:
            with path.open("rb") as stream:
                head = stream.read(_HEAD).decode(errors="replace")
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", file=file) from error
        if head.strip() and not any(mark in head for mark in _OURS):
            raise InputError("is there already and is no report", file=file, hint="another name, or --force")
    return path


def _write(path: Path, text: str) -> None:
    """A crash leaves the old file or the new one."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(path)
    except OSError as error:
        raise MpctlError(f"{path} cannot be written: {error.strerror}", hint="choose another --output-file") from error


def find_source(settings: Settings, run: str | None, service: str | None) -> Source:
    """A file, or an operation of a service."""
    if run is not None and (run.endswith((".json", ".gz")) or "/" in run or Path(run).is_file()):
        from mpctl.cli.runs import read_run

        found = read_run(run)
        if not found.blocks:
            raise InputError("holds no measured block", file=run)
        return Source(found)
    return _measured(settings, run, service)


def _measured(settings: Settings, name: str | None, service: str | None) -> Source:
    from mpctl.app.session.open import open_session
    from mpctl.rollout.operation import operations
    from mpctl.rollout.plan import Kind

    session = open_session(settings.place, settings.terminal, service)
    every = operations(session.store.entries())
    known = [o for o in every if o.plan.kind is Kind.ROLLOUT and o.plan.workload]
    if name is None:  # the last one that measured something
        sources = (_source(settings, session, operation) for operation in reversed(known))
        found = next((s for s in sources if s is not None), None)
        if found is None:
            raise InputError(
                f"{session.title} has no rollout that measured", hint="mpctl rollout or mpctl bench measures"
            )
        return found
    operation = _pick(session.title, known, name)
    if session.store.load(operation.plan.workload, "workload") is None:
        raise MpctlError(
            f"the workload of {operation.id} of {session.title} is gone", hint="mpctl rollout measures anew"
        )
    chosen = _source(settings, session, operation)
    if chosen is None:
        raise InputError(f"{operation.id} of {session.title} measured nothing", hint="mpctl history names the others")
    return chosen


def _source(settings: Settings, session: Session, operation: Operation) -> Source | None:
    """What a rollout measured, or None."""
    from mpctl.experiment.workload import Workload
    from mpctl.rollout.measurement import Measurement, load_record

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
        progress=settings.terminal,
        target=unused,
    )
    run = measurement.judged()
    if not run.blocks:
        return None
    return Source(run, f"{session.namespace}/{session.name}", max(measurement.rounds(), 1), workload.repeats)


def _pick(title: str, known: list[Operation], name: str) -> Operation:
    if not known:
        raise InputError(f"{title} has no rollout that measured", hint="mpctl rollout or mpctl bench measures")
    for operation in known:
        if operation.id == name:
            return operation
    listing = ", ".join(o.id for o in known)
    raise InputError(
        f"{title} has no rollout {name}; there are: {listing}", hint="or the path of a file of mpctl bench"
    )
