"""``mpctl completion SHELL``: a script that completes commands, flags and the names of services."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from mpctl.cli.terminal import Terminal


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, /, shell: str) -> None:
    """Print a completion script for a shell.

    \b
    bash:  source <(mpctl completion bash)
    zsh:   source <(mpctl completion zsh)
    fish:  mpctl completion fish | source
    """
    completer = get_completion_class(shell)
    assert completer is not None
    script = completer(ctx.find_root().command, {}, "mpctl", "_MPCTL_COMPLETE")
    Terminal.of_environment().result(script.source())
