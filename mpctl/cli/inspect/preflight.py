"""``mpctl preflight``: check a change without making it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.manifest import ManifestChangeOptions, manifest_options, open_manifest
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import name_argument, output_option, shared_options
from mpctl.cli.options.speculation import change_options, speculation_request
from mpctl.cli.options.types import option
from mpctl.cli.printer import columns, page, page_width, paragraph
from mpctl.cli.settings import in_context

if TYPE_CHECKING:
    from mpctl.app.change import Change
    from mpctl.app.inspect.preflight import Preflight

_WIDTH = 100
_FEW = 3  # checks that are listed one by one


@click.command("preflight", cls=SectionedCommand)
@name_argument
@manifest_options
@change_options()
@option("--ask-engine", is_flag=True, help="Also ask the installed vLLM's own configuration class; takes seconds.")
@output_option
@shared_options
@in_context
def command(
    context: CliContext,
    /,
    name: str | None,
    *,
    ask_engine: bool,
    **given: Unpack[ManifestChangeOptions],
) -> None:
    """Check a change without making it: what forbids it, what speaks against it, what could not be checked.

    \b
    Examples:
      mpctl preflight --spec eagle3 --draft /models/head
      mpctl preflight --spec ngram --ask-engine -o json
      mpctl preflight -f service.yaml --spec ngram           a manifest, before it is applied
    """
    from mpctl.app.inspect.preflight import preflight
    from mpctl.app.requests import PreflightRequest

    request = PreflightRequest(speculation_request(given), ask_engine)
    manifest = open_manifest(name, given)
    checked = preflight(manifest or context.open_session(name), request)
    context.emit(
        "Preflight",
        record=checked.to_record,
        names=lambda: [finding.id for finding in checked.change.findings],
        table=lambda wide: preflight_text(checked.change, wide=wide),
    )
    _remarks(context, checked)
    checked.change.require_allowed()
    done = "rollout with the same options measures it"
    context.terminal.note(done if manifest is None else "render with the same options prints the changed manifest")


def _remarks(context: CliContext, checked: Preflight) -> None:
    terminal, change = context.terminal, checked.change
    if not change.findings and context.output in ("table", "wide"):
        terminal.note(f"no finding against {change.spec.describe()} on {checked.name}")
    change.report_draft(terminal)
    lacking = [line for line in change.checked.unchecked if ", unknown: " in line]
    folds = len(lacking) > _FEW and not terminal.verbose
    for line in change.checked.unchecked:
        if not (folds and line in lacking):
            terminal.note(f"unchecked: {line}")
    if folds:
        names = ", ".join(line.partition(":")[0] for line in lacking)
        terminal.note(f"unchecked for lack of facts ({len(lacking)} checks; -v names the facts): {names}")
    if checked.opinion is not None:
        terminal.note(f"engine: {checked.opinion.verdict} {checked.opinion.message}".rstrip())


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
        parts.append(_wide_findings(change) if wide else "\n".join(_findings(change)))
    rows = [[c.id, c.verdict, c.text or "-"] for c in change.checked.checks if wide or c.verdict != "unknown"]
    if rows:
        parts.append(columns([["MATCH", "VERDICT", "WHY"], *rows]))
    return "\n\n".join(parts)


def _wide_findings(change: Change) -> str:
    rows = [[f.severity, f.id, f.reason, f.todo, f.source] for f in change.findings]
    return columns([["SEVERITY", "FINDING", "REASON", "TO DO", "SOURCE"], *rows])


def _findings(change: Change) -> Iterator[str]:
    """A line per finding; its reason, what to do and the source below it, indented."""
    yield columns([["SEVERITY", "FINDING"]])
    indent = " " * 11
    for finding in change.findings:
        yield f"{finding.severity:<11}{finding.id}"
        for text in (finding.reason, f"to do: {finding.todo}", f"source: {finding.source}"):
            yield paragraph(text, indent, indent)
