"""Groups whose commands are imported when they are used."""

from __future__ import annotations

from typing import Any

import click

from mpctl.cli.context import CliContext
from mpctl.cli.registry import Table, load_command
from mpctl.cli.terminal import as_called
from mpctl.errors import InputError

# Commands that must work whatever the settings files say.
_WITHOUT_SETTINGS = ("help", "completion", "config")


def named(command: click.Command, program: str) -> click.Command:
    """The command with its help in the name by which the user calls the program."""
    if program == "mpctl":
        return command
    from copy import copy

    renamed = copy(command)
    renamed.help = as_called(command.help or "", program)
    renamed.epilog = as_called(command.epilog or "", program)
    return renamed


class LazyGroup(click.Group):
    """A group over a table of the registry."""

    def __init__(self, *args: Any, table: Table, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module."""
        if cmd_name not in self.table:
            return None
        loaded = load_command(self.table, cmd_name)
        call = ctx.find_root().obj
        return named(loaded, call.program) if isinstance(call, CliContext) else loaded

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest a similar command for an unknown name; apply the settings files to a known command."""
        if args and args[0] not in self.table and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], self.table, n=1)
            shown = ctx.command_path
            hint = f"did you mean {shown} {near[0]}" if near else f"run '{shown} --help' to list commands"
            raise InputError(f"unknown command {shown} {args[0]}", hint=hint)
        name, command, command_args = super().resolve_command(ctx, args)
        call = ctx.find_root().obj
        path = path_of(ctx, str(name))
        only_help = ctx.resilient_parsing or {"-h", "--help"} & set(command_args) or path[0] in _WITHOUT_SETTINGS
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
