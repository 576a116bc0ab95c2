"""``mpctl version``: versions of mpctl and of the engine that the local platform starts."""

from __future__ import annotations

import sys

import click

from mpctl import __version__
from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.printer import API_VERSION, columns
from mpctl.cli.settings import in_context


@click.command("version", cls=SectionedCommand)
@option("--client", is_flag=True, help="Print only the versions of mpctl itself.")
@output_option
@shared_options
@in_context
def command(context: CliContext, /, *, client: bool) -> None:
    """Print the versions of mpctl, its Python, the schema of its records, and the vLLM of this environment."""
    versions = {"mpctl": __version__, "python": ".".join(map(str, sys.version_info[:3])), "schema": API_VERSION}
    if not client:
        from mpctl.platform.local.engine import installed_version

        versions["vllm"] = installed_version() or "not installed"
    context.emit(
        "Version",
        record=lambda: versions,
        names=lambda: versions,
        table=lambda _wide: columns([["COMPONENT", "VERSION"], *([k, v] for k, v in versions.items())]),
    )
