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
    copy_runtime: bool
    values: str | None
    chart_key: str | None


manifest_options = all_of(
    file_option,
    option(
        "--shared-runtime",
        is_flag=True,
        help="Change the file's ServingRuntime: every service that uses it changes.",
    ),
    option(
        "--copy-runtime",
        is_flag=True,
        help="Give the service its own copy of the file's ServingRuntime and change that; --spec none removes it.",
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
    runtime = "--shared-runtime" if given["shared_runtime"] else "--copy-runtime" if given["copy_runtime"] else None
    if values is not None and (file is not None or runtime is not None):
        raise InputError(f"cannot be combined with {runtime or '-f'}", field="--values")
    if given["shared_runtime"] and given["copy_runtime"]:
        raise InputError("cannot be combined with --copy-runtime", field="--shared-runtime")
    if key is not None and values is None:
        raise InputError("needs --values", field="--chart-key", hint="--values FILE names the file of Helm values")
    if runtime is not None and file is None:
        raise InputError("a runtime is changed in its manifest only", field=runtime, hint="add -f FILE")
    if values is not None:
        return open_values(values, name, key)
    if file is None:
        return None
    return FileSource(file, name, runtimes=given["shared_runtime"], copy_runtime=given["copy_runtime"])
