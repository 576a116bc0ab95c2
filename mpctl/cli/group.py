"""Groups whose commands are imported when they are used."""

from __future__ import annotations

from inspect import cleandoc
from typing import TYPE_CHECKING, Any

import click

from mpctl.cli.context import CliContext
from mpctl.cli.registry import load_command
from mpctl.cli.size import fit_examples
from mpctl.cli.terminal import as_called
from mpctl.errors import InputError, nearest

if TYPE_CHECKING:
    from mpctl.cli.registry import Table

# Commands that must work whatever the settings files say.
_WITHOUT_SETTINGS = ("help", "completion")
_HELP = ("-h", "--help")


def named(command: click.Command, program: str) -> click.Command:
    """The command with its help in the name by which the user calls the program."""
    if program == "mpctl":
        return command
    from copy import copy

    renamed = copy(command)
    renamed.help = as_called(command.help or "", program)
    renamed.epilog = as_called(command.epilog or "", program)
    return renamed


class FittedHelp(click.Command):
    """A command whose examples are no wider than its help."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description and the examples."""
        written, self.help = self.help, fit_examples(cleandoc(self.help or ""), formatter.width - 2)
        try:
            super().format_help_text(ctx, formatter)
        finally:
            self.help = written


class LazyGroup(FittedHelp, click.Group):
    """A group over a table of the registry. ``default``: the command that is meant where none is named."""

    def __init__(self, *args: Any, table: Table, default: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.table = table
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command unless the first argument names one."""
        if self.default and (not args or (args[0] not in self.table and args[0] not in _HELP)):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, and the options of the default one."""
        self.format_commands(ctx, formatter)
        if ctx.parent is not None:
            click.Command.format_options(self, ctx, formatter)
        default = self.get_command(ctx, self.default) if self.default else None
        if default is not None:
            formatter.write_paragraph()
            formatter.write_text(
                f"Without a command, {ctx.command_path} means {ctx.command_path} {self.default}:"
            )
            default.format_options(
                click.Context(default, info_name=self.default, parent=ctx), formatter
            )

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in self.table:
            return None
        loaded = load_command(self.table, cmd_name)
        call = ctx.obj
        return named(loaded, call.program) if isinstance(call, CliContext) else loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest a similar command for an unknown name; apply the settings files to a known command."""
        if args and args[0] not in self.table and not args[0].startswith("-"):
            near = nearest(args[0], self.table)
            shown = ctx.command_path
            hint = (
                f"did you mean {shown} {near}" if near else f"run '{shown} --help' to list commands"
            )
            raise InputError(f"unknown command {shown} {args[0]}", hint=hint)
        name, command, command_args = super().resolve_command(ctx, args)
        call = ctx.obj
        path = path_of(ctx, str(name))
        only_help = (
            ctx.resilient_parsing
            or {*_HELP, "--help-all"} & set(command_args)
            or path[0] in _WITHOUT_SETTINGS
        )
        if isinstance(call, CliContext) and command and not only_help:
            ctx.default_map = {path[-1]: call.files.defaults(path, command)}
        return name, command, command_args

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List by topic without importing anything."""
        topics: dict[str, list[tuple[str, str]]] = {}
        for name, (_, text, topic) in self.table.items():
            if topic:
                topics.setdefault(topic, []).append((name, text))
        for topic, rows in topics.items():
            with formatter.section(topic):
                formatter.write_dl(rows)


def path_of(ctx: click.Context, *below: str) -> tuple[str, ...]:
    """The names of the commands down to ``ctx`` and below, without the program's."""
    names: list[str] = []
    while ctx.parent is not None:
        names.insert(0, str(ctx.info_name))
        ctx = ctx.parent
    return (*names, *below)
