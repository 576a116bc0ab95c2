"""A change asked for on a command line, and the manifest it gives."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

from mpctl.cli.session import read_file
from mpctl.cli.source import Source
from mpctl.cli.terminal import Terminal
from mpctl.errors import InputError, Refused
from mpctl.plan import facts_of
from mpctl.service import Service
from mpctl.speculation import Finding, Spec, build, from_config, parse_config, preflight, unknowns


@dataclass(frozen=True)
class Change:
    """The service as it is, its manifest and the manifest with the spec asked for, and what the preflight found."""

    before: Service
    old_text: str
    new_text: str
    spec: Spec
    old_spec: Spec
    findings: tuple[Finding, ...]
    unchecked: tuple[str, ...]

    def refusals(self, ignored: tuple[str, ...]) -> tuple[Finding, ...]:
        """Findings that forbid the change."""
        return tuple(f for f in self.findings if f.severity == "refuse" and f.id not in ignored)


def read_change(
    session: Source, options: dict[str, Any], *, concurrency: int | None = None, temperature: float = 0.0
) -> Change:
    """Build the spec, edit the manifest, run the preflight. Changes nothing.

    Raises:
        InputError: an option or the manifest cannot be used.
    """
    spec, notes = build(
        options["spec"], draft=options["draft"], sets=options["set"], config=_config(options["spec_config"])
    )
    wanted: dict[str, Any] | None = spec.config()
    before = session.service()
    facts = facts_of(
        before,
        spec,
        engine_version=session.engine_version(before),
        target=session.model_facts(session.target_of(before)),
        draft=session.model_facts(spec.draft),
        concurrency=concurrency,
        temperature=temperature,
    )
    findings = (*notes, *preflight(spec, facts))
    _check_ignored(options["ignore"], findings)
    present: dict[str, Any] | None = before.speculation()
    return Change(
        before=before,
        old_text=session.text(),
        new_text=session.with_speculation(wanted),
        spec=spec,
        old_spec=from_config(present),
        findings=findings,
        unchecked=unknowns(spec, facts),
    )


def _config(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    file = text[1:] if text.startswith("@") else None
    return parse_config(read_file(file, "--spec-config") if file else text, file=file)


def _check_ignored(ignored: tuple[str, ...], findings: tuple[Finding, ...]) -> None:
    unknown = sorted(set(ignored) - {f.id for f in findings})
    if unknown:
        found = ", ".join(f.id for f in findings if f.severity == "refuse") or "nothing that refuses"
        raise InputError(
            f"no such finding: {', '.join(unknown)}", field="--ignore", hint=f"the preflight found {found}"
        )


def show_findings(terminal: Terminal, change: Change, ignored: tuple[str, ...]) -> None:
    """Refusals and warnings always, notes unless quiet, what could not be checked with -v."""
    for finding in change.findings:
        text = f"[{finding.id}] {finding.reason}; {finding.todo} ({finding.source})"
        if finding.severity == "note":
            terminal.note(f"note: {text}")
        elif finding.severity == "warn" or finding.id in ignored:
            terminal.warn(f"{text}{' (ignored)' if finding.id in ignored else ''}")
    if terminal.verbose:
        for line in change.unchecked:
            terminal.note(f"unchecked: {line}")


def require_allowed(change: Change, ignored: tuple[str, ...]) -> None:
    """Refuse what the preflight forbids.

    Raises:
        Refused: with every refusal, and the way to override the first.
    """
    refusals = change.refusals(ignored)
    if refusals:
        reasons = "; ".join(f"[{f.id}] {f.reason}" for f in refusals)
        first = refusals[0]
        raise Refused(
            f"{change.spec.describe()} on {change.before.name}: {reasons}",
            hint=f"{first.todo}; or override with --ignore {first.id}",
        )


def unified(before: str, after: str, names: tuple[str, str]) -> str:
    """A unified diff of two manifests, empty when they are equal."""
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), *names)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines).rstrip(
        "\n"
    )


def change_diff(change: Change) -> str:
    """What a rollout would write, as a diff."""
    name = change.before.name
    return unified(change.old_text, change.new_text, (f"{name} (live)", f"{name} ({change.spec.describe()})"))
