"""Settings files. Precedence: flag > environment > --measurement file > project file > user file > default.

The project file is ``mpctl.yaml`` (mpctl.cli.project_file says which, and what it may set); the user's is
``config.yaml`` in the XDG configuration directory. Both hold options by the names of their flags: the common ones at
the top, every option of a command under the command's name. Within one file what stands under the command wins::

    timeout: 20m
    rollout:
      concurrency: 8
    local:
      up:
        timeout: 5m
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from mpctl import commands
from mpctl.cli.project_file import (
    ALLOWED,
    LARGEST,
    MEASUREMENT,
    decoded,
    read_project_file,
)
from mpctl.cli.registry import COMMANDS, every_command
from mpctl.errors import InputError, nearest

if TYPE_CHECKING:
    from mpctl.staging.modes import StagingFacts

# Options that several commands have, and that may therefore stand at the top of a file.
COMMON = (
    *("platform", "namespace", "context", "kubeconfig", "color", "verbose", "quiet", "debug"),
    *("output", "timeout", "request_timeout", "yes", "no_input", "staging", "engine_version"),
    *("sign_with", "public_key"),
)

Key = tuple[str, ...]


class Setting(NamedTuple):
    """A value of a file and where it stands."""

    value: Any
    file: str
    line: int

    def error(self, message: str, field: str, hint: str | None = None) -> InputError:
        """Return an error about the setting."""
        return InputError(message, file=self.file, line=self.line, field=field, hint=hint)


class SettingsFiles:
    """The settings of all files, the strongest file first; keys are command names and then the option's."""

    def __init__(self, files: Iterable[dict[Key, Setting]]) -> None:
        self.files = tuple(files)

    def add_measurement(self, ctx: click.Context, path: Key, file: str) -> None:
        """Put the keys of a measurement file in front, as settings of the command at ``path``.

        Raises:
            InputError: the file cannot be read, or has a key that describes no measurement.
        """
        from mpctl.app.files import read_file

        settings = _read(read_file(file, "the measurement"), file, path)
        for key, setting in settings.items():
            if key[-1] not in MEASUREMENT.split(", "):
                raise setting.error("unknown key of a measurement", key[-1], f"use {MEASUREMENT}")
        self.files = (settings, *self.files)
        ctx.default_map = self.defaults(path, ctx.command)

    def find(self, path: Key, name: str) -> Setting | None:
        """The setting of an option of the command at ``path``; the project's file before the user's, and within a file
        the command's own before the common."""
        for settings in self.files:
            for depth in range(len(path), -1, -1):
                setting = settings.get((*path[:depth], name))
                if setting and (depth == len(path) or name in COMMON):
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
                    name = ".".join(key[len(path) :])
                    if name not in options:
                        _unknown(
                            setting, name, options, f"{' '.join(path)} has no option of this name"
                        )
        return {
            str(option.name): _value(configured.value, repeatable=option.multiple)
            for name, option in options.items()
            if (configured := self.find(path, name))
        }


def _value(value: Any, *, repeatable: bool) -> Any:
    """Return a setting as its option takes it: a list for a repeatable one, else a value or text with commas."""
    if repeatable:
        return value if isinstance(value, list | None) else [value]
    return ",".join(map(str, value)) if isinstance(value, list) else value


def options_of(command: click.Command) -> dict[str, click.Option]:
    """The options of a command by the names that a settings file may use for them."""
    return {
        str(param.envvar).removeprefix("MPCTL_").lower(): param
        for param in command.params
        if isinstance(param, click.Option) and param.envvar
    }


def find_settings(warn: Callable[[str], None]) -> SettingsFiles:
    """The settings files in force; none with MPCTL_SETTINGS=none. ``warn``: told of a project file that is ignored.

    Raises:
        InputError: one cannot be read, or sets what is no option or not allowed.
    """
    wanted = os.environ.get("MPCTL_SETTINGS", "")
    if wanted not in ("", "none"):
        raise InputError(
            f"{wanted!r} is not none", field="environment variable MPCTL_SETTINGS", hint="unset it"
        )
    if wanted == "none":
        return SettingsFiles(())
    files = []
    user = user_file()
    project = read_project_file(warn, user)
    if project is not None:
        settings = read_settings(*project)
        for key, setting in settings.items():
            # A name that no command has sets nothing; its command refuses it.
            if key[-1] not in ALLOWED and commands_with(key[-1]):
                raise setting.error(
                    "a project file may not set this: it is part of where, as whom or with what mpctl acts",
                    key[-1],
                    f"put it into the user file, {user}",
                )
        files.append(settings)
    try:
        with user.open("rb") as file:
            files.append(read_settings(user, decoded(file.read(LARGEST + 1), user)))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(user)) from error
    return SettingsFiles(files)


def user_file() -> Path:
    """The path of the user's file."""
    return (
        Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser())
        / "mpctl"
        / "config.yaml"
    )


def read_settings(path: Path, text: str) -> dict[Key, Setting]:
    """Read the text of a settings file; keys below a command are checked when that command runs.

    Raises:
        InputError: the file is not a YAML mapping, or a top-level key is neither a command nor a common option.
    """
    settings = _read(text, str(path))
    for key, setting in settings.items():
        top = key[0]
        if top not in COMMANDS and (top not in COMMON or len(key) > 1):
            _unknown(setting, top, (*COMMON, *COMMANDS), "unknown setting")
        if top in COMMANDS and len(key) == 1 and setting.value is not None:
            raise setting.error("must be a mapping of the command's options", top)
    return settings


def _read(text: str, file: str, above: Key = ()) -> dict[Key, Setting]:
    """Return the settings of a file, whose keys follow those ``above``; read with the manifests' limits of depth and of
    what aliases repeat."""
    from mpctl.manifest.text.yaml_tree import Mapping, Node, Scalar, Sequence, data, parse, resolve

    def walk(mapping: Mapping, above: Key) -> Iterator[tuple[Key, Setting]]:
        for name, node in mapping.entries:
            key = (*above, name.value.replace("-", "_"))
            value = resolve(node)
            if isinstance(value, Sequence) and not all(
                isinstance(resolve(item), Scalar) for item in value.items
            ):
                raise InputError(
                    "must be a value or a list of values",
                    file=file,
                    line=name.line,
                    field=name.value,
                )
            content = None
            if key == ("staging",) and isinstance(value, Mapping):
                content = _staging(text, file)
            elif not isinstance(value, Mapping):
                content = data(value)
            elif value.entries:
                yield from walk(value, key)
                continue
            yield key, Setting(content, file, name.line)

    settings: dict[Key, Setting] = {}
    roots: list[Node] = [document.root for document in parse(text, file)]
    if len(roots) > 1:
        raise InputError("expected one document", file=file, line=roots[1].line)
    for root in roots:
        if not isinstance(root, Mapping):
            raise InputError(
                "must be a mapping of option names to values", file=file, line=root.line
            )
        for key, setting in walk(root, above):
            if key in settings:
                raise setting.error("is set twice", key[-1])
            settings[key] = setting
    return settings


def _staging(text: str, file: str) -> StagingFacts:
    """The facts below the key ``staging``, which no other setting has below itself."""
    from mpctl.app.change.staging import read_staging
    from mpctl.yaml_lines import document

    return read_staging(document(text, file).node("staging"))


def _unknown(setting: Setting, name: str, names: Iterable[str], message: str) -> NoReturn:
    near = nearest(name, names)
    owners = commands_with(name)
    if near:
        hint = f"did you mean {near}"
    elif owners:
        hint = f"it is an option of {', '.join(owners)}: write it below that name"
    else:
        hint = f"run '{commands.line('help', 'config')}' for the format of the file"
    raise setting.error(message, name, hint)


def commands_with(name: str) -> list[str]:
    """Commands that have an option of this name; loads them all."""
    return [" ".join(path) for path, command in every_command() if name in options_of(command)]
