"""``mpctl report``: a measurement as a page, a comment or a record."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mpctl import annex
from mpctl.app.inspect_requests import ReportRequest
from mpctl.cli.command import SERVICE_AND_RUN, command, formats_option
from mpctl.cli.context import CliContext
from mpctl.cli.printer import document
from mpctl.errors import InputError, MpctlError

if TYPE_CHECKING:
    from mpctl.app.inspect.measured import MeasuredReport


def _html(measured: MeasuredReport) -> str:
    try:
        from mpctl.report.html import html_report
    except ImportError as error:
        raise MpctlError(
            f"the HTML report needs {error.name}, which is not installed",
            hint="pip install 'mpctl[report]'; the other formats need nothing more",
        ) from error
    return html_report(measured.report)


_FORMATS: dict[str, Callable[[MeasuredReport], str]] = {
    "html": _html,
    "md": lambda measured: measured.markdown(),
    "json": lambda measured: document("Report", measured.record(), "json") + "\n",
    "yaml": lambda measured: document("Report", measured.record(), "yaml") + "\n",
}
_ENDINGS = {f".{name}": name for name in _FORMATS}


_SIGNED = "attestation"
_FORM = formats_option(
    *_FORMATS, _SIGNED, text="Format (default: by the ending of --output-file, else md)."
)


@command("report", SERVICE_AND_RUN, ReportRequest, _FORM)
def report(context: CliContext, /, request: ReportRequest, *, form: str | None) -> None:
    """Write a report of a measurement, computed again from its raw samples.

    \b
    Examples:
      mpctl report qwen --open
      mpctl report qwen --output-file report.html
      mpctl report qwen rollout-3 -o md
      mpctl report bench-1a2b3c4d-1.json.gz -o json
      mpctl report qwen rollout-3 -o attestation --output-file verdict.intoto.jsonl

    RUN is a file that mpctl bench wrote, or a rollout as mpctl history names it (default: the last rollout that
    measured). Changes nothing; the exit code does not depend on the verdict.

    html is one page that opens offline, md is for pull requests; json and yaml have all figures. attestation is the
    verdict of a rollout as signed in-toto statements, which mpctl verify and cosign read.
    """
    opens_own_file = request.opens and request.output_file is None
    form = form or "html" if opens_own_file else _choose_format(form, request.output_file)
    if request.opens and form == _SIGNED:
        raise InputError("opens a report, not an attestation", field="--open", hint="leave out -o")
    from mpctl.app.files import report_file, write_whole
    from mpctl.app.inspect.measured import make_report, require_writable

    path = None if request.output_file in (None, "-") else Path(str(request.output_file))
    if path is not None:
        require_writable(path, force=request.force)
    if form == _SIGNED:
        text = annex.need("sign")(context.place, context.terminal, request)
    else:
        measured = make_report(context.place, context.terminal, request)
        text = render(measured, form)
        if opens_own_file:
            path = report_file(measured.service, measured.run, f".{form}")
    if path is None:
        context.terminal.exact(text)
        return
    write_whole(path, text.encode(), option="--output-file")  # a crash leaves the old or the new
    context.terminal.note(f"wrote {path}")
    if request.opens and not webbrowser.open(path.absolute().as_uri()):
        context.terminal.result(str(path))


def render(measured: MeasuredReport, form: str) -> str:
    """Return the text of a report in a format.

    Raises:
        MpctlError: a library that the format needs is not installed.
    """
    return _FORMATS[form](measured)


def _choose_format(form: str | None, file: str | None) -> str:
    """Return the format asked for, else the one of the file's ending, else Markdown."""
    if form == "html" and file is None and sys.stdout.isatty():
        raise InputError(
            "an HTML page is not printed on a terminal",
            field="-o",
            hint="--output-file report.html",
        )
    if form or file is None:
        return form or "md"
    ending = Path(file).suffix.lower()
    if file.endswith(".intoto.jsonl"):
        return _SIGNED
    if ending in _ENDINGS:
        return _ENDINGS[ending]
    raise InputError(
        f"unknown ending {ending!r}; known endings: {', '.join(_ENDINGS)}",
        file=file,
        hint="choose a format with -o",
    )
