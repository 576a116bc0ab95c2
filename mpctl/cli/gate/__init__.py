"""``mpctl gate``: the rules of the gate."""

from __future__ import annotations

import click

from mpctl.cli.group import LazyGroup

_TABLE = {"explain": ("mpctl.cli.gate.explain", "Print every rule with its threshold and reason", "Commands")}


@click.group("gate", cls=LazyGroup, table=_TABLE)
def command() -> None:
    """Explain the gate, which decides what is promoted; changes nothing."""
