"""``mpctl local``: services as processes on this machine."""

from __future__ import annotations

import click

from mpctl.cli.group import LazyGroup

_TABLE = {
    "up": ("mpctl.cli.local.up", "Start a service from its manifest", "Commands"),
    "down": ("mpctl.cli.local.down", "Stop a service; its history stays", "Commands"),
    "logs": ("mpctl.cli.local.logs", "Print the log of an engine", "Commands"),
}


@click.group("local", cls=LazyGroup, table=_TABLE)
def command() -> None:
    """Run services as processes on this machine: real ``vllm serve``, no cluster."""
