"""The changed manifest, for GitOps."""

from __future__ import annotations

from typing import NamedTuple

from mpctl import commands
from mpctl.app.change import Change, prepare
from mpctl.app.change.source import FileSource, Source
from mpctl.app.console import Console
from mpctl.app.requests import RenderRequest
from mpctl.errors import InputError
from mpctl.platform.kubernetes.service.render import candidate_manifest


class Rendered(NamedTuple):
    """The text to print, and the change that it makes."""

    text: str
    change: Change

    @property
    def unchanged(self) -> bool:
        """Return whether the manifest already has the spec."""
        return self.text == self.change.old_text


def run(source: Source, console: Console, request: RenderRequest) -> Rendered:
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
    if request.candidate:
        behind = "" if change.old_text.endswith("\n") else "\n"  # >> appends to a file's last line as it is
        text = f"{behind}---\n{candidate_manifest(text, source.name)}"
    return Rendered(text, change)
