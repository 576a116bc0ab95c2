"""``mpctl config view``: the settings in force, and where each comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from mpctl.cli.options.shared import output_option, shared_options
from mpctl.cli.options.types import option
from mpctl.cli.registry import every_command
from mpctl.cli.settings import terminal_of
from mpctl.cli.settings_files import COMMON, SettingsFiles, find_settings, options_of

# Variables that are no option's.
_OTHER = ("MPCTL_STATE_DIR", "MPCTL_ARM")


class Row(NamedTuple):
    """A setting; ``command`` is empty for one that holds for all commands."""

    command: str
    name: str
    value: str
    origin: str

    @property
    def key(self) -> str:
        """As it is written in a settings file, dotted."""
        return ".".join((*self.command.split(), self.name))


@click.command("view")
@option("--origin", is_flag=True, help="Also say where each value comes from; -o wide does so too.")
@output_option
@shared_options
@click.pass_context
def command(ctx: click.Context, /, origin: bool, output: str, **shared: Any) -> None:
    """Print the settings in force: of files, environment and flags, and the defaults of the shared options.

    \b
    Examples:
      mpctl config view --origin
      mpctl -n team config view -o json
    """
    terminal = terminal_of(ctx, shared)
    files = find_settings()
    rows = in_force(files, os.environ, {**_flags(ctx.find_root()), **_flags(ctx)})
    if output in ("json", "yaml"):
        items = [{"setting": r.key, "value": r.value, "origin": r.origin} for r in rows]
        terminal.record("Settings", {"items": items}, output)
    elif output == "name":
        terminal.result("\n".join(r.key for r in rows))
    elif origin or output == "wide":
        terminal.table(["SETTING", "VALUE", "ORIGIN"], [[r.key, r.value, r.origin] for r in rows])
    else:
        terminal.table(["SETTING", "VALUE"], [[r.key, r.value] for r in rows])
    for name in unknown_variables(os.environ):
        terminal.warn(f"environment variable {name} is no setting of mpctl")


def _flags(ctx: click.Context) -> dict[str, str]:
    given = [n for n in COMMON if ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE]
    return {name: str(ctx.params[name]) for name in given}


def in_force(files: SettingsFiles, environment: Mapping[str, str], flags: Mapping[str, str]) -> list[Row]:
    """One row for every setting that something sets, and for the shared options with a default; a row of a command
    only where it differs from that of all commands."""
    rows: dict[tuple[str, str], Row] = {}
    for path, found in every_command():
        defaults = {p.name: p.default for p in found.params if isinstance(p, click.Option)}
        files.defaults(path, found)  # names a key that is no option
        for name, param in options_of(found).items():
            variable = f"MPCTL_{name.upper()}"
            setting = files.find(path, name)
            if name in flags:
                value, origin = flags[name], f"flag --{name.replace('_', '-')}"
            elif environment.get(variable):
                value, origin = environment[variable], f"environment {variable}"
            elif setting is not None:
                value, origin = str(setting.value), setting.where
            elif name in COMMON[:5] and isinstance(defaults[param], str):
                value, origin = str(defaults[param]), "default"
            else:
                continue
            everywhere = origin.split()[0] in ("flag", "environment", "default") or _common(files, name, origin)
            row = Row("" if everywhere else " ".join(path), name.replace("_", "-"), value, origin)
            rows.setdefault((row.command, row.name), row)
    return sorted(rows.values())


def _common(files: SettingsFiles, name: str, origin: str) -> bool:
    setting = files.find((), name)
    return setting is not None and setting.where == origin


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like ours and are not."""
    known = {f"MPCTL_{name.upper()}" for _, found in every_command() for name in options_of(found)}
    return sorted(n for n in environment if n.startswith("MPCTL_") and n not in known and n not in _OTHER)
