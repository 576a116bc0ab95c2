"""Prepare a change: its questions, asked in order, and the answer as one value. Nothing is changed."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

from mpctl import commands
from mpctl.app.change.check import Conditions, Load, Preflight, PreflightResult
from mpctl.app.change.resolve import (
    Selection,
    UnchangedService,
    build_spec,
    read_config,
    read_facts,
    resolve_target,
    select_draft,
    with_published_facts,
)
from mpctl.app.change.staging import StagedDraft, require_gpu, stage_draft
from mpctl.app.console import Console
from mpctl.app.requests import SpeculationRequest
from mpctl.app.session.base import Source
from mpctl.errors import Refused
from mpctl.estimate.shape import Shape
from mpctl.json_types import Json
from mpctl.manifest import Service, masked
from mpctl.methods import METHODS, Finding, Spec, from_config
from mpctl.staging.modes import StagingFacts, StagingPlan

_FEW = 3  # checks that are listed one by one


@dataclass(frozen=True)
class Change:
    """A prepared change: the whole manifest without it and with it, and what the preflight found."""

    target: UnchangedService
    old_text: str
    new_text: str
    spec: Spec
    old_spec: Spec
    preflight: Preflight
    checked: PreflightResult
    staging: StagingPlan | None
    selection: Selection
    accepted: tuple[str, ...] = ()  # findings that the user overrides
    draft_shape: Shape | None = None  # the draft's dimensions, where its files were read

    @property
    def before(self) -> Service:
        """The service without the change."""
        return self.target.service

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of the preflight, refusals first."""
        return self.checked.findings

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """Findings that forbid the change."""
        return tuple(
            f for f in self.findings if f.severity == "refuse" and f.id not in self.accepted
        )

    @property
    def record(self) -> str:
        """The spec as a record keeps it, with the draft's own name and why it was chosen."""
        draft, reason = self.selection.draft, self.selection.reason
        named = f" ({draft} at its path in the pod)" if draft and draft != self.spec.draft else ""
        return f"{self.spec.describe()}{named}{f'; {reason}' if reason else ''}"

    @property
    def draft_name(self) -> str:
        """The draft by the name it is known by; empty for methods that load no weights. Its path in the pod may say
        nothing."""
        method = self.spec.known
        if method is None or not method.loads_weights:
            return ""
        return self.selection.draft or self.spec.draft or f"the {method.name} layers of the target"

    def under_load(self, load: Load) -> Change:
        """The same change, checked under another load."""
        return replace(self, checked=self.preflight.under_load(load).check())

    def require_allowed(self) -> None:
        """Refuse what the preflight forbids.

        Raises:
            Refused: with every refusal, and how to override the first.
        """
        if not self.refusals:
            return
        reasons = "; ".join(f"[{f.id}] {f.reason}" for f in self.refusals)
        first = self.refusals[0]
        raise Refused(
            f"{self.spec.describe()} on {self.before.name}: {reasons}",
            hint=f"{first.todo}; or accept it with --accept {first.id}",
        )

    def diff(self, now: str = "live") -> str:
        """The change to the manifest. ``now``: what the manifest without it is."""
        name = self.before.name
        return unified(
            self.old_text, self.new_text, (f"{name} ({now})", f"{name} ({self.spec.describe()})")
        )

    def report(self, console: Console) -> None:
        """Show the choice of the draft, the findings, and what could not be checked."""
        self.report_draft(console)
        self.report_findings(console)
        self.report_unchecked(console)

    def report_findings(self, console: Console, shown: tuple[Finding, ...] = ()) -> None:
        """Show the findings that are not ``shown`` already; refusals are errors, and not among them."""
        for finding in self.findings:
            if finding in shown:
                continue
            text = f"[{finding.id}] {finding.reason}; {finding.todo} ({finding.source})"
            if finding.severity == "note":
                console.note(f"note: {text}")
            elif finding.severity == "warn" or finding.id in self.accepted:
                console.warn(f"{text}{' (accepted)' if finding.id in self.accepted else ''}")

    def report_unchecked(self, console: Console) -> None:
        """Show what could not be checked; many checks that lack facts in one line, but with -v each with its facts."""
        lacking = [line for line in self.checked.unchecked if ", unknown: " in line]
        folds = len(lacking) > _FEW and not console.verbose
        for line in self.checked.unchecked:
            if not (folds and line in lacking):
                console.note(f"unchecked: {line}")
        if folds:
            names = ", ".join(line.partition(":")[0] for line in lacking)
            console.note(
                f"unchecked for lack of facts ({len(lacking)} checks; -v names the facts): {names}"
            )

    def report_draft(self, console: Console) -> None:
        """Show why the draft was chosen, where the user named none."""
        if self.selection.reason:
            other = "; --draft names another" if self.selection.draft else ""
            console.note(f"draft {self.draft_name}: {self.selection.reason}{other}")


def unified(before: str, after: str, names: tuple[str, str]) -> str:
    """Return a unified diff of two manifests without their secrets; empty when they are equal.

    A secret is known by its variable's name, which may be outside of the lines that a diff shows, so whole manifests
    are masked. Their own lines are compared: a secret that changed is a difference, too.
    """
    lines = difflib.unified_diff(_with_masked(before), _with_masked(after), *names)
    shown = [
        f"{line[:1]}{line.rpartition(_MASKED)[2]}" if _MASKED in line else line for line in lines
    ]
    text = "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in shown
    )
    return masked(text.rstrip("\n"))


_MASKED = "\0"  # no YAML document has this character


def _with_masked(text: str) -> list[str]:
    """Lines of a manifest, each followed by what may be shown of it."""
    pairs = zip(text.split("\n"), masked(text).split("\n"), strict=True)
    lines = [f"{line}{_MASKED}{shown}\n" for line, shown in pairs]
    return [
        *lines[:-1],
        *([] if text.endswith("\n") or not text else [lines[-1].removesuffix("\n")]),
    ]


_UNKNOWN_LOAD = Load()


def prepare(source: Source, request: SpeculationRequest, load: Load = _UNKNOWN_LOAD) -> Change:
    """Select the draft, build the spec, edit the manifest, run the preflight.

    Raises:
        InputError: the request or the manifest cannot be used.
        Refused: the method needs a draft and none fits.
    """
    require_gpu(request.gpu)
    config, method = read_config(request.config), METHODS.get(request.method)
    ask_hub = source.asks_hub and method is not None and method.loads_weights
    facts = request.staging or StagingFacts()
    kserve = facts.kserve or (source.kserve_version() if source.stages else None)
    target = resolve_target(
        source,
        listing=request.target_listing,
        ask_hub=ask_hub,
        kserve=kserve,
        release=request.engine_version,
    )
    selection = select_draft(target, request, config)
    spec, notes = build_spec(request, selection, config)
    pinned = spec.settings.get("revision")
    revision = pinned if isinstance(pinned, str) else None
    draft = read_facts(
        source, spec.draft, listing=request.draft_listing, ask_hub=ask_hub, revision=revision
    )
    draft = with_published_facts(draft, spec, target, request)
    staged = StagedDraft(spec)
    if source.stages:
        staged = stage_draft(source, target, spec, facts, draft=draft, selection=selection)
    notes = (*notes, *_runtime_findings(target.service), *source.path_findings())
    if draft.missing:
        missing = Finding(
            "draft-missing",
            "refuse",
            f"the engine would not find the draft: {source.paths}",
            "this machine's files",
            "name a directory with a config.json, or a repository of the hub",
        )
        notes = (*notes, missing)
    gpu = request.gpu or (source.gpu() if spec.row.loads_weights else None)
    preflight = Preflight(
        request, target, staged, draft, notes, Conditions(load, source.engine_log(), gpu)
    )
    setting: Json | None = target.service.speculation()
    old_spec = from_config(setting)
    old_text, new_text = source.text(), source.with_speculation(staged.spec.config(), staged.edit)
    if new_text == old_text:
        _require_kept(source, staged.spec, old_spec)
    return Change(
        target=target,
        old_text=old_text,
        new_text=new_text,
        spec=staged.spec,
        old_spec=old_spec,
        preflight=preflight,
        checked=preflight.check(),
        staging=staged.plan,
        selection=replace(selection, draft=spec.draft),
        accepted=request.accepted,
        draft_shape=draft.facts.shape if draft.facts else None,
    )


def _require_kept(source: Source, spec: Spec, old_spec: Spec) -> None:
    """Refuse a change of which nothing is left in the manifest.

    Raises:
        Refused: the manifest would stay as it is, although it has another spec.
    """
    if spec.config() == old_spec.config():
        return
    webhooks = commands.kubectl("get", "mutatingwebhookconfigurations")
    raise Refused(
        f"{source.name}: the API server drops the change to {spec.describe()}: its dry run stores the manifest with "
        f"{old_spec.describe()}, as it is now",
        hint=f"a webhook or policy owns the engine's arguments: '{webhooks}' lists webhooks; change them there",
    )


_USERS = {
    "ServingRuntime": "InferenceService", "ClusterServingRuntime": "InferenceService",
    "LLMInferenceServiceConfig": "LLMInferenceService",
}  # fmt: skip


def _runtime_findings(service: Service) -> tuple[Finding, ...]:
    """A warning for a runtime or a config: every service that uses it changes."""
    users_kind = _USERS.get(service.kind)
    if users_kind is None:
        return ()
    users = (
        f"{', '.join(service.endpoints)} in this file"
        if service.endpoints
        else "none is in this file"
    )
    where = "in any namespace" if service.kind == "ClusterServingRuntime" else "in its namespace"
    return (
        Finding(
            "shared-runtime",
            "warn",
            f"every {users_kind} {where} that uses {service.kind} {service.name} changes and restarts: {users}",
            f"KServe starts each service of a {service.kind} with its arguments",
            f"{commands.kubectl('get', f'{users_kind.lower()}s', '-A', '-o', 'wide')} lists the services",
        ),
    )
