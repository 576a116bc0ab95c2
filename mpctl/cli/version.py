"""``mpctl version``: of mpctl, and of the engine the local platform would start."""

from __future__ import annotations

import platform as machine

import click

from mpctl import __version__
from mpctl.cli.options import output_option
from mpctl.cli.terminal import API_VERSION, Terminal


@click.command("version")
@click.option("--client", is_flag=True, help="Only mpctl itself.")
@output_option("table", "json", "yaml")
def command(client: bool, output: str) -> None:
    """Print versions."""
    body = {"mpctl": __version__, "python": machine.python_version(), "schema": API_VERSION}
    if not client:
        from mpctl.platform.local.engine import installed_version

        body["vllm"] = installed_version() or "not installed here"
    terminal = Terminal.of_environment()
    if output == "table":
        terminal.table(["COMPONENT", "VERSION"], [[k, v] for k, v in body.items()])
    else:
        terminal.record("Version", dict(body), output)
