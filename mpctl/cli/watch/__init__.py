"""``mpctl watch``: see whether speculation still pays."""

from __future__ import annotations

import click

from mpctl.cli.group import LazyGroup

_TABLE = {
    "run": ("mpctl.cli.watch.run", "Watch services until Ctrl-C, or once (default)", "Commands"),
    "install": ("mpctl.cli.watch.install", "Print the objects that run the watch in a cluster", "Commands"),
}
_HELP = ("-h", "--help")


class WatchGroup(LazyGroup):
    """A group with a default command: ``mpctl watch qwen`` means ``mpctl watch run qwen``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``run`` unless the first argument names a command."""
        if not args or (args[0] not in self.table and args[0] not in _HELP):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("watch", cls=WatchGroup, table=_TABLE)
def command() -> None:
    """See whether speculation still pays, why not, and fall back where a policy says so.

    \b
    Examples:
      mpctl watch                                  the services of this machine or namespace
      mpctl watch qwen --once -o json              two readings, one judgement, for scripts
      mpctl watch -A --prometheus http://prometheus.monitoring:9090
      mpctl watch qwen --watch-policy watch.yaml         fall back and re-arm as the file says
    """
