"""``mpctl help [COMMAND|TOPIC]``: a command's help, and what does not belong to one command."""

from __future__ import annotations

import click

from mpctl.cli.context import CliContext
from mpctl.cli.printer import columns
from mpctl.cli.terminal import as_called
from mpctl.errors import EXIT_CODES, InputError

_ENVIRONMENT = (
    ("MPCTL_<FLAG>", "the value of any flag, for example MPCTL_NAMESPACE or MPCTL_CONCURRENCY"),
    ("MPCTL_OUTPUT", "-o of every command but report and rbac, which have formats of their own"),
    ("MPCTL_STATE_DIR", "where local services and their history are kept; default: mpctl in the XDG state directory"),
    ("XDG_CONFIG_HOME", "where the user's settings are: mpctl/config.yaml below it; default: ~/.config"),
    ("NO_COLOR, CLICOLOR, CLICOLOR_FORCE", "whether to use colour; --color is stronger"),
    ("CI", "no redrawn lines"),
)
_OTHERS = """\
Three commands give some of them a meaning of their own:
  mpctl diff      as kubectl: 0 no difference, 1 differences, more than 1 an error (2 in place of 1)
  mpctl doctor    9: at least one finding fails
  mpctl capacity  9: the rollout does not fit; 6: something could not be looked up"""
_CONFIG = """\
Flag > environment > project file > user file > default.

The project file is mpctl.yaml in this directory or the nearest one above, the user's is mpctl/config.yaml in the XDG
configuration directory. Names are those of the flags; what stands below a command is stronger than what stands at
the top:

  platform: local
  timeout: 20m
  rollout:
    concurrency: 8
  local:
    up:
      port: 8000

At the top may stand platform, namespace, context, kubeconfig, color, verbose, quiet, debug, output, timeout, yes and
no-input; report and rbac do not read output. mpctl config view --origin shows what is in force and where it comes
from."""
_OUTPUT = """\
-o table   for reading; its columns may change from one version to the next
-o wide    the same with more columns
-o json    for programs: an object with apiVersion and kind; units are in the names
-o yaml    the same as YAML
-o name    names alone, one per line

Results go to standard output, everything else to standard error. Several objects are one object with items."""


def exit_codes() -> str:
    """The table of exit codes."""
    rows = columns([["CODE", "MEANING"], *([str(code), text] for code, text in EXIT_CODES.items())])
    return f"{rows}\n\n{_OTHERS}"


def environment() -> str:
    """The table of environment variables."""
    return columns([["VARIABLE", "MEANING"], *map(list, _ENVIRONMENT)])


TOPICS = {
    "exit-codes": (exit_codes, "What the exit codes mean"),
    "environment": (environment, "Variables that are read"),
    "config": (lambda: _CONFIG, "Settings files and precedence"),
    "output": (lambda: _OUTPUT, "Formats of results"),
}


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND|TOPIC]", shell_complete=lambda _c, _p, text: _known(text))
@click.pass_context
def command(ctx: click.Context, /, words: tuple[str, ...]) -> None:
    """Explain a command or a topic: exit-codes, environment, config, output."""
    root = ctx.find_root()
    call = root.obj
    assert isinstance(call, CliContext)
    if words and words[0] in TOPICS and words != ("config", "view"):
        call.terminal.result(as_called(TOPICS[words[0]][0](), call.program))
    elif words:
        call.terminal.result(_of_command(root, words))
    else:
        topics = columns([[f"  {name}", text] for name, (_, text) in TOPICS.items()])
        call.terminal.result(f"{root.get_help()}\n\nTopics of {call.program} help:\n{topics}")


def _of_command(root: click.Context, words: tuple[str, ...]) -> str:
    ctx, found = root, root.command
    for word in words:
        below = found.get_command(ctx, word) if isinstance(found, click.Group) else None
        if below is None:
            import difflib

            known = [*TOPICS, *found.list_commands(ctx)] if isinstance(found, click.Group) else []
            near = difflib.get_close_matches(word, known, n=1)
            hint = (
                f"did you mean {near[0]}" if near else f"mpctl --help lists the commands; topics: {', '.join(TOPICS)}"
            )
            raise InputError(f"there is no help on {' '.join(words)}", hint=hint)
        ctx, found = click.Context(below, info_name=word, parent=ctx), below
    return found.get_help(ctx)


def _known(text: str) -> list[str]:
    from mpctl.cli.registry import COMMANDS

    return [name for name in (*TOPICS, *COMMANDS) if name.startswith(text)]
