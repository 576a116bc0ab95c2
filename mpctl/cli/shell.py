"""Help, versions and completion: ``mpctl help``, ``version`` and ``completion``."""

from __future__ import annotations

import sys

import click

from mpctl import __version__
from mpctl.cli.command import OUTPUT, Word, command
from mpctl.cli.context import CliContext
from mpctl.cli.printer import API_VERSION, columns, page, paragraph
from mpctl.cli.registry import COMMANDS
from mpctl.cli.terminal import as_called
from mpctl.errors import EXIT_CODES

_ENVIRONMENT = (
    ("MPCTL_<OPTION>", "value of any option, for example MPCTL_NAMESPACE or MPCTL_CONCURRENCY"),
    ("MPCTL_OUTPUT", "-o of every command except report and rbac, which have formats of their own"),
    ("MPCTL_SETTINGS", "none: read neither the project file nor the user file"),
    (
        "MPCTL_STATE_DIR",
        "directory of local services and their history (default: mpctl in the XDG state directory)",
    ),
    ("MPCTL_SIGNING_PASSWORD", "password of the key file of sign_with"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector that operations are sent to, with mpctl[otel]"),
    ("OPENAI_API_KEY", "API key of the server that 'mpctl bench --url' measures"),
    (
        "XDG_CONFIG_HOME",
        "directory with the user's settings, mpctl/config.yaml (default: ~/.config)",
    ),
    ("NO_COLOR, CLICOLOR, CLICOLOR_FORCE", "colour on or off; --color takes precedence"),
    ("CI", "disables redrawn progress lines"),
)
_OTHERS = """\
Two commands give some codes a meaning of their own:
  mpctl diff    as kubectl: 0 no difference, 1 differences, more than 1 an error (2 instead of 1)
  mpctl doctor  9: at least one finding fails"""
_CONFIG = """\
Flag > environment > file of --measurement > project file > user file > default.

The project file is mpctl.yaml in this directory or the nearest one above, up to the root of the repository or the home
directory; the user file is mpctl/config.yaml in the XDG configuration directory. MPCTL_SETTINGS=none reads neither.
Names are those of the options, and of the settings without an option, which --help-all lists as MPCTL_NAME. Within a
file, a setting of a command takes precedence over one at the top:

  timeout: 20m
  rollout:
    concurrency: 8
  local:
    up:
      timeout: 5m

Allowed at the top: platform, namespace, context, kubeconfig, color, verbose, quiet, debug, output, timeout,
request-timeout, yes, no-input, sign-with, public-key, engine-version, and staging: a file, or the facts themselves.
report and rbac do not read output. A wrong value is reported with its file and line, or its variable.

The file of --measurement holds the keys of rollout and bench that describe how to measure, at its top.

A project file comes with its folder, which another user may have written. So it may set only:
"""


def config() -> str:
    """Return the format of the settings files."""
    import textwrap

    from mpctl.cli.project_file import ALLOWED

    allowed = textwrap.fill(
        ", ".join(sorted(name.replace("_", "-") for name in ALLOWED)), 120, break_on_hyphens=False
    )
    return paragraph(f"{_CONFIG}{allowed}.\n\n{_TRUST}")


_TRUST = """\
Everything else belongs into the user file: where, as whom, with which image, Secret, program or policy mpctl acts, and
where it writes. The project file and each folder up to the root of the repository must belong to you or to root and be
writable by no other user; else the file is ignored with a warning."""


_FORMATS = """\
-o table   for reading, as wide as the terminal; columns may change between versions
-o wide    the same with more columns, a line per row however wide
-o json    for programs: an object with apiVersion and kind; units are in the names
-o yaml    the same as YAML
-o name    names only, one per line

Results go to standard output, everything else to standard error. Several objects are one object with items."""


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
    "config": (config, "Settings files and precedence"),
    "output": (lambda: paragraph(_FORMATS), "Formats of results"),
}


@click.command("help")
@click.argument(
    "words",
    nargs=-1,
    metavar="[COMMAND|TOPIC]",
    shell_complete=lambda _c, _p, text: [n for n in (*TOPICS, *COMMANDS) if n.startswith(text)],
)
@click.pass_context
def help_(ctx: click.Context, /, words: tuple[str, ...]) -> None:
    """Explain a command or a topic: exit-codes, environment, config, output."""
    root = ctx.find_root()
    context = root.obj
    assert isinstance(context, CliContext)
    if words and words[0] in TOPICS:
        with page(context.terminal.page_width):
            context.terminal.result(as_called(TOPICS[words[0]][0](), context.program))
    elif words:
        root.command.main([*words, "--help"], context.program, standalone_mode=False, obj=context)
    else:
        topics = columns([[f"  {name}", text] for name, (_, text) in TOPICS.items()])
        context.terminal.result(f"{root.get_help()}\n\nTopics of {context.program} help:\n{topics}")


@command("version", OUTPUT)
def version(context: CliContext, /) -> None:
    """Print the versions of mpctl, its Python, the schema of its records, and the vLLM of this environment."""
    from mpctl import annex

    installed = annex.find("installed-engine")
    versions = {
        "mpctl": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "schema": API_VERSION,
        "vllm": (installed and installed()) or "not installed",
    }
    context.emit(
        "Version",
        record=lambda: versions,
        names=lambda: versions,
        table=lambda _wide: columns([["COMPONENT", "VERSION"], *map(list, versions.items())]),
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

    Put the line into .bashrc, .zshrc or config.fish.
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
