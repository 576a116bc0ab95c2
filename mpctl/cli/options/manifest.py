"""Options that name a manifest instead of a running service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpctl.cli.options.shared import file_option
from mpctl.cli.options.speculation import SpeculationOptions
from mpctl.cli.options.types import File, all_of, option

if TYPE_CHECKING:
    from mpctl.app.change.source import FileSource


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


def open_manifest(name: str | None, given: ManifestChangeOptions) -> FileSource | None:
    """The service of a manifest, of its runtime or of Helm values; None when no file is named.

    Raises:
        InputError: the options exclude each other, or the file cannot be read.
    """
    from mpctl.app.change.source import FileSource, open_values
    from mpctl.errors import InputError

    file, values, key = given["file"], given["values"], given["chart_key"]
    if values is not None and (file is not None or given["shared_runtime"]):
        raise InputError("cannot be combined with -f or --shared-runtime", field="--values")
    if key is not None and values is None:
        raise InputError("needs --values", field="--chart-key", hint="--values FILE names the file of Helm values")
    if given["shared_runtime"] and file is None:
        raise InputError("a runtime is changed in its manifest only", field="--shared-runtime", hint="add -f FILE")
    if values is not None:
        return open_values(values, name, key)
    return None if file is None else FileSource(file, name, runtimes=given["shared_runtime"])
