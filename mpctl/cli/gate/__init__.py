"""``mpctl gate``: what the gate asks."""

from __future__ import annotations

import click

from mpctl.cli.group import LazyGroup

_TABLE = {"explain": ("mpctl.cli.gate.explain", "Print every rule, its limit and why", "Commands")}


@click.group("gate", cls=LazyGroup, table=_TABLE)
def command() -> None:
    """The gate that decides what is promoted; nothing here changes anything."""
