"""Help, versions, settings and completion: ``mpctl help``, ``version``, ``config view`` and ``completion``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from mpctl import __version__
from mpctl.app.option import Option
from mpctl.cli.command import OUTPUT, Word, command
from mpctl.cli.context import CliContext
from mpctl.cli.group import LazyGroup
from mpctl.cli.printer import API_VERSION, columns, explain_formats, page, paragraph
from mpctl.cli.registry import COMMANDS, every_command
from mpctl.cli.terminal import as_called
from mpctl.errors import EXIT_CODES, InputError

if TYPE_CHECKING:
    from mpctl.cli.settings_files import SettingsFiles

_ENVIRONMENT = (
    ("MPCTL_<OPTION>", "value of any option, for example MPCTL_NAMESPACE or MPCTL_CONCURRENCY"),
    ("MPCTL_OUTPUT", "-o of every command except report and rbac, which have formats of their own"),
    ("MPCTL_STATE_DIR", "directory of local services and their history (default: mpctl in the XDG state directory)"),
    ("OPENAI_API_KEY", "API key of the server that 'mpctl bench --url' measures"),
    ("XDG_CONFIG_HOME", "directory with the user's settings, mpctl/config.yaml (default: ~/.config)"),
    ("NO_COLOR, CLICOLOR, CLICOLOR_FORCE", "colour on or off; --color takes precedence"),
    ("CI", "disables redrawn progress lines"),
)
_OTHERS = """\
Three commands give some codes a meaning of their own:
  mpctl diff      as kubectl: 0 no difference, 1 differences, more than 1 an error (2 instead of 1)
  mpctl doctor    9: at least one finding fails
  mpctl capacity  9: the rollout does not fit; 6: not everything could be checked"""
_CONFIG = """\
Flag > environment > project file > user file > default.

The project file is mpctl.yaml in this directory or the nearest one above; the user file is mpctl/config.yaml in the XDG
configuration directory. Names are those of the options. Within a file, a setting of a command takes precedence over one
at the top:

  platform: local
  timeout: 20m
  rollout:
    concurrency: 8
  local:
    up:
      port: 8000

Allowed at the top: platform, namespace, context, kubeconfig, color, verbose, quiet, debug, output, timeout, yes and
no-input; report and rbac do not read output. 'mpctl config view --origin' shows the effective settings and their
origin."""


def output_formats() -> str:
    """Return the formats of -o."""
    return f"{explain_formats()}\n\n" + paragraph(
        "Results go to standard output, everything else to standard error. Several objects are one object with items."
    )


def exit_codes() -> str:
    """Return the table of exit codes."""
    rows = columns([["CODE", "MEANING"], *([str(code), text] for code, text in EXIT_CODES.items())])
    return f"{rows}\n\n{paragraph(_OTHERS)}"


def environment() -> str:
    """Return the table of environment variables."""
    return columns([["VARIABLE", "MEANING"], *map(list, _ENVIRONMENT)])


TOPICS = {
    "exit-codes": (exit_codes, "Meaning of the exit codes"),
    "environment": (environment, "Environment variables"),
    "config": (lambda: paragraph(_CONFIG), "Settings files and precedence"),
    "output": (output_formats, "Formats of results"),
}


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND|TOPIC]", shell_complete=lambda _c, _p, text: _names(text))
@click.pass_context
def help_(ctx: click.Context, /, words: tuple[str, ...]) -> None:
    """Explain a command or a topic: exit-codes, environment, config, output."""
    root = ctx.find_root()
    context = root.obj
    assert isinstance(context, CliContext)
    if words and words[0] in TOPICS and words != ("config", "view"):
        with page(context.terminal.page_width):
            context.terminal.result(as_called(TOPICS[words[0]][0](), context.program))
    elif words:
        context.terminal.result(_of_command(root, words))
    else:
        topics = columns([[f"  {name}", text] for name, (_, text) in TOPICS.items()])
        context.terminal.result(f"{root.get_help()}\n\nTopics of {context.program} help:\n{topics}")


def _of_command(root: click.Context, words: tuple[str, ...]) -> str:
    ctx, command_ = root, root.command
    for word in words:
        below = command_.get_command(ctx, word) if isinstance(command_, click.Group) else None
        if below is None:
            import difflib

            names = [*TOPICS, *command_.list_commands(ctx)] if isinstance(command_, click.Group) else []
            near = difflib.get_close_matches(word, names, n=1)
            hint = (
                f"did you mean {near[0]}" if near else f"'mpctl --help' lists the commands; topics: {', '.join(TOPICS)}"
            )
            raise InputError(f"help on {' '.join(words)} not found", hint=hint)
        ctx, command_ = click.Context(below, info_name=word, parent=ctx), below
    return command_.get_help(ctx)


def _names(text: str) -> list[str]:
    return [name for name in (*TOPICS, *COMMANDS) if name.startswith(text)]


@command("version", Option("--client", type=bool, help="Print only the versions of mpctl itself."), OUTPUT)
def version(context: CliContext, /, *, client: bool) -> None:
    """Print the versions of mpctl, its Python, the schema of its records, and the vLLM of this environment."""
    versions = {"mpctl": __version__, "python": ".".join(map(str, sys.version_info[:3])), "schema": API_VERSION}
    if not client:
        from mpctl.platform.local.engine import installed_version

        versions["vllm"] = installed_version() or "not installed"
    context.emit(
        "Version",
        record=lambda: versions,
        names=lambda: versions,
        table=lambda _wide: columns([["COMPONENT", "VERSION"], *([k, v] for k, v in versions.items())]),
    )


@click.command("completion")
@click.argument("shell", type=Word(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, /, shell: str) -> None:
    """Print a completion script for a shell.

    \b
    bash:  source <(mpctl completion bash)
    zsh:   source <(mpctl completion zsh)
    fish:  mpctl completion fish | source
    """
    # Services of a cluster are not completed: each key press would query its API server.
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    completer = kind(ctx.find_root().command, {}, "mpctl", "_MPCTL_COMPLETE")
    context = ctx.find_root().obj
    assert isinstance(context, CliContext)
    # The base class's method: bash's own starts a bash to check its version.
    context.terminal.result(ShellComplete.source(completer))


config = LazyGroup(
    "config",
    table={"view": ("shell:view", "Print the effective settings", "Commands")},
    help="Show settings and their origin; 'mpctl help config' explains the files.",
)

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


@command("view", Option("--origin", type=bool, help="Also print the origin of each value, as -o wide does."), OUTPUT)
def view(context: CliContext, /, *, origin: bool) -> None:
    """Print the effective settings: from files, environment and flags, and the defaults of the shared options.

    \b
    Examples:
      mpctl config view --origin
      mpctl -n team config view -o json
    """
    from mpctl.cli.settings_files import find_settings

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
    from mpctl.cli.settings_files import COMMON

    typed = [name for name in COMMON if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    return {name: str(ctx.params[name]) for name in typed}


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
    from mpctl.cli.settings_files import COMMON, options_of

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
    from mpctl.cli.settings_files import options_of

    settings = {f"MPCTL_{name.upper()}" for _, command_ in every_command() for name in options_of(command_)}
    return sorted(n for n in environment if n.startswith("MPCTL_") and n not in settings and n not in _OTHER)
