"""``mpctl bench``: measure without changing what serves."""

from __future__ import annotations

from mpctl.cli.group import LazyGroup

bench = LazyGroup(
    "bench",
    default="run",
    table={
        "run": (
            "bench.run:run",
            "Measure a service, or two arms against each other (default)",
            "Commands",
        ),
        "compare": (
            "bench.run:compare",
            "Compare finished measurements from their raw samples",
            "Commands",
        ),
    },
    help="""Measure without changing what serves; figures, raw samples and conditions go to one file.

\b
Examples:
  mpctl bench                                  the only service, as it serves
  mpctl bench qwen --spec ngram                next to an n-gram engine
  mpctl bench --url http://10.0.0.7:8000       any vLLM server
  mpctl bench compare monday.json.gz friday.json.gz""",
)
