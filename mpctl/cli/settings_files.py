"""Settings files. Precedence: flag > environment > project file > user file > default.

The project file is ``mpctl.yaml`` in this directory or the nearest one above; the user's is ``config.yaml`` in the
XDG configuration directory. Both hold options by the names of their flags: the common ones at the top, every option of
a command under the command's name. Within one file what stands under the command wins::

    platform: local
    timeout: 20m
    rollout:
      concurrency: 8
    local:
      up:
        port: 8000
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from mpctl import commands
from mpctl.cli.registry import COMMANDS, every_command
from mpctl.errors import InputError

PROJECT_FILE = "mpctl.yaml"
# Options that several commands have, and that may therefore stand at the top of a file.
COMMON = (
    *("platform", "namespace", "context", "kubeconfig", "color", "verbose", "quiet", "debug"),
    *("output", "timeout", "yes", "no_input"),
)

Key = tuple[str, ...]


class Setting(NamedTuple):
    """A value of a file and where it stands."""

    value: Any
    file: str
    line: int

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"


class SettingsFiles:
    """The settings of all files, the strongest file first; keys are command names and then the option's."""

    def __init__(self, files: Iterable[dict[Key, Setting]]) -> None:
        self.files = tuple(files)

    def find(self, path: Key, name: str) -> Setting | None:
        """The setting of an option of the command at ``path``; the project's file before the user's, and within a file
        the command's own before the common."""
        for settings in self.files:
            for depth in range(len(path), -1, -1):
                setting = settings.get((*path[:depth], name))
                if setting is not None and (depth == len(path) or name in COMMON):
                    return setting
        return None

    def defaults(self, path: Key, command: click.Command) -> dict[str, Any]:
        """click's default map for the command at ``path``.

        Raises:
            InputError: a key below it is no option of the command.
        """
        if isinstance(command, click.Group):
            return {}  # click asks again for each command of the group
        options = options_of(command)
        for settings in self.files:
            for key, setting in settings.items():
                if key[: len(path)] == path and len(key) > len(path):
                    option = ".".join(key[len(path) :])
                    if option not in options:
                        _unknown(setting, option, options, f"{' '.join(path)} has no option of this name")
        return {
            param: configured.value
            for name, param in options.items()
            if (configured := self.find(path, name)) is not None
        }


def options_of(command: click.Command) -> dict[str, str]:
    """Names that a settings file may use for a command's options, and the name of the parameter of each."""
    parameters = {}
    for param in command.params:
        if isinstance(param, click.Option) and param.name and param.envvar:
            long = next(o for o in param.opts if o.startswith("--"))
            parameters[long.lstrip("-").replace("-", "_")] = param.name
    return parameters


def find_settings() -> SettingsFiles:
    """The settings files in force.

    Raises:
        InputError: one cannot be read, or sets what is no option.
    """
    return SettingsFiles(read_settings(path) for path in (project_file(), user_file()) if path is not None)


def project_file() -> Path | None:
    """The nearest project file, or None."""
    here = Path.cwd()
    return next((p for d in (here, *here.parents) if (p := d / PROJECT_FILE).is_file()), None)


def user_file() -> Path | None:
    """The user's file, or None."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    path = Path(base) / "mpctl" / "config.yaml"
    return path if path.is_file() else None


def read_settings(path: Path) -> dict[Key, Setting]:
    """Read a settings file; keys below a command are checked when that command runs.

    Raises:
        InputError: the file is not a YAML mapping, or a top-level key is neither a command nor a common option.
    """
    settings: dict[Key, Setting] = {}
    for key, setting in _read(path):
        top = key[0]
        if top not in COMMANDS and (top not in COMMON or len(key) > 1):
            _unknown(setting, top, (*COMMON, *COMMANDS), "unknown setting")
        if top in COMMANDS and len(key) == 1 and setting.value is not None:
            raise InputError(
                "must be a mapping of the command's options", file=setting.file, line=setting.line, field=top
            )
        if key in settings:
            raise InputError("is set twice", file=setting.file, line=setting.line, field=".".join(key))
        settings[key] = setting
    return settings


def _read(path: Path) -> Iterator[tuple[Key, Setting]]:
    import yaml

    try:
        with path.open(encoding="utf-8") as file:
            loader = yaml.SafeLoader(file)
            root = loader.get_single_node()
            if root is None:
                return
            if not isinstance(root, yaml.MappingNode):
                raise InputError("must be a mapping of option names to values", file=str(path), line=1)
            yield from _walk(loader, root, (), str(path))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise InputError(f"not YAML: {error.problem}", file=str(path), line=line) from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"cannot be read: {error}", file=str(path)) from error


def _walk(loader: Any, node: Any, above: Key, file: str) -> Iterator[tuple[Key, Setting]]:
    import yaml

    for key_node, value_node in node.value:
        key = (*above, str(loader.construct_object(key_node, deep=True)).replace("-", "_"))
        line = key_node.start_mark.line + 1
        if isinstance(value_node, yaml.MappingNode) and value_node.value:
            yield from _walk(loader, value_node, key, file)
        else:
            yield key, Setting(loader.construct_object(value_node, deep=True), file, line)


def _unknown(setting: Setting, name: str, names: Iterable[str], message: str) -> NoReturn:
    import difflib

    near = difflib.get_close_matches(name, names, n=1)
    owners = commands_with(name)
    if near:
        hint = f"did you mean {near[0]}"
    elif owners:
        hint = f"it is an option of {', '.join(owners)}: write it below that name"
    else:
        hint = f"run '{commands.line('help', 'config')}' for the format of the file"
    raise InputError(message, file=setting.file, line=setting.line, field=name, hint=hint)


def commands_with(name: str) -> list[str]:
    """Commands that have an option of this name; loads them all."""
    return [" ".join(path) for path, command in every_command() if name in options_of(command)]
