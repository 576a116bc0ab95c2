"""A change asked for on a command line, and the manifest it gives."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mpctl.app.files import read_file
from mpctl.app.session.base import Session
from mpctl.app.session.local import LocalSession
from mpctl.cli.drafting import (
    Chosen,
    check_cluster,
    choose_draft,
    memory_of,
    read_facts,
    stage,
    staging_findings,
    target_source,
)
from mpctl.cli.source import FileSource, Source
from mpctl.cli.terminal import Terminal
from mpctl.errors import InputError, Refused
from mpctl.estimate import facts_of
from mpctl.estimate.memory import NotEstimated, beside, memory_findings
from mpctl.manifest import Service
from mpctl.methods import METHODS, Finding, Spec, build, from_config, parse_config, preflight_findings, unknowns
from mpctl.methods.preflight.findings import ordered
from mpctl.methods.preflight.pair import Check, match

if TYPE_CHECKING:
    from mpctl.estimate.memory import Estimate
    from mpctl.staging.modes import StagingPlan


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
    checks: tuple[Check, ...] = ()
    staging: StagingPlan | None = None
    memory: Estimate | None = None
    chosen: Chosen | None = None

    @property
    def words(self) -> str:
        """The spec for people, with the draft's own name and why it was taken, as a record keeps it."""
        known = self.chosen.draft if self.chosen else None
        named = f" ({known} at its path in the pod)" if known and known != self.spec.draft else ""
        why = f"; {self.chosen.reason}" if self.chosen and self.chosen.reason else ""
        return f"{self.spec.describe()}{named}{why}"

    def refusals(self, ignored: tuple[str, ...]) -> tuple[Finding, ...]:
        """Findings that forbid the change."""
        return tuple(f for f in self.findings if f.severity == "refuse" and f.id not in ignored)


def read_change(
    session: Source, options: dict[str, Any], *, concurrency: int | None = None, temperature: float = 0.0
) -> Change:
    """Choose the draft, build the spec, edit the manifest, run the preflight. Changes nothing.

    Raises:
        InputError: an option or the manifest cannot be used.
    """
    check_cluster(options)
    before = session.service()
    engine = session.engine_version(before)
    # A file is judged without contacting anybody, and engines on this machine need no staging.
    known = METHODS.get(options["spec"])
    weights = known is not None and known.loads_weights
    asks, stages = weights and not isinstance(session, FileSource), not isinstance(session, LocalSession)
    kserve = options.get("kserve") or (session.kserve_version() if weights and stages else None)
    options = {**options, "kserve": kserve}
    target, no_target = read_facts(
        session,
        target_source(session, before),
        options.get("target_listing"),
        ask_hub=asks,
        revision=before.command.get("revision"),
    )
    config = _config(options["spec_config"]) or {}
    chosen = choose_draft(before, options, config, name=target.name if target else None, engine=engine)
    written = {key.replace("-", "_") for key in config}
    spec, notes = build(
        options["spec"],
        draft=chosen.draft,
        sets=options["set"],
        config={**{k: v for k, v in chosen.settings.items() if k not in written}, **config} or None,
    )
    pinned = spec.settings.get("revision")
    draft, no_draft = read_facts(
        session,
        spec.draft,
        options.get("draft_listing"),
        ask_hub=asks,
        revision=pinned if isinstance(pinned, str) else None,
    )
    draft_name, edit, staging = spec.draft, None, None
    if stages:
        spec, staging, edit = stage(session, before, spec, options, target=target, draft=draft, entry=chosen.entry)
    wanted: dict[str, Any] | None = spec.config()
    log = session.engine_log()
    facts = facts_of(
        before,
        engine_version=engine,
        kserve_version=options.get("kserve"),
        target=target,
        draft=draft,
        concurrency=concurrency,
        temperature=temperature,
        engine_log=log,
    )
    memory, no_memory = None, None
    try:
        memory = memory_of(before, target, draft, options, log=log, concurrency=concurrency)
    except NotEstimated as error:
        no_memory = str(error) if spec.draft is not None else None
    findings = ordered(
        (
            *notes,
            *preflight_findings(spec, facts),
            *staging_findings(staging),
            *(memory_findings(memory) if memory else ()),
        )
    )
    _check_ignored(options["ignore"], findings)
    present: dict[str, Any] | None = before.speculation()
    return Change(
        before=before,
        old_text=session.text(),
        new_text=session.with_speculation(wanted, edit),
        spec=spec,
        old_spec=from_config(present),
        findings=findings,
        unchecked=(
            *unknowns(spec, facts),
            *(f"files: {reason}" for reason in (no_target, no_draft) if reason),
            *((f"kv-pool: not estimated: {no_memory}",) if no_memory else ()),
        ),
        checks=match(spec, facts),
        staging=staging,
        memory=memory,
        chosen=replace(chosen, draft=draft_name),
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
    if change.chosen is not None and change.chosen.reason:
        terminal.note(f"draft {change.chosen.draft}: {change.chosen.reason}; --draft names another")
    for finding in change.findings:
        text = f"[{finding.id}] {finding.reason}; {finding.todo} ({finding.source})"
        if finding.severity == "note":
            terminal.note(f"note: {text}")
        elif finding.severity == "warn" or finding.id in ignored:
            terminal.warn(f"{text}{' (ignored)' if finding.id in ignored else ''}")
    if terminal.verbose:
        for line in change.unchecked:
            terminal.note(f"unchecked: {line}")


def show_pool(session: Session, change: Change) -> None:
    """The KV pool that the engine logged beside the estimate, once it serves; silent where nothing was estimated."""
    log = None if change.memory is None else session.engine_log()
    text = None if log is None else beside(change.memory, log)
    if text is not None:
        session.console.note(text)


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
