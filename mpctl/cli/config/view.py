"""``mpctl config view``: the effective settings, each with its origin."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import click
from click.core import ParameterSource

from mpctl.cli.context import CliContext
from mpctl.cli.options.sections import SectionedCommand
from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.printer import columns
from mpctl.cli.registry import every_command
from mpctl.cli.settings import in_context
from mpctl.cli.settings_files import COMMON, SettingsFiles, find_settings, options_of

# Variables that belong to no option.
_OTHER = ("MPCTL_STATE_DIR", "MPCTL_ARM")
_EVERYWHERE = ("flag", "environment", "default")


class Row(NamedTuple):
    """A setting; ``command`` is empty for a setting of all commands."""

    command: str
    name: str
    value: str
    origin: str

    @property
    def key(self) -> str:
        """The dotted path of the setting in a settings file."""
        return ".".join((*self.command.split(), self.name))


@click.command("view", cls=SectionedCommand)
@option("--origin", is_flag=True, help="Also print the origin of each value, as -o wide does.")
@output_option
@shared_options
@in_context
def command(context: CliContext, /, *, origin: bool) -> None:
    """Print the effective settings: from files, environment and flags, and the defaults of the shared options.

    \b
    Examples:
      mpctl config view --origin
      mpctl -n team config view -o json
    """
    ctx = click.get_current_context()
    rows = effective(find_settings(), os.environ, {**_flags(ctx.find_root()), **_flags(ctx)})
    context.emit(
        "Settings",
        record=lambda: {"items": [{"setting": r.key, "value": r.value, "origin": r.origin} for r in rows]},
        names=lambda: [r.key for r in rows],
        table=lambda wide: _table(rows, origin=origin or wide),
    )
    for name in unknown_variables(os.environ):
        context.terminal.warn(f"environment variable {name} is not a setting of mpctl")


def _table(rows: list[Row], *, origin: bool) -> str:
    cells = [("SETTING", "VALUE", "ORIGIN"), *((r.key, r.value, r.origin) for r in rows)]
    return columns([row if origin else row[:2] for row in cells])


def _flags(ctx: click.Context) -> dict[str, str]:
    given = [n for n in COMMON if ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE]
    return {name: str(ctx.params[name]) for name in given}


def effective(files: SettingsFiles, environment: Mapping[str, str], flags: Mapping[str, str]) -> list[Row]:
    """Return one row per setting that a file, a variable or a flag sets, and per shared option with a default.

    A command has a row of its own only where its value differs from that of all commands.
    """
    rows: dict[tuple[str, str], Row] = {}
    for path, command_ in every_command():
        files.defaults(path, command_)  # refuses keys that are no option
        for row in _rows(path, command_, files, environment, flags):
            rows.setdefault((row.command, row.name), row)
    return sorted(rows.values())


def _rows(
    path: tuple[str, ...],
    command_: click.Command,
    files: SettingsFiles,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
) -> Iterator[Row]:
    defaults = {p.name: p.default for p in command_.params if isinstance(p, click.Option)}
    for name, param in options_of(command_).items():
        variable, setting, default = f"MPCTL_{name.upper()}", files.find(path, name), defaults[param]
        if name in flags:
            value, origin = flags[name], f"flag --{name.replace('_', '-')}"
        elif environment.get(variable):
            value, origin = environment[variable], f"environment {variable}"
        elif setting is not None:
            value, origin = str(setting.value), setting.where
        elif name in COMMON[:5] and isinstance(default, str):
            value, origin = default, "default"
        else:
            continue
        shared = origin.split()[0] in _EVERYWHERE or _is_common(files, name, origin)
        yield Row("" if shared else " ".join(path), name.replace("_", "-"), value, origin)


def _is_common(files: SettingsFiles, name: str, origin: str) -> bool:
    setting = files.find((), name)
    return setting is not None and setting.where == origin


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that begin as mpctl's do and belong to no option."""
    known = {f"MPCTL_{name.upper()}" for _, command_ in every_command() for name in options_of(command_)}
    return sorted(n for n in environment if n.startswith("MPCTL_") and n not in known and n not in _OTHER)
