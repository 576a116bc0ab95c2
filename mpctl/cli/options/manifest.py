"""Options that name a manifest instead of a running service."""

from __future__ import annotations

from mpctl.cli.options.shared import file_option
from mpctl.cli.options.speculation import SpeculationOptions
from mpctl.cli.options.types import File, all_of, option


class ManifestChangeOptions(SpeculationOptions):
    """A change of a manifest, as click hands its options over."""

    file: str | None
    shared_runtime: bool
    values: str | None
    chart_key: str | None


manifest_options = all_of(
    file_option,
    option(
        "--shared-runtime",
        is_flag=True,
        help="Change the file's ServingRuntime: every service that uses it changes.",
    ),
    option("--values", type=File(), metavar="FILE|-", help="Read a file of Helm values instead of a manifest."),
    option(
        "--chart-key",
        metavar="PATH",
        help="Key of the engine's arguments in the values, such as engine.args (default: by the chart's layout).",
    ),
)
