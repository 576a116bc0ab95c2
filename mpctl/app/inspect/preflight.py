"""Show a change without making it: its findings, or the changed manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mpctl import commands
from mpctl.app.change import Change, prepare
from mpctl.app.change.source import FileSource
from mpctl.app.console import Console
from mpctl.app.inspect_requests import ChangeRequest, RenderRequest
from mpctl.app.session.base import Source
from mpctl.errors import InputError
from mpctl.estimate.memory import pool_record
from mpctl.json_fields import list_at
from mpctl.json_types import Json
from mpctl.manifest import Service
from mpctl.platform.kubernetes.service.running_engine import candidate_manifest
from mpctl.staging.modes import document_of


@dataclass(frozen=True)
class PreflightAnswer:
    """A checked change."""

    name: str
    namespace: str
    change: Change

    def to_record(self) -> Json:
        """A JSON object."""
        change, plan = self.change, self.change.staging
        staging = plan and {
            "mode": plan.mode,
            "reason": plan.reason,
            "path": plan.path,
            "modes": [{"mode": c.mode, "unavailable": c.unavailable} for c in plan.checks],
            "documents": list(plan.documents),
            "image": plan.image,
            "containerfile": plan.recipe,
            "steps": list(plan.steps),
            "rollbackRemoves": list(plan.removes),
            "rollbackLeaves": list(plan.leaves),
            "warnings": list(plan.warnings),
        }
        return {
            "service": "/".join(filter(None, (self.namespace, self.name))),
            "speculation": change.spec.config(),
            "findings": [dict(f.__dict__) for f in change.findings],
            "unchecked": list(change.checked.unchecked),
            "draft": change.selection.draft,
            "draftReason": change.selection.reason,
            "match": [
                {"id": check.id, "verdict": check.verdict, "text": check.text}
                for check in change.checked.checks
            ],
            "staging": staging,
            "kvPoolTokens": pool_record(change.checked.memory),
        }


def preflight(source: Source, request: ChangeRequest) -> PreflightAnswer:
    """Prepare the change and collect what speaks against it.

    Raises:
        InputError: the request or the manifest cannot be used.
    """
    return PreflightAnswer(source.name, source.namespace, prepare(source, request.speculation))


def _single_storage(service: Service) -> str:
    """The target's entry of storageUris, where a removed draft leaves it alone; empty otherwise."""
    if service.kind != "InferenceService":
        return ""
    listed = list_at(document_of(service), "spec", "predictor", "storageUris")
    targets = [str(entry.get("uri")) for entry in listed if entry.get("mountPath") == "/mnt/models"]
    return targets[0] if len(targets) == 1 else ""


class Rendered(NamedTuple):
    """The text to print, and the change that it makes."""

    text: str
    change: Change

    @property
    def unchanged(self) -> bool:
        """Return whether the manifest already has the spec."""
        return self.text == self.change.old_text


def render(source: Source, console: Console, request: RenderRequest) -> Rendered:
    """The manifest with the change; the console shows the preflight's findings.

    Raises:
        Refused: the preflight forbids the change.
        InputError: the service is a running Deployment, whose recorded text has no replicas.
    """
    if source.service().kind == "Deployment" and not isinstance(source, FileSource):
        raise InputError(
            f"{source.name} is a running Deployment; a manifest made of it would have no spec.replicas",
            hint=commands.line("render", "-f", "MANIFEST", "--spec", "METHOD")
            + " with the manifest it was applied from",
        )
    change = prepare(source, request.speculation)
    change.report(console)
    change.require_allowed()
    text = change.new_text
    if (
        change.spec.is_none
        and text != change.old_text
        and (entries := _single_storage(source.service()))
    ):
        console.note(
            f"spec.predictor.storageUris stays with {entries}: if the draft had moved it there from storageUri, "
            "git revert or a rollback restores that"
        )
    if request.candidate:
        behind = (
            "" if change.old_text.endswith("\n") else "\n"
        )  # >> appends to a file's last line as it is
        text = f"{behind}---\n{candidate_manifest(text, source.name)}"
    return Rendered(text, change)
