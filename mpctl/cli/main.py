"""The root command: finds commands by name, loads the one that is used, and turns errors into exit codes.

``mpctl --help`` imports click alone; a command's module, and what it needs, is imported when the command runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from mpctl import __version__
from mpctl.cli.config import default_map
from mpctl.cli.options import root_options
from mpctl.cli.terminal import Terminal
from mpctl.errors import Cancelled, InputError, MpctlError

# name -> (module, one line of help, group of the listing)
COMMANDS: dict[str, tuple[str, str, str]] = {
    "rollout": ("mpctl.cli.rollout", "Roll speculation onto a service behind a measured gate", "Rollout"),
    "rollback": ("mpctl.cli.rollback", "Restore a recorded revision exactly", "Rollout"),
    "resume": ("mpctl.cli.resume", "Go on with what was interrupted", "Rollout"),
    "status": ("mpctl.cli.status", "Show services, what runs and what is under way", "Look"),
    "history": ("mpctl.cli.history", "List recorded revisions, or print one", "Look"),
    "diff": ("mpctl.cli.diff", "Compare the service with a revision or with a change", "Look"),
    "preflight": ("mpctl.cli.preflight", "Check a change without making it", "Look"),
    "methods": ("mpctl.cli.methods", "List speculation methods and their defaults", "Look"),
    "local": ("mpctl.cli.local", "Run services as processes on this machine", "Platform"),
    "config": ("mpctl.cli.config", "Show settings and where they come from", "Other"),
    "completion": ("mpctl.cli.completion", "Print a completion script for a shell", "Other"),
    "help": ("mpctl.cli.help", "Explain exit codes and environment variables", "Other"),
    "version": ("mpctl.cli.version", "Print versions", "Other"),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used, listed by topic, with did-you-mean."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module; every module calls its command ``command``."""
        if cmd_name not in COMMANDS:
            return None
        loaded: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say which command was probably meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}" if near else "mpctl --help lists the commands"
            raise InputError(f"there is no command {args[0]!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List by topic without importing anything."""
        topics: dict[str, list[tuple[str, str]]] = {}
        for name, (_, text, topic) in COMMANDS.items():
            topics.setdefault(topic, []).append((name, text))
        for topic, rows in topics.items():
            with formatter.section(topic):
                formatter.write_dl(rows)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: mpctl help exit-codes",
)
@click.version_option(__version__, "--version", message="mpctl %(version)s")
@root_options
@click.pass_context
def cli(ctx: click.Context, /, **shared: Any) -> None:
    """Speculative decoding for vLLM, rolled out behind a measured gate and rolled back exactly.

    \b
    Examples:
      mpctl local up -f service.yaml          start a service on this machine
      mpctl rollout --spec ngram              measure n-gram speculation, promote it if it pays
      mpctl rollback                          the exact way back
      mpctl history                           what was done
    """
    ctx.obj = shared
    ctx.default_map = default_map(list(COMMANDS))


def program_name() -> str:
    """``kubectl mpctl`` when kubectl runs us as a plugin."""
    return "kubectl mpctl" if Path(sys.argv[0]).name.startswith("kubectl-") else "mpctl"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and exit."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; the one place where errors become codes."""
    terminal = Terminal.of_environment()
    try:
        code = cli.main(args=arguments, prog_name=program_name(), standalone_mode=False)
        return code if isinstance(code, int) else 0
    except MpctlError as error:
        terminal.error(error.message, error.hint)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return 2
    except click.UsageError as error:
        where = f"see {error.ctx.command_path} --help" if error.ctx else None
        terminal.error(error.format_message(), where)
        return 2
    except (click.Abort, KeyboardInterrupt):
        hint = "mpctl status shows what is unfinished; mpctl resume goes on, mpctl rollback undoes"
        terminal.error("interrupted", hint)
        return Cancelled.exit_code
    except BrokenPipeError:
        # The reader of our output is gone (mpctl history | head); nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("MPCTL_DEBUG") or "--debug" in (arguments or sys.argv):
            raise
        hint = "this is a fault of mpctl; run again with --debug and report it"
        terminal.error(f"{type(error).__name__}: {error}", hint)
        return 1


if __name__ == "__main__":
    main()
