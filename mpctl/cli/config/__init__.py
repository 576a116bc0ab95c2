"""``mpctl config``: settings."""

from __future__ import annotations

import click

from mpctl.cli.group import LazyGroup

_TABLE = {"view": ("mpctl.cli.config.view", "Print the effective settings", "Commands")}


@click.group("config", cls=LazyGroup, table=_TABLE)
def command() -> None:
    """Show settings and their origin; 'mpctl help config' explains the files."""
