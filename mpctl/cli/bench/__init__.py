"""``mpctl bench``: measure without changing what serves."""

from __future__ import annotations

import click

from mpctl.cli.group import LazyGroup

_TABLE = {
    "run": ("mpctl.cli.bench.run", "Measure a service, or two arms against each other (default)", "Commands"),
    "compare": ("mpctl.cli.bench.compare", "Compare finished measurements from their raw samples", "Commands"),
}


@click.group("bench", cls=LazyGroup, table=_TABLE, default="run")
def command() -> None:
    """Measure without changing what serves; figures, raw samples and conditions go to one file.

    \b
    Examples:
      mpctl bench                                  the only service, as it serves now
      mpctl bench qwen --spec ngram                side by side with an engine that has n-gram speculation
      mpctl bench --url http://10.0.0.7:8000       any vLLM server that can be reached
      mpctl bench compare monday.json.gz friday.json.gz
    """
