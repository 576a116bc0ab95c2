"""``mpctl local``: services as processes on this machine."""

from __future__ import annotations

from importlib import import_module

import click

_COMMANDS = {
    "up": "Start a service from its manifest",
    "down": "Stop a service; its history stays",
    "logs": "Print what an engine said",
}


class _Group(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        loaded: click.Command = import_module(f"mpctl.cli.local.{cmd_name}").command
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group("local", cls=_Group)
def command() -> None:
    """Run services as processes on this machine: real ``vllm serve``, no cluster."""
