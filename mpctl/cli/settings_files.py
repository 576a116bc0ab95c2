"""Settings files. Precedence: flag > environment > project file > user file > default.

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
from mpctl.cli.project_file import ALLOWED, LARGEST, decoded, read_project_file
from mpctl.cli.registry import COMMANDS, every_command
from mpctl.errors import InputError, nearest

if TYPE_CHECKING:
    from mpctl.staging.modes import StagingFacts

# Options that several commands have, and that may therefore stand at the top of a file.
COMMON = (
    *("platform", "namespace", "context", "kubeconfig", "color", "verbose", "quiet", "debug"),
    *("output", "timeout", "yes", "no_input", "staging"),
    *("sign_with", "public_key"),
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
                        _unknown(
                            setting, option, options, f"{' '.join(path)} has no option of this name"
                        )
        repeatable = {
            param.name
            for param in command.params
            if isinstance(param, click.Option) and param.multiple
        }
        return {
            param: _value(configured.value, repeatable=param in repeatable)
            for name, param in options.items()
            if (configured := self.find(path, name)) is not None
        }


def _value(value: Any, *, repeatable: bool) -> Any:
    """Return a setting as its option takes it: a list for a repeatable one, else a value or text with commas."""
    if repeatable:
        return value if isinstance(value, list | None) else [value]
    return ",".join(map(str, value)) if isinstance(value, list) else value


def options_of(command: click.Command) -> dict[str, str]:
    """Names that a settings file may use for a command's options, and the name of the parameter of each."""
    return {
        str(param.envvar).removeprefix("MPCTL_").lower(): param.name
        for param in command.params
        if isinstance(param, click.Option) and param.name and param.envvar
    }


def find_settings(warn: Callable[[str], None]) -> SettingsFiles:
    """The settings files in force; none with MPCTL_SETTINGS=none. ``warn``: told of a project file that is ignored.

    Raises:
        InputError: one cannot be read, or sets what is no option or not allowed.
    """
    wanted = os.environ.get("MPCTL_SETTINGS")
    if wanted not in (None, "", "none"):
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
                raise InputError(
                    "a project file may not set this: it is part of where, as whom or with what mpctl acts",
                    file=setting.file,
                    line=setting.line,
                    field=key[-1],
                    hint=f"put it into the user file, {user}",
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
    settings: dict[Key, Setting] = {}
    for key, setting in _read(text, str(path)):
        top = key[0]
        if top not in COMMANDS and (top not in COMMON or len(key) > 1):
            _unknown(setting, top, (*COMMON, *COMMANDS), "unknown setting")
        if top in COMMANDS and len(key) == 1 and setting.value is not None:
            raise InputError(
                "must be a mapping of the command's options",
                file=setting.file,
                line=setting.line,
                field=top,
            )
        if key in settings:
            raise InputError(
                "is set twice", file=setting.file, line=setting.line, field=".".join(key)
            )
        settings[key] = setting
    return settings


def _read(text: str, file: str) -> Iterator[tuple[Key, Setting]]:
    """Yield the settings of a file, with the manifests' limits of depth and of what aliases repeat."""
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
            if isinstance(value, Mapping) and key == ("staging",):
                yield key, Setting(_staging(text, file), file, name.line)
            elif isinstance(value, Mapping) and value.entries:
                yield from walk(value, key)
            else:
                yield (
                    key,
                    Setting(None if isinstance(value, Mapping) else data(value), file, name.line),
                )

    roots: list[Node] = [document.root for document in parse(text, file)]
    if len(roots) > 1:
        raise InputError("expected one document", file=file, line=roots[1].line)
    for root in roots:
        if not isinstance(root, Mapping):
            raise InputError(
                "must be a mapping of option names to values", file=file, line=root.line
            )
        yield from walk(root, ())


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
    raise InputError(message, file=setting.file, line=setting.line, field=name, hint=hint)


def commands_with(name: str) -> list[str]:
    """Commands that have an option of this name; loads them all."""
    return [" ".join(path) for path, command in every_command() if name in options_of(command)]
