"""``mpctl render``: the changed manifest for GitOps."""

from __future__ import annotations

from typing import Unpack

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.manifest import ManifestChangeOptions, manifest_options, open_manifest
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import name_argument, shared_options
from mpctl.cli.options.speculation import change_options, speculation_request
from mpctl.cli.options.types import option
from mpctl.cli.secrets import presentable, show_secrets_option
from mpctl.cli.settings import in_context


@click.command("render", cls=SectionedCommand)
@name_argument
@manifest_options
@change_options()
@option("--candidate", is_flag=True, help="Print only the second InferenceService that runs the change.")
@show_secrets_option
@shared_options
@in_context
def command(
    context: CliContext,
    /,
    name: str | None,
    *,
    candidate: bool,
    show_secrets: bool,
    **given: Unpack[ManifestChangeOptions],
) -> None:
    """Print the manifest with another speculative setting, for Argo CD, Flux, Helm or kubectl to apply.

    \b
    Examples:
      mpctl render -f service.yaml --spec ngram > changed.yaml
      mpctl render -f service.yaml --spec none                     remove speculation
      mpctl render -f service.yaml --spec ngram --candidate >> service.yaml
      mpctl render qwen --spec ngram                               of a running service
      mpctl render -f runtime.yaml --shared-runtime --spec ngram   of every service that uses the runtime
      mpctl render -f service.yaml --copy-runtime --spec ngram     in a copy of the runtime, for this service alone
      mpctl render --values values.yaml --chart-key engine.args --spec ngram > changed-values.yaml

    Only the bytes of the setting change; other documents of the file stay as they are. Every kind of
    docs/reference/kinds.md is read. Findings of the preflight go to standard error; a refusal prints no manifest.
    Secrets of a running service's manifest are hidden; a file's are not.
    """
    from mpctl.app.inspect.preflight import render
    from mpctl.app.requests import RenderRequest
    from mpctl.errors import InputError

    if candidate and given["copy_runtime"]:
        raise InputError("cannot be combined with --candidate", field="--copy-runtime", hint="render the change itself")
    request = RenderRequest(speculation_request(given), candidate)
    manifest = open_manifest(name, given)
    source = manifest or context.open_session(name)
    rendered = render(source, context.terminal, request)
    own = manifest is not None or show_secrets
    context.terminal.exact(presentable(context.terminal, rendered.text, show_secrets=own))
    if rendered.unchanged:
        context.terminal.note(f"{source.name} already has {rendered.change.spec.describe()}")
