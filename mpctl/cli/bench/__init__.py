"""``mpctl bench``: measure without changing anything that serves."""

from __future__ import annotations

import click

from mpctl.cli.group import LazyGroup

_TABLE = {
    "run": ("mpctl.cli.bench.run", "Measure a service, or two arms against each other; the default", "Commands"),
    "compare": ("mpctl.cli.bench.compare", "Judge finished measurements again, from their raw samples", "Commands"),
}
_HELP = ("-h", "--help")


class BenchGroup(LazyGroup):
    """A group whose first command needs no name: ``mpctl bench qwen`` measures qwen."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` before what names no command."""
        if not args or (args[0] not in self.table and args[0] not in _HELP):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("bench", cls=BenchGroup, table=_TABLE)
def command() -> None:
    """Measure without changing anything that serves; figures, raw samples and conditions go to one file.

    \b
    Examples:
      mpctl bench                                  the only service, as it serves now
      mpctl bench qwen --spec ngram                beside it, an engine with n-gram speculation
      mpctl bench --url http://10.0.0.7:8000       any vLLM server that can be reached
      mpctl bench compare monday.json.gz friday.json.gz
    """
