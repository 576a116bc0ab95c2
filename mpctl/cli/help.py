"""``mpctl help TOPIC``: what does not belong to one command."""

from __future__ import annotations

import click

from mpctl.cli.terminal import Terminal
from mpctl.errors import EXIT_CODES

_ENVIRONMENT = (
    ("MPCTL_<FLAG>", "the value of any flag, for example MPCTL_NAMESPACE or MPCTL_CONCURRENCY"),
    ("MPCTL_STATE_DIR", "where local services and their history are kept; default: mpctl in the XDG state directory"),
    ("MPCTL_DEBUG", "show a stack trace for a fault of mpctl itself"),
    ("NO_COLOR, CLICOLOR, CLICOLOR_FORCE", "whether to use colour"),
    ("CI", "no redrawn lines"),
)


@click.command("help")
@click.argument("topic", type=click.Choice(["exit-codes", "environment"]))
def command(topic: str) -> None:
    """Explain exit codes and environment variables."""
    terminal = Terminal.of_environment()
    if topic == "exit-codes":
        rows = [[str(code), text] for code, text in EXIT_CODES.items()]
        terminal.table(["CODE", "MEANING"], rows)
        terminal.result("\nmpctl diff follows kubectl: 0 no difference, 1 differences, more than 1 an error.")
        return
    terminal.table(["VARIABLE", "MEANING"], [list(row) for row in _ENVIRONMENT])
