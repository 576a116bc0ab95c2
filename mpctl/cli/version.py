"""``mpctl version``: of mpctl, and of the engine the local platform would start."""

from __future__ import annotations

import sys
from typing import Any

import click

from mpctl import __version__
from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.printer import API_VERSION
from mpctl.cli.settings import terminal_of


@click.command("version")
@option("--client", is_flag=True, help="Only mpctl itself.")
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, client: bool, output: str, **shared: Any) -> None:
    """Print versions: of mpctl, its Python, the schema of its records, and the vLLM of this environment."""
    terminal = terminal_of(ctx, shared)
    body = {"mpctl": __version__, "python": ".".join(map(str, sys.version_info[:3])), "schema": API_VERSION}
    if not client:
        from mpctl.platform.local.engine import installed_version

        body["vllm"] = installed_version() or "not installed here"
    if output in ("json", "yaml"):
        terminal.record("Version", dict(body), output)
    elif output == "name":
        terminal.result("\n".join(body))
    else:
        terminal.table(["COMPONENT", "VERSION"], [[k, v] for k, v in body.items()])
