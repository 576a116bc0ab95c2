"""``mpctl render``: the changed manifest for GitOps."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.options.shared import file_option, name_argument, shared_options
from mpctl.cli.options.speculation import change_options
from mpctl.cli.options.types import option
from mpctl.cli.settings import Settings


@click.command("render")
@name_argument
@file_option
@change_options()
@option("--candidate", is_flag=True, help="Only the second InferenceService that runs the change beside the first.")
@shared_options
@click.pass_context
def command(ctx: click.Context, /, name: str | None, file: str | None, *, candidate: bool, **options: Any) -> None:
    """Print the manifest with another speculative setting, for whoever applies it: Argo CD, Flux, Helm, kubectl.

    From a file every byte but those of the setting stays as it is, other documents of the file included; KServe's
    InferenceService and Modelplane's ModelDeployment (both generations) are read. What the preflight finds goes to
    standard error; a refusal prints no manifest.

    \b
    Examples:
      mpctl render -f service.yaml --spec ngram > changed.yaml
      mpctl render -f service.yaml --spec none                     take speculation away
      mpctl render -f service.yaml --spec ngram --candidate >> service.yaml
      mpctl render qwen --spec ngram                               of a live service
    """
    settings = Settings.of(ctx, options)
    from mpctl.cli.change import read_change, require_allowed, show_findings
    from mpctl.cli.source import open_source

    source = open_source(settings, name, file)
    change = read_change(source, options)
    ignored = tuple(options["ignore"])
    show_findings(settings.terminal, change, ignored)
    require_allowed(change, ignored)
    text = change.new_text
    if candidate:
        from mpctl.platform.kubernetes.service.render import candidate_manifest

        behind = "" if change.old_text.endswith("\n") else "\n"  # >> appends to a file's last line as it is
        text = f"{behind}---\n{candidate_manifest(text, source.name)}"
    settings.terminal.exact(text)
    if change.new_text == change.old_text and not candidate:
        settings.terminal.note(f"{source.name} already has {change.spec.describe()}")
