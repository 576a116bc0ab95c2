"""A change that is not made: ``mpctl diff``, ``preflight`` and ``render``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mpctl.app.inspect_requests import ChangeRequest, DiffRequest, RenderRequest
from mpctl.app.option import File, Option
from mpctl.cli.command import FILE, OUTPUT, SHOW_SECRETS, command, presentable, service_argument
from mpctl.cli.context import CliContext
from mpctl.cli.printer import columns, page, page_width, paragraph
from mpctl.errors import InputError

if TYPE_CHECKING:
    from mpctl.app.change import Change
    from mpctl.app.change.source import FileSource
    from mpctl.app.inspect.preflight import PreflightAnswer

_FAILED = 2  # of diff: 1 means that something differs
_WIDTH = 100
_MANIFEST = (
    FILE,
    Option(
        "--shared-runtime",
        type=bool,
        help="Change the file's ServingRuntime: every service that uses it changes.",
    ),
    Option(
        "--values",
        type=File,
        metavar="FILE|-",
        help="Read a file of Helm values instead of a manifest.",
    ),
    Option(
        "--chart-key",
        metavar="PATH",
        help="Key of the engine's arguments in the values, such as engine.args (default: by the chart's layout).",
    ),
)


@command(
    "diff",
    service_argument(),
    *_MANIFEST,
    DiffRequest,
    common="file revision spec set draft",
)
def diff(context: CliContext, /, name: str | None, request: DiffRequest, **source: Any) -> int:
    """Show what differs. Exit code 0: nothing, 1: something, more: an error (2 where it has no code of its own).

    \b
    Examples:
      mpctl diff                      since the revision before
      mpctl diff --revision 1
      mpctl diff --spec ngram         what a rollout would change
      mpctl diff -f service.yaml --spec ngram
    """
    context.failure = _FAILED
    from mpctl.app.inspect import history

    manifest = _open_manifest(name, **source)
    text = (
        history.diff(context.open_session(name), request)
        if manifest is None
        else history.diff_of_manifest(manifest, request)
    )
    if text:
        context.terminal.result(text)
    return 1 if text else 0


@command(
    "preflight",
    service_argument(),
    *_MANIFEST,
    ChangeRequest,
    OUTPUT,
    common="file spec set draft gpu staging accept refuse output verbose",
)
def preflight(
    context: CliContext, /, name: str | None, request: ChangeRequest, **source: Any
) -> None:
    """Check a change without making it: what forbids it, what speaks against it, what could not be checked.

    \b
    Examples:
      mpctl preflight --spec eagle3 --draft /models/head
      mpctl preflight --spec eagle3 -v                       with the draft's staging
      mpctl preflight --spec ngram -o json
      mpctl preflight -f service.yaml --spec ngram           a manifest, before it is applied
    """
    from mpctl.app.inspect.preflight import preflight as check

    manifest = _open_manifest(name, **source)
    checked = check(manifest or context.open_session(name), request)
    context.emit(
        "Preflight",
        record=checked.to_record,
        names=lambda: [finding.id for finding in checked.change.findings],
        table=lambda wide: _explained(context, checked.change, wide=wide),
    )
    _remarks(context, checked)
    checked.change.require_allowed()
    done = "rollout with the same options measures it"
    context.terminal.note(
        done if manifest is None else "render with the same options prints the changed manifest"
    )


@command(
    "render",
    service_argument(),
    *_MANIFEST,
    RenderRequest,
    SHOW_SECRETS,
    common="file values chart-key shared-runtime candidate spec set draft",
)
def render(
    context: CliContext,
    /,
    name: str | None,
    request: RenderRequest,
    *,
    show_secrets: bool,
    **manifest: Any,
) -> None:
    """Print the manifest with another speculative setting, for Argo CD, Flux, Helm or kubectl to apply.

    \b
    Examples:
      mpctl render -f service.yaml --spec ngram > changed.yaml
      mpctl render -f service.yaml --spec ngram --candidate >> service.yaml
      mpctl render -f runtime.yaml --shared-runtime --spec ngram
      mpctl render --values values.yaml --chart-key engine.args --spec ngram

    Only the bytes of the setting change; other documents of the file stay as they are. Every kind of
    docs/reference/kinds.md is read. Findings of the preflight go to standard error; a refusal prints no manifest.
    Secrets of a running service's manifest are hidden; a file's are not.
    """
    from mpctl.app.inspect.preflight import render as change

    file = _open_manifest(name, **manifest)
    source = file or context.open_session(name)
    rendered = change(source, context.terminal, request)
    shown = show_secrets or file is not None
    context.terminal.exact(presentable(context.terminal, rendered.text, show_secrets=shown))
    if rendered.unchanged:
        unread = rendered.change.before.unread() if rendered.change.spec.is_none else ()
        where = f" in this manifest; not read: {', '.join(unread)}" if unread else ""
        context.terminal.note(f"{source.name} already has {rendered.change.spec.describe()}{where}")


def _open_manifest(
    name: str | None,
    *,
    file: str | None,
    shared_runtime: bool,
    values: str | None,
    chart_key: str | None,
) -> FileSource | None:
    """The service of a manifest, of its runtime or of Helm values; None when no file is named.

    Raises:
        InputError: the options exclude each other, or the file cannot be read.
    """
    from mpctl.app.change.source import FileSource, open_values

    if values is not None and (file is not None or shared_runtime):
        other = "--shared-runtime" if shared_runtime else "-f"
        raise InputError(f"cannot be combined with {other}", field="--values")
    if chart_key is not None and values is None:
        raise InputError(
            "needs --values",
            field="--chart-key",
            hint="--values FILE names the file of Helm values",
        )
    if shared_runtime and file is None:
        raise InputError(
            "a runtime is changed in its manifest only",
            field="--shared-runtime",
            hint="add -f FILE",
        )
    if values is not None:
        return open_values(values, name, chart_key)
    if file is None:
        return None
    return FileSource(file, name, runtimes=shared_runtime)


def _remarks(context: CliContext, checked: PreflightAnswer) -> None:
    terminal, change = context.terminal, checked.change
    if not change.findings and context.output in ("table", "wide"):
        terminal.note(f"no finding against {change.spec.describe()} on {checked.name}")
    change.report_draft(terminal)
    change.report_unchecked(terminal)


def _explained(context: CliContext, change: Change, *, wide: bool) -> str:
    """The findings; with -v also the staging of the draft."""
    text = preflight_text(change, wide=wide)
    if not context.terminal.verbose or change.staging is None:
        return text
    from mpctl.cli.inspect.staging_text import staging_lines

    staging = "\n".join(staging_lines(change, change.staging))
    return "\n\n".join(filter(None, (text, staging)))


def preflight_text(change: Change, *, wide: bool) -> str:
    """Findings and how the draft matches, at most 100 columns wide. ``wide``: one line each, and
    checks that lack facts."""
    if not wide:
        with page(page_width(_WIDTH)):
            return _preflight_text(change, wide=False)
    return _preflight_text(change, wide=True)


def _preflight_text(change: Change, *, wide: bool) -> str:
    parts = []
    if change.findings:
        rows = [[f.severity, f.id, f.reason, f.todo, f.source] for f in change.findings]
        titles = ["SEVERITY", "FINDING", "REASON", "TO DO", "SOURCE"]
        parts.append(columns([titles, *rows]) if wide else "\n".join(_findings(change)))
    rows = [
        [c.id, c.verdict, c.text or "-"]
        for c in change.checked.checks
        if wide or c.verdict != "unknown"
    ]
    if rows:
        parts.append(columns([["MATCH", "VERDICT", "WHY"], *rows]))
    return "\n\n".join(parts)


def _findings(change: Change) -> Iterator[str]:
    """A line per finding; its reason, what to do and the source below it, indented."""
    yield columns([["SEVERITY", "FINDING"]])
    indent = " " * 11
    for finding in change.findings:
        yield f"{finding.severity:<11}{finding.id}"
        for text in (finding.reason, f"to do: {finding.todo}", f"source: {finding.source}"):
            yield paragraph(text, indent, indent)
