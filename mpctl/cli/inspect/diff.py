"""``mpctl diff``: the service against a revision, or against a change that was not made."""

from __future__ import annotations

from typing import Unpack

import click

from mpctl.cli.context import CliContext
from mpctl.cli.options.manifest import ManifestChangeOptions, manifest_options, open_manifest
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import name_argument, shared_options
from mpctl.cli.options.speculation import change_options, speculation_request
from mpctl.cli.options.types import option
from mpctl.cli.settings import in_context

_FAILED = 2  # 1 means that something differs


@click.command("diff", cls=SectionedCommand)
@name_argument
@manifest_options
@option("--revision", type=click.IntRange(1), help="Revision to compare with (default: the one before).")
@change_options(required=False)
@shared_options
@in_context
def command(
    context: CliContext,
    /,
    name: str | None,
    revision: int | None,
    **given: Unpack[ManifestChangeOptions],
) -> int:
    """Show what differs. Exit code 0: nothing, 1: something, more: an error (2 where it has no code of its own).

    \b
    Examples:
      mpctl diff                      from the revision before to the service as it is
      mpctl diff --revision 1
      mpctl diff --spec ngram         what a rollout would change
      mpctl diff -f service.yaml --spec ngram
    """
    context.failure = _FAILED
    from mpctl.app.inspect.history import diff, diff_of_manifest
    from mpctl.app.requests import DiffRequest

    request = DiffRequest(revision, speculation_request(given) if given["spec"] else None)
    manifest = open_manifest(name, given)
    text = diff(context.open_session(name), request) if manifest is None else diff_of_manifest(manifest, request)
    if text:
        context.terminal.result(text)
    return 1 if text else 0
