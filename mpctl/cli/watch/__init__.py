"""``mpctl watch``: see whether speculation still pays."""

from __future__ import annotations

import click

from mpctl.cli.group import LazyGroup

_TABLE = {
    "run": ("mpctl.cli.watch.run", "Watch services until Ctrl-C, or once (default)", "Commands"),
    "acknowledge": ("mpctl.cli.watch.acknowledge", "Acknowledge a fallback of the watch", "Commands"),
    "install": ("mpctl.cli.watch.install", "Print the objects that run the watch in a cluster", "Commands"),
}


@click.group("watch", cls=LazyGroup, table=_TABLE, default="run")
def command() -> None:
    """See whether speculation still pays, why not, and fall back where a policy says so.

    \b
    Examples:
      mpctl watch                                  the services of this machine or namespace
      mpctl watch qwen --once -o json              two readings, one judgement, for scripts
      mpctl watch -A --prometheus http://prometheus.monitoring:9090
      mpctl watch qwen --watch-policy watch.yaml         fall back and re-arm as the file says
    """
